"""The clock of a broker: the machine's, or one that only a test moves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from pelton.client.base.durations import to_nanoseconds
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.base.durations import Duration
    from pelton.core.base.clock import Clock
    from pelton.server.app import Server

REPEATS = 1000  # looks at the same nanosecond before the clock goes on: rules work in steps
STEP_NS = 1_000_000


class ClockNotManualError(PeltonError):
    """The broker's clock is the machine's, which a test can't move."""

    def __init__(self) -> None:
        """Says how to get another clock."""
        super().__init__('the clock of this broker is the machine\'s: start it with clock="manual"')


class Moves(Protocol):
    """The other users of the clock: held messages."""

    def next_due_ns(self) -> int:
        """When `run_due` is due; 0: nothing waits."""

    def run_due(self, now_ns: int) -> None:
        """Run the actions that are due."""


class BrokerClock:
    """The time of a broker.

    A manual clock stands still until ``advance``: nothing expires, no ack wait ends, no schedule fires
    meanwhile. Clients have the machine's clock: their timeouts go on, and a pull request ends after its
    time by either clock.
    """

    def __init__(
        self,
        call: Callable[[Callable[[Server], None]], None],
        clock: Clock,
        moves: Moves,
        *,
        manual: bool,
    ) -> None:
        """``call`` calls in the server's thread."""
        self._call = call
        self._clock = clock
        self._moves = moves
        self.manual = manual
        """Whether ``advance`` is possible."""

    @property
    def now_ns(self) -> int:
        """Nanoseconds since 1970."""
        return self._clock.now()

    @property
    def now(self) -> datetime:
        """The time with its zone, UTC; microseconds are its smallest unit."""
        return datetime.fromtimestamp(self.now_ns // 1000 / 1_000_000, UTC)

    def advance(self, by: Duration) -> None:
        """Let time pass: seconds, a timedelta, or text such as "30s".

        Everything that becomes due happens in its order and at its own time, to the millisecond:
        redeliveries, expiries, the end of pull requests, inactive consumers, schedules. When the
        call returns, all this has happened, and the messages for clients are in their sockets: the
        next await or call of a client handles them.

        Raises ClockNotManualError, and ValueError for a negative duration.
        """
        if not self.manual:
            raise ClockNotManualError
        by_ns = int(to_nanoseconds(by))
        self._call(lambda app: self._advance(app, by_ns))

    def _advance(self, app: Server, by_ns: int) -> None:
        until_ns = self._clock.now() + by_ns
        self._settle(app)
        while (now_ns := self._clock.now()) < until_ns:
            due_ns = self._next_due_ns(app)
            self._clock.set(min(until_ns, max(due_ns or until_ns, now_ns + STEP_NS)))
            self._settle(app)

    def _settle(self, app: Server) -> None:
        """Do everything that is due now, also what follows from it."""
        now_ns = self._clock.now()
        for _ in range(REPEATS):
            app.event_loop.now_ns = now_ns
            app.run_timers()
            self._moves.run_due(now_ns)
            if app.jetstream is not None:
                app.jetstream.engine.tick_all(now_ns)
            app.event_loop.rest()
            due_ns = self._next_due_ns(app)
            if not due_ns or due_ns > now_ns:
                return

    def _next_due_ns(self, app: Server) -> int:
        found = [app.next_timer_ns(), self._moves.next_due_ns()]
        if app.jetstream is not None:
            found.append(app.jetstream.engine.next_event_ns())
        return min((due_ns for due_ns in found if due_ns), default=0)
