"""What the control plane asks of a log: by pattern, by subject, holes."""

from penstock.core.log.log import Log, StoredMessage

def subjects(log: Log, pattern: str = ">") -> dict[str, int]:
    """Subject -> live messages, for subjects that match."""

def subjects_page(log: Log, pattern: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
    """How many subjects match, and, ordered by name, `limit` of them from `offset` on."""

def subject_state(log: Log, subject: str) -> tuple[int, int, int]:
    """(live messages, first sequence, last sequence) of one subject; zeros when it has none."""

def last_of_each(log: Log, patterns: list[str], upto: int, most: int) -> list[int] | None:
    """For each subject that matches one of the patterns, the last sequence <= upto, ascending.

    None: there are more than `most`.
    """

def next_of(log: Log, pattern: str, start: int) -> StoredMessage | None:
    """The oldest message with sequence >= start whose subject matches."""

def last_of(log: Log, pattern: str, upto: int | None = None) -> StoredMessage | None:
    """The newest message (with sequence <= upto) whose subject matches."""

def next_seq(log: Log, pattern: str, start: int) -> int:
    """The lowest live sequence >= start whose subject matches; 0 when there is none."""

def last_seq_of(log: Log, pattern: str) -> int:
    """The highest live sequence whose subject matches; 0 when there is none."""

def count_from(log: Log, seq: int, pattern: str = ">") -> int:
    """Live messages with that sequence or a higher one whose subject matches."""

def deleted(log: Log) -> list[tuple[int, int]]:
    """Holes between first_seq and last_seq, as (first, count), ascending."""

def purge_subjects(log: Log, pattern: str, below: int | None = None, keep: int = 0) -> int:
    """Remove those whose subject matches, below a sequence and/or all but the newest `keep`."""
