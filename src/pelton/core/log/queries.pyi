"""Queries of the control plane about a log: by pattern, by subject, holes."""

from pelton.core.log.log import Log, StoredMessage

def subjects(log: Log, pattern: str = ">") -> dict[str, int]:
    """Subject -> live messages, for subjects that match."""

class SubjectsPage:
    """A page of the subjects that match, ordered by name, made in steps.

    A subject that loses all its messages meanwhile is left out; a purge of the whole log may end the page early.
    """

    total: int  # subjects that match
    def __init__(self, log: Log, pattern: str, offset: int, limit: int) -> None: ...
    def sort(self) -> bool:
        """Do one step of ordering; whether more are needed, before `take`."""
    def take(self, most: int) -> dict[str, int] | None:
        """Subject -> live messages for the next subjects of the page, after looking at `most`; None: that was all."""

def subjects_page(log: Log, pattern: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
    """How many subjects match, and `limit` of them from `offset` on, ordered by name."""

def subject_state(log: Log, subject: str) -> tuple[int, int, int]:
    """(live messages, first sequence, last sequence) of one subject; zeros when it has none."""

def last_of_each(log: Log, patterns: list[str], upto: int, most: int) -> list[int] | None:
    """For each subject that matches a pattern, the last live sequence <= upto, ascending.

    None: there are more than `most`.
    """

def next_of(log: Log, pattern: str, start: int) -> StoredMessage | None:
    """The oldest message with sequence >= start whose subject matches, or None."""

def last_of(log: Log, pattern: str, upto: int | None = None) -> StoredMessage | None:
    """The newest message (with sequence <= upto) whose subject matches, or None."""

def next_seq(log: Log, pattern: str, start: int) -> int:
    """The lowest live sequence >= start whose subject matches; 0 when there is none."""

def last_seq_of(log: Log, pattern: str) -> int:
    """The highest live sequence whose subject matches; 0 when there is none."""

def count_from(log: Log, seq: int, pattern: str = ">") -> int:
    """The number of live messages with sequence >= seq whose subject matches."""

def deleted(log: Log, start: int = 0, most: int = -1) -> list[tuple[int, int]]:
    """Holes between first_seq and last_seq, as (first, count), ascending: at most `most` from a sequence on (-1: all)."""

def purge_subjects(log: Log, pattern: str, below: int | None = None, keep: int = 0) -> int:
    """Remove messages whose subject matches, below a sequence and/or all but the newest `keep`; return how many."""
