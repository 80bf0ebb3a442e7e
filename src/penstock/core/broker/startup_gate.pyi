"""What stands for a stream, or for all of them, as long as it is not there yet."""

from collections.abc import Callable

from penstock.core.broker.reactor import Connection
from penstock.core.broker.router import Sink

class StartupGate(Sink):
    """Keeps messages for somebody who is not there yet; who sent one is not read from meanwhile."""

    def __init__(self, on_asked: Callable[[], None] | None = None) -> None:
        """on_asked() is called when somebody waits who is the first."""
    @property
    def held_bytes(self) -> int:
        """Bytes of the messages that are kept."""
    def hold(
        self,
        source: Connection | None,
        subject: str,
        reply: str,
        headers: bytes,
        payload: bytes,
        target: Sink,
    ) -> None:
        """Keep a message for a sink."""
    def pass_on(self, sink: Sink | None) -> None:
        """It is there: it gets what was kept, in order; None: it will never be, nobody takes it.
        Those who waited go on in the reactor's next turn.
        """
    def abandon(self) -> None:
        """The server goes: what was kept gets no answer but that nobody is there."""

class GatedSink(Sink):
    """Stands before a sink: messages that need what is not there yet wait for it."""

    def __init__(self, behind: Sink, choose: Callable[[str], StartupGate | None]) -> None:
        """choose(subject) says what a message needs; None: it goes to the sink at once."""
