"""The order in which a client tries servers, and the waits between attempts.

Round robin over the servers of the options, in their order or shuffled, and those that INFO named. The
first round does not wait. Before each further round the wait doubles, up to a limit, and is shortened
at random so that many clients do not connect at once; or the user's function says how long. A server
that accepts a connection and ends it soon is waited for in the same way, counted from the login.
Every failed attempt and every lost connection is logged. Does not depend on sockets or time; the caller
passes randomness in.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from pelton.errors import AuthenticationError, ConnectError

from ..base.addresses import Server, parse_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .options import Options

AUTHENTICATION_FAILURES_MAX = 2
"""Refused credentials in a row after which a server is not tried again."""
SERVERS_MAX = 1000
"""The size of the pool above which it takes no more servers from INFO."""
# An error names the last few reasons, not those of thousands of attempts.
REASONS_MAX = 8

logger = logging.getLogger("pelton.client.pool")  # as documented


class _Candidate:
    __slots__ = ("expulsions", "failures", "losses", "refusals", "server")

    def __init__(self, server: Server) -> None:
        """Not tried yet."""
        self.server = server
        self.failures = 0  # attempts in a row
        self.refusals = 0  # of the credentials, attempts in a row
        self.losses = 0  # connections in a row that ended soon after the login
        self.expulsions = 0  # ... because the server refused the credentials then


class ServerPool:
    """The servers of one client. ``random`` gives numbers from 0 up to 1."""

    def __init__(self, options: Options, random: Callable[[], float]) -> None:
        """All servers of the options, not tried yet."""
        self._options = options
        self._random = random
        self._candidates = deque(_Candidate(server) for server in options.servers)
        if options.shuffle_servers:
            self._shuffle(self._candidates)
        self._current: _Candidate | None = None
        self._reasons: list[str] = []
        self._connected_once = False

    @property
    def servers(self) -> list[Server]:
        """Every server that is not given up, the next one first."""
        return [candidate.server for candidate in self._candidates]

    def replace(self, servers: Iterable[Server]) -> None:
        """Try these servers from now on; those that were known keep their failures."""
        # Compared by address alone, because the new URLs may have other credentials.
        known = {(each.server.host, each.server.port): each for each in self._candidates}
        candidates = deque(_Candidate(server) for server in servers)
        for each in candidates:
            former = known.get((each.server.host, each.server.port))
            if former is not None:
                each.failures, each.refusals = former.failures, former.refusals
                each.losses, each.expulsions = former.losses, former.expulsions
        if self._options.shuffle_servers:
            self._shuffle(candidates)
        self._candidates = candidates
        current, self._current = self._current, None
        if current is not None:
            for each in candidates:
                if each.server == current.server:
                    self._current = each

    def next(self) -> tuple[Server, float] | None:
        """The server to try now, and the seconds to wait before; None when every server is given up."""
        if not self._candidates:
            return None
        self._choose()
        candidate = self._candidates[0]
        self._candidates.rotate(-1)
        self._current = candidate
        return candidate.server, self._wait(candidate.failures + candidate.losses)

    def _choose(self) -> None:
        """Let the user's function say which server is next."""
        choose = self._options.choose_server
        if choose is None:
            return
        try:
            chosen = choose(tuple(self.servers))
        except Exception:
            logger.exception("choose_server failed: the next server is tried")
            return
        for place, each in enumerate(self._candidates):
            if each.server == chosen:
                del self._candidates[place]
                self._candidates.appendleft(each)
                return
        if chosen is not None:
            logger.error("choose_server returned %r, which is no server of the client", chosen)

    def _shuffle(self, candidates: deque[_Candidate]) -> None:
        for last in range(len(candidates) - 1, 0, -1):
            other = int(self._random() * (last + 1))
            candidates[last], candidates[other] = candidates[other], candidates[last]

    def _wait(self, failures: int) -> float:
        if failures == 0:
            return 0.0
        options = self._options
        if options.reconnect_delay is not None:
            return max(0.0, options.reconnect_delay(failures))
        # At most 2 ** 30: the power of a long outage would overflow a float.
        longest = min(
            options.reconnect_wait_max, options.reconnect_wait * 2.0 ** min(failures - 1, 30)
        )
        return longest * (1.0 - options.reconnect_jitter * (1.0 - self._random()))

    def succeeded(self) -> None:
        """The last server accepted the connection; logged if it is not the first connection."""
        if self._connected_once and self._current is not None:
            logger.warning("connected to %s again", self._current.server)
        self._connected_once = True
        self._reasons.clear()
        if self._current is not None:
            # Losses stay: only a connection that lives long enough clears them (``lost``).
            self._current.failures = 0
            self._current.refusals = 0

    def lost(self, error: Exception | None, lived_s: float) -> None:
        """The connection that the last server accepted broke, ``lived_s`` seconds after the login.

        Connections in a row that lived for less than ``reconnect_wait_max`` count as failed attempts when the
        next wait is chosen. The server is given up when it refused the credentials after two such logins.
        """
        candidate = self._current
        if candidate is None:
            return
        # A server may accept a login and end it at once, for example for an expired JWT. Without a wait,
        # the client would log in again in a busy loop.
        soon = lived_s < self._options.reconnect_wait_max
        refused = isinstance(error, AuthenticationError) and error.by_server
        candidate.losses = candidate.losses + 1 if soon else 0
        candidate.expulsions = (candidate.expulsions if soon else 0) + 1 if refused else 0
        logger.warning(
            "connection to %s lost after %.1f s: %s", candidate.server, lived_s, error or "closed"
        )
        if candidate.expulsions >= AUTHENTICATION_FAILURES_MAX:
            self._give_up(candidate)
            self._reasons = [str(error)]

    def left(self) -> None:
        """The user asked for another connection: the end of the last one was no failure."""
        if self._current is not None:
            self._current.losses = 0

    def _give_up(self, candidate: _Candidate) -> None:
        if candidate in self._candidates:
            self._candidates.remove(candidate)
        self._current = None

    def postpone(self) -> None:
        """The last server was not tried: it comes first again."""
        if self._current is not None:
            self._candidates.rotate(1)
            self._current = None

    def failed(self, error: Exception) -> None:
        """The last server could not be used because of ``error``.

        An AuthenticationError by the server counts as refused credentials. Logged as a warning after a first
        connection, because then no call raises it.
        """
        candidate, limit = self._current, self._options.reconnect_attempts_max
        if candidate is None:
            return
        # A refusal counts only if the server made it: a credentials file that is unreadable for a moment
        # must not cost the client its server.
        candidate.failures += 1
        refused = isinstance(error, AuthenticationError) and error.by_server
        candidate.refusals = candidate.refusals + 1 if refused else 0
        reason, server = str(error) or type(error).__name__, str(candidate.server)
        # Errors of the state machine name the server already.
        reason = reason if reason.startswith(f"{server} ") else f"{server}: {reason}"
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
            self._give_up(candidate)

    def error(self, last: Exception | None = None) -> ConnectError:
        """The error when no server was found, with the reasons of the last attempts.

        It is an AuthenticationError if ``last`` is one.
        """
        text = "cannot connect: " + ("; ".join(self._reasons) or "no server left to try")
        if not isinstance(last, AuthenticationError):
            return ConnectError(text)
        error = AuthenticationError(text)
        error.by_server, error.__cause__ = last.by_server, last.__cause__
        return error

    def learn(self, connect_urls: Iterable[str] | None) -> list[Server]:
        """Add the addresses in a server's INFO; they use TLS and WebSockets if that
        server does.

        Returns the new ones.
        """
        if not self._options.learn_servers:
            return []
        known = {(candidate.server.host, candidate.server.port) for candidate in self._candidates}
        # INFO has addresses without a scheme.
        like = self._current.server if self._current else Server("")
        found: deque[_Candidate] = deque()
        for url in connect_urls or ():
            try:
                server = parse_server(url)
            except ValueError:  # an unusable address is no failure
                continue
            # A server, or somebody who poses as one, could name addresses without end.
            if (server.host, server.port) not in known and len(known) < SERVERS_MAX:
                known.add((server.host, server.port))
                found.append(
                    _Candidate(
                        Server(
                            server.host,
                            server.port,
                            like.tls,
                            websocket=like.websocket,
                            path=like.path,
                        )
                    )
                )
        if self._options.shuffle_servers:
            self._shuffle(found)
        self._candidates.extend(found)
        return [candidate.server for candidate in found]
