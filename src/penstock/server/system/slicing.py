"""Answers that take several turns: one slice in each turn, whoever asked.

An account's answers are made in the order of its requests; accounts take turns. A request is refused
when too many of its account wait.
"""

from collections import deque
from collections.abc import Callable, Generator

from penstock.core.broker.job import Job
from penstock.core.broker.reactor import Reactor
from penstock.core.broker.router import Router

WAITING_MAX = 64  # requests of one account

Work = Generator[None, None, None]  # yields between slices


class Slicing:
    """The answers that are being made."""

    def __init__(self, reactor: Reactor, warn: Callable[[str], object]) -> None:
        """`warn` gets the errors of the work."""
        self._reactor = reactor
        self._warn = warn
        self._job: Job | None = None
        self._waiting: deque[tuple[Router, deque[Work]]] = deque()

    def run(self, account: Router, work: Work) -> bool:
        """Do the work: the first slice now unless others of the account wait. False: too many do,
        and the work is not done.
        """
        queue = next((queue for router, queue in self._waiting if router is account), None)
        if queue is not None:
            if len(queue) >= WAITING_MAX:
                return False
            queue.append(work)
        elif self._goes_on(work):
            self._waiting.append((account, deque([work])))
            if self._job is None:
                self._job = Job(self._reactor, self._step)
            self._job.soon()
        return True

    def _step(self) -> bool:
        account, queue = self._waiting.popleft()
        if not self._goes_on(queue[0]):
            queue.popleft()
        if queue:
            self._waiting.append((account, queue))
        return bool(self._waiting)

    def _goes_on(self, work: Work) -> bool:
        try:
            next(work)
        except StopIteration:
            return False
        except Exception as error:  # the fault of one report is not one of the event loop
            self._warn(f"a request to the system account failed: {error!r}")
            return False
        return True
