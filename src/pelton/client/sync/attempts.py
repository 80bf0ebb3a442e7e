# Made of client/aio/attempts.py by tools/gen_sync.py: change that file, and run it again.
"""A client's attempts to connect, one server after the other.

``protocol/pool.py`` has the order of the servers, and the waits between attempts.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from pelton.errors import PeltonError, PeltonTimeoutError

if TYPE_CHECKING:
    from .backend import Backend


def connect_first(client: Backend) -> None:
    """Connect to the first server that accepts; ConnectError with every server's reason."""
    error: Exception | None = None
    options = client.options
    # As many attempts as servers were given: those that INFO names meanwhile do not prolong it.
    for _ in itertools.count() if options.retry_first_connect else options.servers:
        error = _try_next(client, math.inf)
        if error is None:
            return
    raise client._pool.error(error)


def connect_again(client: Backend, deadline: float) -> None:
    """Connect again, as often as the options say.

    Raises ConnectError when no server is left, PeltonTimeoutError at the deadline.
    """
    while _try_next(client, deadline) is not None:
        pass
    client.reconnects += 1


def _try_next(client: Backend, deadline: float) -> Exception | None:
    """Make one attempt at the next server; returns the error, None for a connection.

    Raises ConnectError when no server is left, PeltonTimeoutError when the wait before it goes beyond the deadline.
    """
    pool = client._pool
    choice = pool.next()
    if choice is None:
        raise pool.error()
    server, wait = choice
    now = client._clock()
    wait = max(0.0, client._tried_at + wait - now)  # the time since then counts as waiting
    if deadline - now <= wait:
        # Waits all the same, so that a caller that tries again in a loop does not spin.
        pool.postpone()
        client._pause(max(0.0, deadline - now))
        raise PeltonTimeoutError(f"no connection in time: {pool.error()}")
    if wait:
        client._pause(wait)
    client._attempting(server)
    try:
        client._dial(server)
    except (PeltonError, OSError, ValueError) as error:  # ValueError: an invalid host name
        # The attempt failed because somebody closed the client, which is no failure of the server.
        if client.closed:
            raise client._connection.closed_error() from error
        pool.failed(error)
        client._tried_at = client._clock()
        return error
    pool.succeeded()
    return None
