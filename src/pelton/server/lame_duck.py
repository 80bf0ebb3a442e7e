"""Lame duck mode: a server that is about to stop refuses new clients and lets its clients move on.

    event -> listeners closed -> JetStream shut down -> no clients? stop
          -> INFO with ldm:true -> grace period -> clients closed one by one, with gaps -> stop

A gap is random, half to all of (duration - grace) / clients, and a second at most, so that the clients
do not arrive at another server together. The server hands in the actions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from pelton.core.broker.reactor import Connection, Reactor
from pelton.server.logs.log import Log
from pelton.server.settings import Settings
from pelton.server.units import SECOND_NS

MAX_GAP_SECONDS = 1.0


class LameDuck:
    """One run of lame duck mode; ``steps`` run first, in order."""

    def __init__(
        self,
        settings: Settings,
        reactor: Reactor,
        log: Log,
        steps: Sequence[Callable[[], object]],
        tell: Callable[[], object],
        stop: Callable[[], object],
        random: Random,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """steps: publish the event, close listeners, shut JetStream down. tell: send INFO to
        clients. stop: end the server.
        """
        self._settings = settings
        self._reactor = reactor
        self._log = log
        self._steps = steps
        self._tell = tell
        self._stop = stop
        self._random = random
        self._sleep = sleep

    async def run(self) -> None:
        """Run the whole mode; returns after the server was told to stop. The owner cancels it when
        the server stops earlier.
        """
        self._log.info("Entering lame duck mode, stop accepting new clients")
        for step in self._steps:
            step()
        if not self._reactor.all_connections():
            self._stop()
            return
        self._tell()
        grace_ns = self._settings.lame_duck_grace_period_ns
        await self._sleep(grace_ns / SECOND_NS)
        self._log.info("Closing existing clients")
        await self._close(self._reactor.all_connections(), grace_ns)
        self._stop()

    async def _close(self, waiting: list[Connection], grace_ns: int) -> None:
        gaps = gap_seconds(self._settings.lame_duck_duration_ns - grace_ns, len(waiting))
        for number, connection in enumerate(waiting):
            if connection.closed:
                continue
            self._reactor.disconnect(connection, "Server Shutdown")
            if number < len(waiting) - 1:
                await self._sleep(self._random.uniform(gaps / 2, gaps))


def gap_seconds(duration_ns: int, clients: int) -> float:
    """The longest gap between the closing of two clients."""
    if duration_ns <= 0:
        duration_ns = SECOND_NS
    return min(duration_ns / SECOND_NS / max(clients, 1), MAX_GAP_SECONDS)
