"""Copying messages of one stream into another: how a mirror or a source stores a message, and the copy loop within a server."""

from collections.abc import Callable

from pelton.core.log.log import Log
from pelton.core.stream.stream import Stream

RECORD_SOURCED: int  # flag of a record that came through a source

class SourceWriter:
    """Writes the messages of one upstream into the target."""

    def __init__(
        self,
        target: Stream,
        *,
        mirror: bool,
        position: int = 0,
        anchor: int = 0,
        before: bytes = b"",
        after: bytes = b"",
        transform: Callable[[str], str] | None = None,
    ) -> None:
        """`position`: sequence in the origin of the last message that the target has, `anchor`: that message's sequence in the target;
        `before`, `after`: the parts of Nats-Stream-Source around the sequence.
        """
    target: Stream
    mirror: bool
    position: int  # sequence in the origin of the last processed message
    anchor: int  # sequence in the target of the last stored message; 0: not known
    taken: int  # number of processed messages
    refusal: tuple[int, int, str] | None  # the reason while the target refuses the next message
    def write(self, seq: int, ts_ns: int, subject: str, headers: bytes, payload: bytes) -> bool:
        """Store a message from another server. False when the target refuses it for now, see `refusal`."""
    def skip(self, upto: int) -> None:
        """The origin has no (matching) message up to a sequence; a mirror's next message comes after it. Raises OSError."""
    def identify(self, identity: str) -> None:
        """Add the identity of the origin to the headers from now on; "": it is not known."""
    def restart(self) -> None:
        """The origin is a new stream with the same name: begin again with its first message."""

class Copier:
    """Copies the messages of one stream of this server into another, and continues as more become visible."""

    def __init__(
        self, origin: Stream, writer: SourceWriter, start_seq: int, filters: tuple[str, ...] = ()
    ) -> None:
        """Begin with the first message from `start_seq` on whose subject matches one of the filters (() = all).

        A mirror then continues at `start_seq`, also when there is no such message.
        """
    origin: Stream
    writer: SourceWriter
    closed: bool
    blocked: bool  # the target refuses the next message; retry() continues
    when_blocked: Callable[[], None] | None
    caught_up: bool  # every visible message was copied at least once
    last_ns: int  # when a message was last copied; 0: never
    def retry(self) -> None:
        """Continue after the target has refused a message."""
    def lag(self) -> int:
        """Number of the origin's messages that are not copied yet."""
    def close(self) -> None:
        """Stop; the copied messages stay."""

def last_positions(
    log: Log, above: int, names: set[str], marked: bool = True
) -> dict[str, tuple[int, int, str]]:
    """Read the positions from the newest sourced messages: '<origin> <filter> <destination>' -> (sequence there, sequence here, identity).

    Reads from the log's end down to the sequence `above`, until all `names` are found. `marked`: only messages that this server has
    sourced; a restored log has no such marks.
    """
