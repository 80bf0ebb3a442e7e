"""Work counted in calls, which do not depend on the speed of the machine."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def calls_of(work: Callable[[], object]) -> int:
    """The number of calls, of Python and C functions, that the work makes. Garbage is not collected
    meanwhile: its finalizers would count, and most of it is of other tests.
    """
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    collects = gc.isenabled()
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    return calls
