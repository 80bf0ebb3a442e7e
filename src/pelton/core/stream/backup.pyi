"""The message formats of nats-server's backups, read and written."""

from pelton.core.log.log import Log

class BlockWriter:
    """Writes messages of a log as nats-server's message blocks, one block at a time."""

    def __init__(self, stream: str) -> None: ...
    def start(self, index: int) -> None:
        """Begin block `index`, counted from 1."""
    def fill(self, log: Log, seq: int, stop: int, budget: int, block_bytes: int) -> int:
        """Add messages with sequences in [seq, stop] until about `budget` bytes were added or the block has `block_bytes`.

        Returns the sequence to continue with; stop + 1 when there are no more.
        """
    def erased(self, seq: int, ts_ns: int) -> None:
        """Add a record for a sequence whose message is removed."""
    def __len__(self) -> int:
        """Bytes of the block so far."""
    def take(self) -> bytes:
        """Return the block."""

class EntryWriter:
    """Writes messages of a log as entries of an archive."""

    def fill(self, log: Log, seq: int, stop: int, budget: int) -> int:
        """Add messages with sequences in [seq, stop] until `budget` bytes wait.

        Returns the sequence to continue with; stop + 1 when there are no more.
        """
    def take(self) -> bytes:
        """Return the entries that wait."""

class Feed:
    """Reads records from bytes that come in pieces; an incomplete record waits for more."""

    def feed(self, data: bytes | memoryview) -> None: ...
    @property
    def waiting(self) -> int:
        """Bytes that were fed and are not read yet."""

class BlockReader(Feed):
    """Reads the messages of nats-server's blocks into a log that has no other writer."""

    def __init__(self, log: Log, stream: str) -> None: ...
    def start(self, index: int) -> None:
        """Begin block `index`: further bytes are of it. Raises ValueError when the block before ends within a record."""
    def run(self) -> None:
        """Read the complete records. Raises ValueError for a damaged record, OSError when the log can't take it."""
    last_removed: int
    """The highest sequence that a record names as removed."""

class EntryReader(Feed):
    """Reads the entries of an archive that begins with NATSARC1; messages go into the log, once it is set."""

    log: Log | None
    max_bytes: int
    """The most bytes of a message, headers included; -1: no limit."""
    now_ns: int
    """Messages whose TTL is over at this time are left out."""
    complete: bool
    """The end mark was read."""
    def run(self) -> tuple[str, bytes] | None:
        """Read the complete entries: the next entry that is not a message, as (name, bytes), or None: there is none yet.

        Raises ValueError for damaged input, OSError when the log can't take a message.
        """

def apply_state(log: Log, data: bytes, key: bytes) -> tuple[int, int] | None:
    """Remove from a log the messages that an index.db names as removed; (first, last) sequence of the stream, or None: it is not valid."""
