"""The rare doings of a log: purge, erase, compaction, close."""

from penstock.core.log.log import Log

def purge(log: Log, below: int | None = None) -> int:
    """Remove every message (below that sequence); how many. One record, whatever the count."""

def delete(log: Log, seq: int, erase: bool = False) -> bool:
    """Remove one message; with erase, its bytes on disk are overwritten first, durably."""

def maintain(log: Log) -> bool:
    """Compact one segment that is mostly dead, convert or compress one; whether one was. It may take 0.1 s."""

def unconverted(log: Log) -> int:
    """Segments that are not encrypted as new ones are."""

def close(log: Log) -> None:
    """Flush, fsync, update the index files; it takes nothing afterwards, reads go on."""

def destroy(log: Log) -> None:
    """Close and remove its folder."""
