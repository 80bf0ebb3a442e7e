"""Holds messages for a stream, or for all streams, that the server has not opened yet."""

from collections.abc import Callable

from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import Sink

class StartupGate(Sink):
    """Holds messages for a sink that is not open yet; the connection of a held message is not read from meanwhile."""

    def __init__(self, on_asked: Callable[[], None] | None = None) -> None:
        """on_asked() is called when the first message is held."""
    @property
    def held_bytes(self) -> int:
        """Bytes of the messages that are held."""
    def hold(
        self,
        source: Connection | None,
        subject: str,
        reply: str,
        headers: bytes,
        payload: bytes,
        target: Sink,
    ) -> None:
        """Hold a message for a sink."""
    def pass_on(self, sink: Sink | None) -> None:
        """The sink is open: deliver the held messages to it, in order. None: it will not open, and no sink takes the messages.
        The connections of the held messages go on in the reactor's next turn.
        """
    def abandon(self) -> None:
        """The server stops: drop the held messages; the clients that asked for it get 503."""

class GatedSink(Sink):
    """Stands before a sink, and holds the messages that need a stream which is not open yet."""

    def __init__(self, behind: Sink, choose: Callable[[str], StartupGate | None]) -> None:
        """choose(subject) returns the gate that a message waits for; None: the message goes to the sink at once."""
