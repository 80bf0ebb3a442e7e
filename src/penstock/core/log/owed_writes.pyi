"""Writes that the disk has refused and that are still to be done."""

from collections.abc import Callable

class OwedWrites:
    first: list[Callable[[], None]]  # before the next append
    late: list[Callable[[], object]]  # can wait for ``maintain``
