"""What ``where()`` asks of a batch read, as far as subjects, sequences and times can say it.

Spark hands over conditions that must all hold. Each one narrows :class:`Wanted`; where that says
exactly the same, Spark need not look at the rows again. A column is never null here but headers and
reply, which nothing is asked of.

Times narrow less than they say: the server finds a sequence by its clock, which may have been set
back; so bounds are a minute wider, and Spark looks at each row.

Does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from penstock.core.subjects import literal
from penstock.spark.parsing import SEQUENCE_MAX
from penstock.spark.reading.patterns import EVERYTHING, common

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

CLOCK_SLACK = timedelta(minutes=1)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_NEVER_NULL = frozenset({"stream", "seq", "subject", "ts", "data", "ts_ns", "size", "born"})


@dataclass(frozen=True)
class Wanted:
    """What is wanted of the streams: subjects (None for all, empty for none), names, sequences from
    and to, times from and before.
    """

    subjects: tuple[str, ...] | None = None
    streams: frozenset[str] | None = None
    first_seq: int = 1
    last_seq: int = SEQUENCE_MAX
    not_before: datetime | None = None
    not_after: datetime | None = None

    def of_subjects(self, patterns: Iterable[str]) -> Wanted:
        """Of what matches ``patterns`` as well."""
        mine = EVERYTHING if self.subjects is None else self.subjects
        return replace(self, subjects=common(patterns, mine))

    def of_streams(self, names: Iterable[str]) -> Wanted:
        """Of these streams only."""
        mine = frozenset(names)
        return replace(self, streams=mine if self.streams is None else mine & self.streams)

    def of_sequences(self, first: int, last: int) -> Wanted:
        """Of these sequences only."""
        return replace(
            self, first_seq=max(first, self.first_seq), last_seq=min(last, self.last_seq)
        )

    def of_times(self, first: datetime | None, last: datetime | None) -> Wanted:
        """Of what was stored about between these times, at which clocks have a zone."""
        low, high = self.not_before, self.not_after
        try:
            if first is not None:
                low = max(first - CLOCK_SLACK, low or _FIRST)
            if last is not None:
                high = min(last + CLOCK_SLACK, high or _LAST)
        except OverflowError:
            return self  # a time at the end of all times narrows nothing
        return replace(self, not_before=low, not_after=high)


def narrowed(wanted: Wanted, filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """What is wanted when all ``filters`` hold too, and those of them that it does not say
    exactly.
    """
    left = []
    for each in filters:
        wanted, exact = _narrow(wanted, each)
        if not exact:
            left.append(each)
    return wanted, left


def _narrow(wanted: Wanted, condition: Filter) -> tuple[Wanted, bool]:
    """One condition: what is wanted with it, and whether that says all of it."""
    column = ".".join(getattr(condition, "attribute", ()))
    if isinstance(condition, IsNotNull):
        return wanted, column in _NEVER_NULL
    value = getattr(condition, "value", None)
    if column == "subject":
        return _of_subject(wanted, condition, value)
    if column == "stream" and isinstance(condition, EqualTo | EqualNullSafe | In):
        names = _texts(value if isinstance(condition, In) else [value])
        return (wanted, False) if names is None else (wanted.of_streams(names), True)
    if column == "seq":
        return _of_sequence(wanted, condition, value)
    if column == "ts" and isinstance(value, datetime) and value.tzinfo is not None:
        return _of_time(wanted, condition, value), False
    return wanted, False


def _of_subject(wanted: Wanted, condition: Filter, value: object) -> tuple[Wanted, bool]:
    if isinstance(condition, StringStartsWith) and isinstance(value, str):
        return _of_prefix(wanted, value)
    if not isinstance(condition, EqualTo | EqualNullSafe | In):
        return wanted, False
    texts = _texts(value if isinstance(condition, In) else [value])
    if texts is None:
        return wanted, False
    # What is no subject is on no message.
    subjects = [text for text in texts if _is_subject(text)]
    if not all(literal(subject) for subject in subjects):
        return wanted, False  # a message may be on a subject that reads like a pattern
    return wanted.of_subjects(subjects), True


def _of_prefix(wanted: Wanted, prefix: str) -> tuple[Wanted, bool]:
    head, dot, rest = prefix.rpartition(".")
    if not dot:
        return wanted, False
    if not _is_subject(head):
        return wanted.of_subjects([]), True
    if ">" in head.split("."):
        return wanted, False
    return wanted.of_subjects([f"{head}.>"]), not rest and literal(head)


def _of_sequence(wanted: Wanted, condition: Filter, value: object) -> tuple[Wanted, bool]:
    if isinstance(condition, In):
        values = value if isinstance(value, list | tuple) else []
        sequences = [each for each in values if isinstance(each, int)]
        if not sequences or len(sequences) != len(values):
            return wanted, False
        low, high = min(sequences), max(sequences)
        return wanted.of_sequences(low, high), len(set(sequences)) == high - low + 1
    if not isinstance(value, int) or isinstance(value, bool):
        return wanted, False
    if isinstance(condition, EqualTo | EqualNullSafe):
        return wanted.of_sequences(value, value), True
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        above = isinstance(condition, GreaterThan)
        return wanted.of_sequences(value + above, SEQUENCE_MAX), True
    if isinstance(condition, LessThan | LessThanOrEqual):
        below = isinstance(condition, LessThan)
        return wanted.of_sequences(1, value - below), True
    return wanted, False


def _of_time(wanted: Wanted, condition: Filter, value: datetime) -> Wanted:
    if isinstance(condition, EqualTo | EqualNullSafe):
        return wanted.of_times(value, value)
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        return wanted.of_times(value, None)
    if isinstance(condition, LessThan | LessThanOrEqual):
        return wanted.of_times(None, value)
    return wanted


def _texts(values: object) -> list[str] | None:
    """The values, when they are texts."""
    if not isinstance(values, list | tuple) or not values:
        return None
    texts = [each for each in values if isinstance(each, str)]
    return texts if len(texts) == len(values) else None


def _is_subject(text: str) -> bool:
    return all(text.split(".")) and not any(each.isspace() for each in text)
