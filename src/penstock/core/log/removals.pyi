"""What was removed and what is lost: for compiled callers, see removals.pxd."""

from typing import Any

class Removals:
    lost: list[tuple[int, int, str]]
    guard: Any
    guard_above: int
