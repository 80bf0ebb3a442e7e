"""The removals since the last write, and the lost sequences of a log: for compiled callers, see removals.pxd."""

from typing import Any

class Removals:
    lost: list[tuple[int, int, str]]
    guard: Any
    guard_above: int
