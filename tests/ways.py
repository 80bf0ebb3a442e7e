"""How a run goes: its seed, and how much of the long tests it takes: `make test` a part, `make test-all` all.

PENSTOCK_FULL=1 is the one switch. Without it every kind of test runs, but of families that try the
same at length (kills, every byte of a file, every call of a disk) some, and of ways that differ
little one. The last lines of a run say what was left out.
"""

from __future__ import annotations

import os
import random
from typing import TypeVar

import pytest

Number = TypeVar("Number", int, float)
FULL = os.environ.get("PENSTOCK_FULL") == "1"
REASON = "one of several ways, or long: `make test-all` (PENSTOCK_FULL=1) runs it"
EVERY_WAY = pytest.mark.skipif(not FULL, reason=REASON)

# Under CI the same examples run every time; elsewhere each run draws new ones. PENSTOCK_SEED repeats a run.
IN_CI = bool(os.environ.get("CI"))
SEED = int(
    os.environ.get("PENSTOCK_SEED")
    or (20240229 if IN_CI else random.SystemRandom().randrange(2**32))
)
os.environ["PENSTOCK_SEED"] = str(SEED)  # for the processes that share this run


def length(short: Number, full: Number) -> Number:
    """How many rounds, examples or seconds: the first number in `make test`."""
    return full if FULL else short


def skip_other_servers(request: pytest.FixtureRequest) -> None:
    """Of the servers that a fixture is made for, only the first one is for each run."""
    params = request.node.callspec.params
    kinds = {params[name] for name in ("broker", "peer", "server") if name in params}
    if kinds - {"penstock"} and not FULL:
        pytest.skip(REASON)
