"""Which of several ways a run of all tests takes."""

from __future__ import annotations

import os

import pytest

# Ways that differ little and take long: a run of all tests takes one.
REASON = "one of several ways is in each run; PENSTOCK_EVERY_WAY=1 runs all"
ALL = os.environ.get("PENSTOCK_EVERY_WAY") == "1"
EVERY_WAY = pytest.mark.skipif(not ALL, reason=REASON)


def skip_other_servers(request: pytest.FixtureRequest) -> None:
    """Of the servers that a fixture is made for, only the first one is for each run."""
    kind = request.node.callspec.params.get("broker", "penstock")
    if kind != "penstock" and not ALL:
        pytest.skip(REASON)
