"""A kill that comes when there is something to lose: after a while, and not before enough has happened,
however busy the machine is.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 60.0


def pause(seconds: float, enough: Callable[[], object]) -> None:
    """Wait so long, and until it is enough; a minute at most, for what would never come."""
    time.sleep(seconds)
    deadline = time.monotonic() + PATIENCE_S
    while not enough() and time.monotonic() < deadline:
        time.sleep(0.005)
