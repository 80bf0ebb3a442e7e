"""The connections of a load, and how long it runs.

A ``Link`` is a connection that a client has opened, with TLS and credentials as usual, and then left to the load. A
``Crowd`` runs one role per link until all are over. The loop itself is compiled (``core/load``). In
Python are the errors, and a function that is called ten times a second with the progress of the
load.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pelton.client.protocol.info import make_error
from pelton.core.load.crowd import NEVER, Role
from pelton.core.load.crowd import Crowd as Loop
from pelton.core.load.crowd import Link as Wire
from pelton.errors import ConnectionLostError, PeltonTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pelton.client.sync import Client

__all__ = ["NEVER", "Crowd", "Link", "Role"]

LOOK_NS = 100_000_000
"""How often the progress is told."""


class Link(Wire):
    """A connection whose bytes the load writes and reads itself."""

    def __init__(self, client: Client) -> None:
        """Takes the connection over; the client is closed."""
        client.flush()
        limit, inbox = client.server_info.max_payload, client.new_inbox()
        self._transport = transport = client.detach()
        through = None if transport.is_plain else transport
        super().__init__(transport.fileno(), inbox, limit, make_error, through)

    def await_server(self, limit_s: float = 10.0) -> None:
        """Until the server has handled all that was written; PeltonTimeoutError, ConnectionLostError."""
        asking = _Asking(self, 1)
        Crowd([asking], limit_s=limit_s).run()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


class _Asking(Role):
    """Waits for one answer to a PING."""

    def turn(self, now: int) -> int:
        """Ask."""
        if not self.over:
            self.ping()
        return NEVER


class Crowd:
    """All clients of a load."""

    def __init__(
        self,
        roles: Sequence[Role],
        beside: Sequence[Role] = (),
        *,
        limit_s: float | None = None,
        tell: Callable[[int], object] = lambda done: None,
    ) -> None:
        """``beside``: roles that are never over.

        ``limit_s``: PeltonTimeoutError if nothing arrives for this time while something is awaited.

        ``tell`` gets the number of messages so far, ten times a second.
        """
        self._roles = roles
        self._loop = Loop(roles, beside)
        self._limit_s = limit_s
        self._tell = tell

    def run(self) -> None:
        """Until all roles are over. Raises PeltonTimeoutError, ConnectionLostError, and the errors of roles."""
        heard_at = time.monotonic()
        while self._loop.unfinished:
            try:
                heard = self._loop.run(time.monotonic_ns() + LOOK_NS)
            except ConnectionResetError as problem:
                raise ConnectionLostError(str(problem)) from None
            now = time.monotonic()
            if heard:
                heard_at = now
            elif self._limit_s is not None and now - heard_at > self._limit_s:
                raise PeltonTimeoutError(f"no answer in {self._limit_s:g} s")
            self._tell(sum(role.done for role in self._roles))

    def stop(self) -> None:
        """End the roles that still run; their counts so far stay."""
        now = time.monotonic_ns()
        for role in self._roles:
            if not role.over:
                role.finish(now)
