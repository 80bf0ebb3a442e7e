"""Maintenance of a log: purge, erase, compaction, compression, close."""

from pelton.core.log.log import Log

def purge(log: Log, below: int | None = None) -> int:
    """Remove every message, or every message below a sequence; return how many. The log records one range."""

def delete(log: Log, seq: int, erase: bool = False) -> bool:
    """Remove one message; with erase, also overwrite its bytes with zeros, durably, before this returns. False: no live message."""

def maintain(log: Log) -> bool:
    """Do at most one piece of maintenance: compact, encrypt or compress a segment, or a deferred write; whether there was one.

    A call may take 0.1 s. OSError when the disk refuses; the log goes on as before.
    """

def unconverted(log: Log) -> int:
    """The number of segment files that do not have the encryption of new ones (key number, or none). OSError."""

def close(log: Log) -> None:
    """Write, sync and update the index files; afterwards the log takes no appends. Reads go on."""

def destroy(log: Log) -> None:
    """Close the log without writing, drop all messages and remove the folder."""
