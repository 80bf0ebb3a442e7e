"""The heartbeats of a consumer: how many were missed. Does no I/O; the caller gives the time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from ..base.steps import Request, Until

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.steps import Steps
    from ..session.session import Session

T = TypeVar("T")


class Heartbeats:
    """Watches whether anything arrives from a consumer."""

    def __init__(self) -> None:
        """Watched from ``restart`` on."""
        self.interval_s = math.inf
        """The longest time between two messages or heartbeats of the consumer."""
        self.heard = False
        """Whether anything arrived since the last look; there are two looks in each interval."""
        self.due = math.inf
        """The time of the next look."""
        self._silent = 0  # looks in a row that found nothing

    def restart(self, now: float) -> None:
        """The first heartbeat is expected from now on."""
        self.due = now + self.interval_s / 2

    def missed(self, now: float, *, watched: bool) -> int:
        """Look whether anything arrived; returns the number of missed heartbeats when it has grown, else 0.

        A heartbeat counts as missed when it is late by half an interval. ``watched``: whether the server
        owes heartbeats.
        """
        self.due = now + self.interval_s / 2
        if self.heard or not watched:
            self.heard, self._silent = False, 0
            return 0
        self._silent += 1
        return self._silent // 2 if self._silent % 2 else 0

    @property
    def silent(self) -> bool:
        """Whether a heartbeat was missed since anything arrived."""
        return self._silent > 2


def looking(client: Session[Any], look: Callable[[], float], steps: Steps[T]) -> Steps[T]:
    """Carry out steps, and call ``look`` while they wait: at once, and then at the time that it returns."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as stop:
            found: T = stop.value
            return found
        answer, failure = None, None
        try:
            if isinstance(step, Request):
                answer = yield from looking(client, look, client._asking(step))
            elif isinstance(step, Until):
                answer = yield from _waiting(client, look, step)
            else:
                answer = yield step
        except BaseException as error:  # for the steps to handle
            failure = error


def _waiting(client: Session[Any], look: Callable[[], float], step: Until) -> Steps[bool]:
    deadline = client._clock() + step.seconds
    while True:
        due = look()
        wait = max(0.0, min(deadline, due) - client._clock())
        if (yield Until(step.box, step.done, wait, step.other)):
            return True
        if client._clock() >= deadline:
            return False
