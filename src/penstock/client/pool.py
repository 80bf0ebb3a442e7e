"""Which server to try next, and how long to wait before it.

Round robin over the servers given and those that INFO named. The first round goes without waiting;
before each further round the wait doubles, up to a limit, and is shortened at random so that many
clients do not come at once. Every attempt that fails is logged. Knows nothing of sockets or time;
randomness is handed in.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import AuthenticationError, ConnectError

from .options import Server, parse_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .options import Options

AUTHENTICATION_FAILURES_MAX = 2
"""Refusals in a row of one server to take our credentials, after which it is not tried again."""
SERVERS_MAX = 1000
"""Servers in the pool after which no more are learned."""
REASONS_MAX = 8

logger = logging.getLogger(__name__)


class _Candidate:
    __slots__ = ("failures", "refusals", "server")

    def __init__(self, server: Server) -> None:
        """Not tried yet."""
        self.server = server
        self.failures = 0
        self.refusals = 0


class ServerPool:
    """The servers of one client. ``random`` gives numbers from 0 up to 1."""

    def __init__(self, options: Options, random: Callable[[], float]) -> None:
        """All servers of the options, untried."""
        self._options = options
        self._random = random
        self._candidates = deque(_Candidate(server) for server in options.servers)
        self._current: _Candidate | None = None
        self._reasons: list[str] = []
        self._connected_once = False

    @property
    def servers(self) -> list[Server]:
        """Every server that would still be tried."""
        return [candidate.server for candidate in self._candidates]

    def next(self) -> tuple[Server, float] | None:
        """The server to try now and the seconds to wait before; None when every server was given
        up.
        """
        if not self._candidates:
            return None
        candidate = self._candidates[0]
        self._candidates.rotate(-1)
        self._current = candidate
        return candidate.server, self._wait(candidate.failures)

    def _wait(self, failures: int) -> float:
        if failures == 0:
            return 0.0
        options = self._options
        longest = min(
            options.reconnect_wait_max, options.reconnect_wait * 2.0 ** min(failures - 1, 30)
        )
        return longest * (0.5 + 0.5 * self._random())

    def succeeded(self) -> None:
        """The server last given took us; logged when it is not the first time."""
        if self._connected_once and self._current is not None:
            logger.warning("connected to %s again", self._current.server)
        self._connected_once = True
        self._reasons.clear()
        if self._current is not None:
            self._current.failures = 0
            self._current.refusals = 0

    def postpone(self) -> None:
        """The server last given was not tried: it comes first again."""
        if self._current is not None:
            self._candidates.rotate(1)
            self._current = None

    def failed(self, error: Exception) -> None:
        """The server last given could not be used, and why; an AuthenticationError counts as a
        refusal of our credentials. Logged as a warning when there was a connection before: nobody
        else tells then.
        """
        candidate, limit = self._current, self._options.reconnect_attempts_max
        if candidate is None:
            return
        candidate.failures += 1
        refused = isinstance(error, AuthenticationError)
        candidate.refusals = candidate.refusals + 1 if refused else 0
        reason = f"{candidate.server}: {error}"
        self._reasons = [*(old for old in self._reasons if old != reason), reason][-REASONS_MAX:]
        over = 0 <= limit < candidate.failures or candidate.refusals >= AUTHENTICATION_FAILURES_MAX
        logger.log(
            logging.WARNING if self._connected_once else logging.DEBUG,
            "cannot connect to %s (attempt %d%s)",
            reason,
            candidate.failures,
            ", the last one" if over else "",
        )
        if over:
            self._candidates.remove(candidate)
            self._current = None

    def error(self, last: Exception | None = None) -> ConnectError:
        """What to raise where no server was found: the reasons of the last attempts, as an
        AuthenticationError if that is what the ``last`` one was.
        """
        kind = AuthenticationError if isinstance(last, AuthenticationError) else ConnectError
        return kind("cannot connect: " + ("; ".join(self._reasons) or "no server left to try"))

    def learn(self, connect_urls: Iterable[str] | None) -> None:
        """Add the addresses a server named in INFO; TLS is kept from the server that named them."""
        known = {(candidate.server.host, candidate.server.port) for candidate in self._candidates}
        tls = self._current.server.tls if self._current else False
        for url in connect_urls or ():
            try:
                server = parse_server(url)
            except ValueError:  # an address we cannot use is no reason to fail
                continue
            if (server.host, server.port) not in known and len(known) < SERVERS_MAX:
                known.add((server.host, server.port))
                self._candidates.append(_Candidate(Server(server.host, server.port, tls)))
