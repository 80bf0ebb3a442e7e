"""A client's attempts to connect, one server after the other, as steps.

``protocol/pool.py`` has the order of the servers and the waits between attempts. Does no I/O and reads no clock of
its own.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError, PeltonTimeoutError

from ..base.steps import Dial, Sleep
from ..protocol.pool import ServerPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.addresses import Server
    from ..base.steps import Steps
    from .session import Session


class Attempts:
    """The servers of one client, and its attempts to connect to them."""

    def __init__(
        self,
        client: Session[Any],
        on_attempt: Callable[[Server], None],
        random: Callable[[], float],
    ) -> None:
        """No attempt yet. ``on_attempt`` is called before each one; ``random`` gives numbers from 0 up to 1."""
        self.pool = ServerPool(client.options, random)
        self._client = client
        self._on_attempt = on_attempt
        self._tried_at = -math.inf  # when the last attempt failed, or the last login was

    def connected(self) -> None:
        """The handshake is done."""
        self._tried_at = self._client._clock()

    def lost(self, error: Exception | None) -> None:
        """The connection broke."""
        self.pool.lost(error, self._client._clock() - self._tried_at)

    def opening(self) -> Steps[None]:
        """Connect to the first server that accepts; ConnectError with every server's reason."""
        error: Exception | None = None
        options = self._client.options
        attempts = itertools.count() if options.retry_first_connect else options.servers
        for _ in attempts:
            error = yield from self._trying(math.inf)
            if error is None:
                return
        raise self.pool.error(error)

    def reopening(self, deadline: float) -> Steps[None]:
        """Connect again, as often as the options say.

        Raises ConnectError when no server is left, PeltonTimeoutError at the deadline.
        """
        while (yield from self._trying(deadline)) is not None:
            pass
        self._client.reconnects += 1

    def _trying(self, deadline: float) -> Steps[Exception | None]:
        """Make one attempt at the next server; returns the error, None for a connection.

        Raises ConnectError when no server is left, PeltonTimeoutError when the wait before it goes beyond the deadline.
        """
        client, pool = self._client, self.pool
        choice = pool.next()
        if choice is None:
            raise pool.error()
        server, wait = choice
        now = client._clock()
        wait = max(0.0, self._tried_at + wait - now)  # the time since then counts as waiting
        if deadline - now <= wait:
            pool.postpone()
            yield Sleep(max(0.0, deadline - now))
            raise PeltonTimeoutError(f"no connection in time: {pool.error()}")
        if wait:
            yield Sleep(wait)
        self._on_attempt(server)
        try:
            yield Dial(server)
        except (PeltonError, OSError, ValueError) as error:  # ValueError: an invalid host name
            if client.closed:
                raise client._connection.closed_error() from error
            pool.failed(error)
            self._tried_at = client._clock()
            return error
        pool.succeeded()
        return None
