"""Deferred writes: what the disk has refused and is still to be written."""

from collections.abc import Callable

class DeferredWrites:
    first: list[Callable[[], None]]  # before the next append
    late: list[Callable[[], object]]  # can wait for ``maintain``
