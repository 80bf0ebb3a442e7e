"""The hash seed of the process: clients must not be able to choose keys that collide.

A seed may be set only before a map of the core holds a key. Programs that used such parts before they
imported this package keep the seed that they have.
"""

import os
import sys

from pelton.core.libraries import require_server

_WITH_MAPS = ("pelton.core.base.maps", "pelton.core.protocol.subjects", "pelton.core.log.log")


def seed_once() -> bool:
    """Draw the seed if no map can hold a key yet; whether that was so."""
    if any(name in sys.modules for name in _WITH_MAPS):
        return False
    from pelton.core.base.buffer import seed_hash

    seed_hash(int.from_bytes(os.urandom(8), "little"))
    return True


require_server()  # before anything that only Linux has is imported
SEEDED = seed_once()
"""Whether this package has drawn the seed of the process."""
