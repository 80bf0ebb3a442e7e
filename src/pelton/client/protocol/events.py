"""What happens on a connection: the events that its state machine gives to its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..base.message import BaseMessage

if TYPE_CHECKING:
    from pelton.errors import PeltonError

    from ..base.addresses import Server
    from ..base.mailbox import Interest
    from .info import ServerInfo


class Connected(NamedTuple):
    """The handshake is done; subscriptions and kept output are about to be sent."""

    info: ServerInfo
    again: bool
    """Whether there was a connection before this one."""


class TlsRequired(NamedTuple):
    """The caller must wrap the transport in TLS now, then call ``tls_established``."""

    server: Server


class InfoChanged(NamedTuple):
    """The server sent INFO again: other addresses, another payload limit, or lame duck mode."""

    info: ServerInfo


class LameDuck(NamedTuple):
    """The server is about to stop."""

    info: ServerInfo


class Pong(NamedTuple):
    """The answer to the ping of ``waiter``."""

    waiter: object


class ServerComplaint(NamedTuple):
    """A -ERR that does not end the connection, or an operation that was not sent because one would end it."""

    error: PeltonError


class Ended(NamedTuple):
    """A subscription received its last message."""

    interest: Interest


class Abandoned(NamedTuple):
    """The object that takes the messages of a subscription was garbage collected."""

    interest: Interest


class Disconnected(NamedTuple):
    """The connection is over; ``waiters`` are those of unanswered pings."""

    error: PeltonError | None
    waiters: list[object]


Event: TypeAlias = (
    BaseMessage
    | Connected
    | TlsRequired
    | InfoChanged
    | LameDuck
    | Pong
    | ServerComplaint
    | Ended
    | Abandoned
    | Disconnected
)
