"""Which of the threads of a blocking client reads, and how the others wait.

::

    a call waits ──► nobody leads ──► leads: writes, reads, handles what arrives, wakes the others
                 └─► somebody leads ─► follows: sleeps until its mailbox is stirred
    a call ends ───► nobody leads, others sleep ──► the one that sleeps longest wakes, and leads
    no call has waited for IDLE_S ──► the keeper leads: answers pings, keeps messages, connects again;
                                      a call that waits takes over

A thread changes the state only with the ``guard``, and releases the guard to wait. The keeper is a thread that
refers to the client only for moments, so that a client that the program has dropped is collected. It ends
with the client, and never keeps the process alive.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from abc import abstractmethod
from typing import TYPE_CHECKING

from pelton.errors import ConnectionClosedError, PeltonError, PeltonTimeoutError

from ..base.mailbox import Mailbox
from ..session.session import Session
from .locks import READABLE, Bell, Guard, Sleeper, new_poll

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.durations import Duration
    from .transport import Transport

RECONNECT_S = 0.1
"""How long the keeper tries to connect before it looks at the client again."""
GATHER_S = 0.002
"""How long an ack may wait for others, after one that was sent at once."""
KEEPER = -1
"""Leads while no call waits; a call takes over from it at once."""


class Shared(Session):
    """The part of a client that threads share."""

    _transport: Transport | None
    _usable: bool
    _ping_due: float
    _rest: memoryview

    def _share(self) -> None:
        """Set up; ``_keeper.start`` follows."""
        self._guard = Guard()
        """The lock of the client's state."""
        self._bell = Bell()
        self._leader: int | None = None  # the thread that reads or connects, or KEEPER
        self._sleepers: dict[Sleeper, None] = {}  # calls that follow, the oldest first
        self._turns = 0  # how often calls have read
        self._turns_kept = 0  # of these, those before the keeper's last look
        self._duties: set[Callable[[float], float]] = set()
        self._outflow = Mailbox()  # the transport has taken bytes
        self._change = Mailbox()  # anything arrived
        self._ending = Mailbox()  # the client is closed
        self._gather_s = GATHER_S
        self._gather_until = -math.inf  # acks before this time wait for others
        self._acks_gathered = 0
        self._acks_kept = 0  # of these, those before the keeper's last look
        self._keeper_sends = False  # whether it looks again soon, to send acks that wait
        self._keeper = Keeper(self)
        self._connection.on_abandoned = self._keeper.rouse

    # -- implemented by the client -----------------------------------------------------------------

    @abstractmethod
    def _reopen(self, timeout: Duration | None) -> None:
        """Make sure of a connection."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise ConnectionClosedError when the client is closed."""

    @abstractmethod
    def _turn(self, deadline: float) -> bool:
        """Write, then read once; False when nothing arrived before the deadline."""

    @abstractmethod
    def _push(self) -> bool:
        """Write queued output as far as the transport takes it; whether it took everything."""

    # -- threads -----------------------------------------------------------------------------------

    @property
    def _calls_waiting(self) -> int:
        """The number of calls that wait now, in all threads."""
        return len(self._sleepers) + (self._leader not in (None, KEEPER))

    def _caller(self) -> object:
        """The thread."""
        return threading.get_ident()

    def _leads_or_may(self) -> bool:
        """Whether this thread leads, or nobody does whom it could follow."""
        leader = self._leader
        return leader is None or leader == KEEPER or leader == threading.get_ident()

    def _begin_leading(self) -> int | None:
        """Lead, until ``_end_leading``; returns who has led."""
        outer = self._leader
        self._leader = threading.get_ident()
        if outer == KEEPER:
            # It waits for the same socket, and would wake for bytes that this thread reads.
            self._keeper.rouse()
            return None
        return outer

    def _end_leading(self, outer: int | None) -> None:
        self._leader = outer
        self._hand_over()
        # Only a thread that leads waits for the bell, and this one has stopped.
        if self.closed:
            self._bell.close()

    def _hand_over(self) -> None:
        """If nobody leads, wake the call that sleeps longest."""
        if self._leader is None and self._sleepers:
            sleeper = next(iter(self._sleepers))
            # At once: until it runs, another call may end and has to wake another one.
            del self._sleepers[sleeper]
            sleeper.wake()

    def _follow(self, deadline: float, *boxes: Mailbox | None) -> bool:
        """Sleep until one of the boxes is stirred, or this call is to lead; False at the deadline."""
        sleeper = Sleeper()
        self._sleepers[sleeper] = None
        for box in boxes:
            if box is not None:
                box._waiting = (*box._waiting, sleeper)
        try:
            return sleeper.sleep(self._guard, deadline - time.monotonic())
        finally:
            self._sleepers.pop(sleeper, None)
            # One box woke it, or none: in the others it still is.
            for box in boxes:
                if box is not None:
                    forget(box, sleeper)

    def _wait(
        self,
        done: Callable[[], bool],
        seconds: float,
        box: Mailbox | None = None,
        other: Mailbox | None = None,
    ) -> bool:
        """Wait until ``done()`` holds, with the guard: False when the time is over.

        Changes that make it hold stir one of the boxes; without any, only what arrives does.
        """
        if done():
            return True
        deadline = time.monotonic() + seconds
        box = self._change if box is None else box
        while True:
            # Again after each wake-up: the thread that led may have left, or another call took what came.
            if self._leader is None or self._leads_or_may():
                if not self._lead(done, deadline, box, other):
                    return done()
            else:
                try:
                    self._check_open()
                    if self._connection.bytes_waiting and self._connection.connected:
                        if not self._push():
                            self._bell.wake()  # the leader writes the rest
                        if done():
                            return True
                    if not self._follow(deadline, box, other):
                        return done()
                finally:
                    self._hand_over()
            if done():
                return True

    def _lead(
        self, done: Callable[[], bool], deadline: float, box: Mailbox, other: Mailbox | None
    ) -> bool:
        """Read until ``done()`` holds, or the time is over: False."""
        # ``outer`` is this thread itself when a callback that runs within its lead makes a call that waits.
        bell, outer = self._bell, self._leader
        if outer is None:
            self._leader = threading.get_ident()
        else:
            outer = self._begin_leading()
        try:
            while True:
                if not self._usable:
                    if done():  # the end of the client is the end of iterations, and no error
                        return True
                    try:
                        self._reopen(deadline - time.monotonic())
                    except PeltonTimeoutError:
                        return False
                # Another thread, or the writing of output, may change what this call waits for.
                if bell not in box._waiting:
                    box._waiting = (*box._waiting, bell)
                if other is not None and bell not in other._waiting:
                    other._waiting = (*other._waiting, bell)
                # First this, then the look: a change after ``attend`` ends the wait at once, one before it is
                # seen by ``done``. The other way round, a wake-up between the two would be lost.
                bell.attend()
                if done():
                    return True
                self._turns += 1
                if not self._turn(deadline):
                    return False
        finally:
            if box._waiting:
                forget(box, bell)
            if other is not None:
                forget(other, bell)
            self._leader = outer
            if outer is None and self._sleepers:
                self._hand_over()
            if not self._usable and self.closed:
                bell.close()

    def _serve(self) -> Callable[[], object]:
        """Do what no call does; returns what the keeper waits for before it asks again."""
        with self._guard:
            # It led only while it waited for bytes. With the guard it has to compete like any other thread.
            back = self._leader == KEEPER
            if back:
                self._leader = None
            # Where calls have read since the last look, more of them are likely: the keeper would only disturb.
            idle = back or self._turns == self._turns_kept
            self._turns_kept = self._turns
            wait: Callable[[], object] | None = None
            try:
                self._settle_abandoned()
                due = self._do_duties()
                if self._connection.bytes_waiting and self._connection.connected:
                    self._push()
                if self._keeper_sends:
                    # As long as acks keep coming it looks again soon; then it goes back to long pauses.
                    self._keeper_sends = self._acks_gathered != self._acks_kept
                    self._acks_kept = self._acks_gathered
                    idle = idle and not self._keeper_sends
                if idle and self._leader is None and not self._sleepers and not self.closed:
                    wait = self._keep(due)
            except (PeltonTimeoutError, ConnectionClosedError):
                pass  # it is tried again, or the client is closed
            except (PeltonError, OSError) as error:
                self._report(error)
            finally:
                self._hand_over()
            pause = GATHER_S if self._keeper_sends else IDLE_S
            return wait or self._keeper.nap(min(pause, due - time.monotonic()))

    def _keep(self, due: float) -> Callable[[], object] | None:
        """Lead for a moment: read once; returns how to wait for bytes, None without a connection."""
        self._leader = threading.get_ident()
        try:
            # For a moment only, because calls of other threads wait for the lead meanwhile.
            if not self._connection.connected:
                self._reopen(RECONNECT_S)
            elif self._turn(0.0):
                return _at_once
        finally:
            self._end_leading(None)
        if self._transport is None or self._rest or self._leader is not None or self._sleepers:
            return None
        # From here on without the guard: it waits for bytes, and reads them when it has the guard again.
        self._leader = KEEPER
        return self._transport.watching(self._keeper.bell, min(self._ping_due, due))

    def _assume(self, duty: Callable[[float], float]) -> None:
        """Call ``duty`` with the time again and again, also while no call waits.

        It returns when it is due again, or infinity for the end.
        """
        self._duties.add(duty)
        self._keeper.rouse()

    def _do_duties(self) -> float:
        """Do what is due; returns when something is again."""
        if not self._duties:
            return math.inf
        now = time.monotonic()
        # Those that have ended return infinity, and are dropped.
        dues = {duty: duty(now) for duty in self._duties}
        self._duties = {duty for duty, due in dues.items() if due < math.inf}
        return min(dues.values())


