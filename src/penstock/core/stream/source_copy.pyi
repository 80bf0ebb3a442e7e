"""Copying one stream's messages into another: what a mirror or a source does with each message, and the loop within a server."""

from collections.abc import Callable

from penstock.core.log.log import Log
from penstock.core.stream.stream import Stream

RECORD_SOURCED: int  # flag of a record that came through a source

class SourceWriter:
    """Where the messages of one upstream land."""

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
        """`position`: what the target has of the origin already, `anchor` the sequence of the message that says so; `before`, `after`: of the value of Nats-Stream-Source, around
        the sequence.
        """
    target: Stream
    mirror: bool
    position: int  # sequence in the origin of the last message that is dealt with
    anchor: int  # sequence here of the last one that was stored; 0: not known
    taken: int  # messages dealt with
    refusal: tuple[int, int, str] | None  # why the target refuses the next one
    def write(self, seq: int, ts_ns: int, subject: str, headers: bytes, payload: bytes) -> bool:
        """A message that came from outside. False: the target refuses it for now, see `refusal`."""
    def skip(self, upto: int) -> None:
        """The origin has nothing (for us) up to a sequence; a mirror's next message comes behind it. OSError: the disk."""
    def restart(self) -> None:
        """The origin is another stream of the same name: begin again with its first message."""

class Copier:
    """Copies what one stream of this server has into another, and goes on as more comes."""

    def __init__(
        self, origin: Stream, writer: SourceWriter, start_seq: int, filters: tuple[str, ...] = ()
    ) -> None:
        """Begins with the first message from `start_seq` on whose subject matches one of the filters (() = all).

        A mirror is at `start_seq` afterwards, whether there is such a message or not.
        """
    origin: Stream
    writer: SourceWriter
    closed: bool
    blocked: bool  # the target refuses: retry() goes on
    when_blocked: Callable[[], None] | None
    caught_up: bool  # everything that is visible was copied, at least once
    last_ns: int  # when a message was last copied; 0: never
    def retry(self) -> None:
        """Go on after the target has refused a message."""
    def lag(self) -> int:
        """Messages of the origin that are still to be copied."""
    def close(self) -> None:
        """Stop; what was copied stays."""

def last_positions(
    log: Log, above: int, names: set[str], marked: bool = True
) -> dict[str, tuple[int, int]]:
    """What the newest sourced messages say: '<origin> <filter> <destination>' -> (sequence there, sequence here).

    Looks from the log's end down to the sequence `above`, until all `names` are found. `marked`: only at messages that this
    server has sourced; a restored log has no such marks.
    """
