"""Which of several ways a run of all tests takes."""

from __future__ import annotations

import os

import pytest

# Ways that differ little and take long: a run of all tests takes one.
EVERY_WAY = pytest.mark.skipif(
    os.environ.get("PENSTOCK_EVERY_WAY") != "1",
    reason="one of several ways is in each run; PENSTOCK_EVERY_WAY=1 runs all",
)
