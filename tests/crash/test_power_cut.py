"""Power cuts below the file system, see power.py: nothing acknowledged is lost where an ack means the
disk, and nothing is altered or half there where it means the page cache.

Needs root and loop devices; skipped with the reason without. The simulated disk covers what this does.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.crash import loop
from tests.crash.power import PROMISED_LESS, cut
from tests.crash.torture import MODES, ON_DISK
from tests.ways import SEED, length

ROUNDS = length(1, 4)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 20 * ROUNDS)]


@pytest.mark.parametrize("mode", MODES)
def test_a_power_cut(mode: str) -> None:
    print(f"seed {SEED}")
    rng = Random(SEED)
    promised = frozenset() if mode in ON_DISK else PROMISED_LESS
    for _ in range(ROUNDS):
        try:
            came = cut(
                "pelton",
                MODES[mode],
                rng.randrange(2**32),
                0.3 + rng.random() * length(0.3, 1.0),
                every=mode in ON_DISK,
            )
        except loop.NotHere as exc:
            pytest.skip(f"no file system of its own here: {exc}")
        assert came.acked > 500
        assert set(came.faults) <= promised, (came.faults, came.examples)
