"""What is per message in the backups that nats-server makes and restores."""

from penstock.core.log.log import Log

class BlockWriter:
    """Messages of a log as the message blocks of nats-server, one block at a time."""

    def __init__(self, stream: str) -> None: ...
    def start(self, index: int) -> None:
        """Begin block `index`, counted from 1."""
    def fill(self, log: Log, seq: int, stop: int, budget: int, block_bytes: int) -> int:
        """Add messages with sequences in [seq, stop] until about `budget` bytes were added or the block has `block_bytes`.

        The sequence to go on with; stop + 1 when there are no more.
        """
    def erased(self, seq: int, ts_ns: int) -> None:
        """Say that a sequence was given and its message is gone."""
    def __len__(self) -> int:
        """Bytes of the block so far."""
    def take(self) -> bytes:
        """The block."""

class Feed:
    """Bytes that come in pieces and are read in records; what is incomplete waits."""

    def feed(self, data: bytes | memoryview) -> None: ...
    @property
    def waiting(self) -> int:
        """Bytes that were fed and are not read yet."""

class BlockReader(Feed):
    """The messages of nats-server's blocks into a log that nobody else writes to."""

    def __init__(self, log: Log, stream: str) -> None: ...
    def start(self, index: int) -> None:
        """What is fed from now on is of block `index`; ValueError when the one before ends amid a record."""
    def run(self) -> None:
        """Read what is there; ValueError for a damaged record, OSError when the log can't take it."""
    last_removed: int
    """The highest sequence that was said to be removed."""

class EntryReader(Feed):
    """The entries of an archive that begins with NATSARC1: messages go into the log, once there is one."""

    log: Log | None
    max_bytes: int
    """The most bytes that a message may have, headers included; -1: any number."""
    now_ns: int
    """Messages whose time to live is over at this time are left out."""
    complete: bool
    """The end mark was read."""
    def run(self) -> tuple[str, bytes] | None:
        """Read what is there: the next entry that is no message, as (name, bytes), or None: no such entry yet.

        ValueError for what is no such archive, OSError when the log can't take a message.
        """

def apply_state(log: Log, data: bytes, key: bytes) -> tuple[int, int] | None:
    """Remove from a log what an index.db says is removed; (first, last) sequence of the stream, or None: it can't be believed."""
