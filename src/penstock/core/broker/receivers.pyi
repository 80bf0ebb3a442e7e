"""Who receives messages."""

from collections.abc import Callable

from penstock.core.broker.reactor import Connection

class Sink:
    as_client: bool  # of a consumer's deliveries: sees the message's own subject, as a client does

class Border:
    """What an account shares with others (core/broker/service_imports)."""

class CallbackSink(Sink):
    """A Sink in Python: callback(connection | None, subject, reply, headers, payload) -> bool (taken). For rare messages."""

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
        """Ends after that many deliveries; 0: never."""
    def client(self) -> Connection:
        """The connection it belongs to."""
