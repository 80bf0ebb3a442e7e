"""Which server to try next, and how long to wait before it.

Round robin over the servers given and those that INFO named. The first round goes without waiting;
before each further round the wait doubles, up to a limit, and is shortened at random so that many
clients do not come at once. Knows nothing of sockets or time; randomness is handed in.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from .options import Server, parse_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .options import Options

AUTHENTICATION_FAILURES_MAX = 2


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
        """The server last given took us."""
        if self._current is not None:
            self._current.failures = 0
            self._current.refusals = 0

    def failed(self, refused: bool = False) -> None:
        """The server last given could not be used; ``refused`` when it did not take our
        credentials.
        """
        candidate, limit = self._current, self._options.reconnect_attempts_max
        if candidate is None:
            return
        candidate.failures += 1
        candidate.refusals = candidate.refusals + 1 if refused else 0
        if 0 <= limit < candidate.failures or candidate.refusals >= AUTHENTICATION_FAILURES_MAX:
            self._candidates.remove(candidate)
            self._current = None

    def learn(self, connect_urls: Iterable[str] | None) -> None:
        """Add the addresses a server named in INFO; TLS is kept from the server that named them."""
        known = {(candidate.server.host, candidate.server.port) for candidate in self._candidates}
        tls = self._current.server.tls if self._current else False
        for url in connect_urls or ():
            try:
                server = parse_server(url)
            except ValueError:  # an address we cannot use is no reason to fail
                continue
            if (server.host, server.port) not in known:
                known.add((server.host, server.port))
                self._candidates.append(_Candidate(Server(server.host, server.port, tls)))