def _at_once() -> None:
    """The keeper's wait when there may be more to read."""


def forget(box: Mailbox, waiter: object) -> None:
    """Nobody has to wake ``waiter`` any more."""
    if box._waiting:
        box._waiting = tuple([each for each in box._waiting if each is not waiter])


IDLE_S = 0.5
"""How long the keeper leaves a client alone after a call has read."""
JOIN_S = 1.0
"""How long the end of a client, or of the process, waits for a keeper that works right now."""

_living: weakref.WeakSet[Keeper] = weakref.WeakSet()


class Keeper:
    """Runs ``keep`` of a client again and again."""

    def __init__(self, client: Shared) -> None:
        """``start`` follows."""
        self.bell = Bell()
        """Ends the keeper's wait for bytes."""
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=_keep,
            # No method of this object or of the client: a thread keeps alive what it calls.
            args=(weakref.ref(client), self.bell, self._over),
            name="pelton-keeper",
            daemon=True,
        )
        weakref.finalize(client, _end, self.bell, self._over).atexit = False

    def start(self) -> None:
        """Start the thread."""
        _living.add(self)
        self._thread.start()

    def nap(self, seconds: float) -> Callable[[], object]:
        """A function that waits for the bell only."""
        bell = self.bell

        def sleep() -> None:
            poll = new_poll()
            poll.register(bell, READABLE)
            poll.poll(max(0.0, seconds) * 1000)
            bell.hear()

        return sleep

    def rouse(self) -> None:
        """Let it look at the client now."""
        self.bell.ring()

    def end(self) -> None:
        """The client is closed."""
        _end(self.bell, self._over)

    def join(self) -> None:
        """Wait a moment until the thread has ended, unless it calls."""
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join(JOIN_S)


def _keep(client: weakref.ref[Shared], bell: Bell, over: threading.Event) -> None:
    while not over.is_set():
        there = client()
        if there is None:
            break
        wait = there._serve()
        # Before the wait, which would otherwise keep a client that the program has dropped.
        del there
        wait()
    bell.close()


def _end(bell: Bell, over: threading.Event) -> None:
    over.set()
    bell.ring()


def _end_all() -> None:
    """End all keepers before the process ends: one that is stopped then could keep a guard for ever."""
    living = list(_living)
    for each in living:
        each.end()
    for each in living:
        each.join()


atexit.register(_end_all)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_living.clear)  # their threads are the parent's
