"""Work in steps: a generator that yields between its steps and returns its result.

Between two steps of a request the server serves its clients (core/broker/request_queue). What a step finds out about
other streams may not be true any more in the next one.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
STEP = 1000  # units in a step: about a millisecond


class Pace:
    """The work of the current step."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        """Begin a step."""
        self._done = 0

    def over(self, units: int) -> bool:
        """Count units of about a microsecond; return whether the step is over. The caller then yields."""
        self._done += units
        if self._done < STEP:
            return False
        self._done = 0
        return True


def finish(work: Steps[T]) -> T:
    """Do all steps at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
