"""How tasks wait for a client's mailboxes, and go on.

A task that awaits a future goes on in the next turn of the loop, and a turn costs as much as a short
request. The tasks that received bytes wake go on at the end of the present turn instead::

    bytes arrive ─► each message goes to its mailbox, which wakes its tasks ─► these go on ─► output is written
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from ..base.mailbox import Mailbox
    from .backend import Backend

LOOK_S = 1e-6
"""More than the time of checking one wait for its deadline, in seconds."""


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The clock for what happens in a loop, in seconds: as precise as the system's.

    That of uvloop counts whole milliseconds, and a round trip takes a tenth of one.
    """
    usual = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    if isinstance(loop, asyncio.BaseEventLoop) and not usual:
        return loop.time  # a time of the test's own
    return time.monotonic


class Waiting(asyncio.Future[None]):
    """What a task awaits that waits for a mailbox: a future that can let the task go on at once."""

    __slots__ = ("_context", "_go_on", "_waits", "deadline", "late")

    def __init__(self, waits: Waits, deadline: float) -> None:
        """``late`` tells whether its time is over."""
        super().__init__(loop=waits.loop)
        self.deadline = deadline
        self.late = False
        self._waits = waits
        self._go_on: Callable[[Any], object] | None = None
        self._context: Context | None = None

    def add_done_callback(
        self, fn: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None:
        """Called by the task: ``fn`` makes it go on."""
        # Only the callback of a waiting task is kept back; any other one is called as by a usual future.
        if context is None or self._go_on is not None or self.done():
            super().add_done_callback(fn, context=context)
        else:
            self._go_on, self._context = fn, context

    def cancel(self, msg: Any = None) -> bool:
        """Called by the task when it is cancelled."""
        if self.done():
            return False
        # Before the cancel: the future calls back only what it knows of.
        self._hand_over()
        return super().cancel(msg)

    def wake(self) -> None:
        """Let the task check again: at the end of this turn, or in the next one."""
        held = self._waits.held
        if held is None:
            self.wake_later()
        else:
            held.append(self)

    def wake_later(self) -> None:
        """Let the task check again in the next turn, as any future does."""
        self._hand_over()
        # It may have been cancelled since it was woken.
        with contextlib.suppress(asyncio.InvalidStateError):
            self.set_result(None)

    def resume(self) -> None:
        """Let the task go on now. No other task runs at this moment."""
        go_on, context = self._go_on, self._context
        try:
            self.set_result(None)
        except asyncio.InvalidStateError:  # a task may be cancelled at any time, also by a signal
            return
        if go_on is not None and context is not None:
            # First: the task runs within the next line, and must not be called back a second time.
            self._go_on = None
            context.run(go_on, self)

    def _hand_over(self) -> None:
        """Give the callback to the future itself, which calls it in the next turn."""
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            super().add_done_callback(go_on, context=self._context)


class Waits:
    """The waits of a client's tasks.

    Ends those whose time is over, with one timer of the loop for all of them: most waits end before their
    time, and a timer for each would cost more than everything else.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        """Starts without waits; ``clock`` is that of ``clock_of``."""
        self.loop = loop
        self.clock = clock
        self.held: list[Waiting] | None = None
        """The waits that were woken since ``hold``."""
        self._waiting: set[Waiting] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf

    def hold(self) -> None:
        """From now on, hold the waits that are woken; ``resume`` follows."""
        self.held = []

    def resume(self) -> None:
        """Let the tasks of the held waits go on, in the order in which they were woken."""
        held, self.held = self.held, None
        if not held:
            return
        at = 0
        # Within a task no other one can go on: then those that were woken do so in the next turn.
        if asyncio.current_task(self.loop) is None:
            try:
                for each in held:
                    at += 1
                    each.resume()
            finally:  # SystemExit and KeyboardInterrupt come out of a task
                for each in held[at:]:
                    each.wake_later()
        else:
            for each in held:
                each.wake_later()

    def add(self, waiting: Waiting) -> None:
        """Wake ``waiting`` at its deadline, unless it is removed before."""
        self._waiting.add(waiting)
        if waiting.deadline < self._due:
            self._plan(waiting.deadline)

    def remove(self, waiting: Waiting) -> None:
        """Remove ``waiting``: it does not wait any more."""
        self._waiting.discard(waiting)

    def _plan(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self.loop.call_later(max(0.0, due - self.clock()), self._look)

    def _look(self) -> None:
        now = self.clock()
        self._timer, self._due = None, math.inf
        # A list first: waking may add and remove waits.
        for each in [each for each in self._waiting if each.deadline <= now]:
            self._waiting.remove(each)
            each.late = True
            each.wake()
        due = min((each.deadline for each in self._waiting), default=math.inf)
        if due < math.inf:  # not more often than it takes to check all of them
            self._plan(max(due, now + len(self._waiting) * LOOK_S))


async def until(
    client: Backend,
    box: Mailbox,
    done: Callable[[], bool],
    seconds: float,
    other: Mailbox | None = None,
) -> bool:
    """Wait until ``done()`` holds; False when the time is over. What changes it stirs the ``box``.

    ``other``: what blocking code has to be woken by, too.
    """
    if done():
        return True
    waits = client._waits
    # The answer that this waits for may belong to a request that is not sent yet.
    if client._connection.bytes_waiting:
        client._flush_for_wait()
    deadline = waits.clock() + seconds
    while True:
        # A wait is for one wake-up. The loop looks again after each, because another task may have taken
        # the message, or the box was stirred for something else.
        waiting = Waiting(waits, deadline)
        waits.add(waiting)
        box._waiting = (*box._waiting, waiting)
        try:
            await waiting
        finally:
            waits.remove(waiting)
            # A wake-up has emptied the tuple; after a cancel or a timeout it still contains this wait.
            if box._waiting:
                box._waiting = tuple([each for each in box._waiting if each is not waiting])
        if done():
            return True
        # Only after another look: the change may have come in the same turn as the timeout.
        if waiting.late:
            return False
