"""The server, with message files of 1 MB instead of 16: the store of a soak has its size in minutes.

python -m tests.crash.soaked OPTIONS
"""

import functools
import sys

from pelton.server import jetstream
from pelton.server.__main__ import main

SEGMENT_BYTES = 1 << 20

if __name__ == "__main__":
    settings = functools.partial(jetstream.EngineSettings, segment_bytes=SEGMENT_BYTES)
    jetstream.EngineSettings = settings  # type: ignore[assignment,misc]  # the shell only calls it
    sys.exit(main())
