"""The receivers of messages."""

from collections.abc import Callable

from pelton.core.broker.reactor import Connection

class Sink:
    as_client: bool  # of a consumer's deliveries: gets the message's own subject, as a client does

class Border:
    """The imports and exports of an account at its router (core/broker/service_imports)."""

class CallbackSink(Sink):
    """A Sink in Python, for rare messages: callback(connection | None, subject, reply, headers, payload) -> bool (taken)."""

    def __init__(
        self, callback: Callable[[Connection | None, str, str, bytes, bytes], bool]
    ) -> None: ...

class Subscription:
    sid: bytes
    subject: bytes
    queue: bytes
    delivered: int
    closed: bool
    @property
    def max(self) -> int:
        """The subscription ends after this many deliveries; 0: never."""
    def client(self) -> Connection:
        """The connection it belongs to."""
