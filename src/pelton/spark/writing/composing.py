"""Rows of a DataFrame as messages: subjects, header lines and payloads as Arrow columns.

Rows that cannot be a message are kept apart, each with its reason.

::

    data  subject  country  msg_id  ttl            subjects   lines                    payloads
    ────  ───────  ───────  ──────  ───    ──►     ────────   ──────────────────────   ────────
    ...   null     de       null    1h             o.de       Nats-TTL: 1h CR LF       ...

Payloads, and values that are the same for all rows, need no work per row. Arrow makes the header
lines (:mod:`pelton.spark.writing.header_columns`). Does not depend on servers, and sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pelton.client.base.message import EXPECTED_LAST_MSG_ID as LAST_MSG_ID
from pelton.client.base.message import EXPECTED_LAST_SEQ as LAST_SEQ
from pelton.client.base.message import EXPECTED_LAST_SUBJECT_SEQ as LAST_SUBJECT_SEQ
from pelton.client.base.message import MSG_ID, TTL
from pelton.core.bulk.publish_window import SEND, SKIP, UNNUMBERED, Column, Rows
from pelton.spark.parsing import OptionError
from pelton.spark.unfit import unfit_rows, without_values
from pelton.spark.writing.header_columns import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

    from pelton.spark.writing.options import Pattern

DATA, SUBJECT, HEADERS, ID = "data", "subject", "headers", "msg_id"
TEXTS = ("string", "varchar", "char")
NUMBERS = ("byte", "short", "integer", "long")
HEADER_MAPS = ("map<string,array<string>>", "map<string,string>")
# Columns that become a header line: the name of the header, and the types that the column may have.
LINES: dict[str, tuple[str, tuple[str, ...]]] = {
    ID: (MSG_ID, TEXTS),
    "ttl": (TTL, (*TEXTS, *NUMBERS)),
    "expected_last_seq": (LAST_SEQ, NUMBERS),
    "expected_last_subject_seq": (LAST_SUBJECT_SEQ, NUMBERS),
    "expected_last_subject": (f"{LAST_SUBJECT_SEQ}-Subject", TEXTS),
    "expected_last_msg_id": (LAST_MSG_ID, TEXTS),
    "rollup": ("Nats-Rollup", TEXTS),
}
EXPECTATIONS = tuple(column for column in LINES if column.startswith("expected_"))
# Options and columns say how a message is published, never a map of headers: in a copy of a stream,
# these headers describe the first publish.
PUBLISHING = frozenset(
    {
        *(LINES[column][0].lower() for column in (ID, *EXPECTATIONS)),
        "nats-expected-stream",
        "nats-batch-id",
        "nats-batch-sequence",
        "nats-batch-commit",
    }
)
SUBJECT_BYTES_MAX = 3900
"""Servers take lines of 4,096 bytes, with reply subject and sizes, and disconnect at a longer one.
"""
_TOKEN = r"^[^\s.*>\x00-\x1f\x7f]+$"


@dataclass(frozen=True)
class Messages:
    """One batch of rows as messages; ``bad`` has the reason of each row that cannot be one."""

    subjects: bytes | pa.Array
    payloads: pa.Array
    lines: pa.Array | None
    bad: dict[int, str]
    named: frozenset[int] = frozenset()
    """Rows that have their own message id."""

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.payloads)

    def rows(self, first: int, skip: Iterable[int] = ()) -> Rows:
        """The rows to send: all rows without the bad ones and ``skip``.

        ``first`` is the number of the batch's first row in its partition.
        """
        how = bytearray()
        if self.bad or self.named or skip:
            how = bytearray([SEND]) * self.count
            for row in self.named:
                how[row] = UNNUMBERED
            for row in (*self.bad, *skip):
                how[row] = SKIP
        subjects = (
            Column(self.subjects) if isinstance(self.subjects, bytes) else _column(self.subjects)
        )
        lines = None if self.lines is None else _column(self.lines)
        payloads = _column(self.payloads)
        return Rows(subjects, payloads, lines, first=first, count=self.count, how=bytes(how))

    def subject_of(self, row: int) -> str:
        """The subject of a row, "" when it has none."""
        if isinstance(self.subjects, bytes):
            return self.subjects.decode()
        return str(self.subjects[row].as_py() or "")

    def payload_of(self, row: int) -> bytes:
        """The payload of a row."""
        return bytes(self.payloads[row].as_py() or b"")

    def ids(self, batch: pa.RecordBatch) -> list[str | None]:
        """The message id that each row of the batch has of its own."""
        if not self.named:
            return [None] * self.count
        column = batch.column(ID)
        return [column[row].as_py() if row in self.named else None for row in range(self.count)]

    def lines_of(self, row: int) -> bytes:
        """The header lines of a row."""
        return b"" if self.lines is None else bytes(self.lines[row].as_py() or b"")


class Composer(Protocol):
    """Makes messages from rows; picklable."""

    @property
    def subjects(self) -> str | None:
        """A subject, possibly with wildcards, that every message matches; None when it is unknown."""

    @property
    def fixed(self) -> bool:
        """Whether every message has the subject ``subjects``."""

    def compose(self, batch: pa.RecordBatch) -> Messages:
        """The rows of a batch as messages."""


def _column(array: pa.Array) -> Column:
    if array.null_count:
        array = pc.fill_null(array, b"" if pa.types.is_binary(array.type) else "")
    _, offsets, data = array.buffers()
    start = array.offset * 4
    return Column(data or b"", memoryview(offsets)[start:], len(array))


def check_columns(
    schema: StructType, known: Mapping[str, tuple[str, ...]], required: Iterable[str], sink: str
) -> tuple[str, ...]:
    """Check the columns and return their names; an empty tuple of types allows every type that a
    token may have.

    Raises :class:`OptionError` for a column that is missing, unknown or of a wrong type.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for column in required:
        if column not in types:
            raise OptionError(f"{sink} needs a column {column}; there are: {', '.join(types)}")
    for column, given in types.items():
        if column not in known:
            raise OptionError(
                f"{sink} has no use for column {column}; it knows {', '.join(known)}."
                " Select those, or name it in the subject"
            )
        allowed = known[column]
        spelled = given.partition("(")[0]
        spelled = _SPELLED.get(spelled, spelled)
        if spelled not in allowed:
            raise OptionError(f"column {column} is {given}, but must be {' or '.join(allowed)}")
    return tuple(types)


_SPELLED = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
TOKEN_TYPES = (*TEXTS, *NUMBERS, "boolean", "date")


@dataclass(frozen=True)
class MessageComposer:
    """Composes the rows of ``format("jetstream")``; ``columns`` are those of the DataFrame."""

    columns: tuple[str, ...]
    pattern: Pattern | None

    @property
    def subjects(self) -> str | None:
        """A subject, possibly with wildcards, that every message matches; None when it is unknown."""
        by_column = self.pattern is None or SUBJECT in self.columns
        return None if by_column or self.pattern is None else self.pattern.wildcards

    @property
    def fixed(self) -> bool:
        """Whether every message has the subject ``subjects``."""
        return self.subjects is not None and "*" not in self.subjects.split(".")

    @staticmethod
    def of(schema: StructType, pattern: Pattern | None) -> MessageComposer:
        """The composer for a DataFrame of this schema; :class:`OptionError` when it cannot be
        written.
        """
        known = {
            DATA: ("binary", *TEXTS),
            SUBJECT: TEXTS,
            HEADERS: HEADER_MAPS,
            **{column: types for column, (_, types) in LINES.items()},
        }
        used = () if pattern is None else pattern.columns
        known = {**dict.fromkeys(used, TOKEN_TYPES), **known}
        columns = check_columns(schema, known, (DATA, *used), "writing jetstream")
        if pattern is None and SUBJECT not in columns:
            raise OptionError("give the subject: with option subject, or a column subject")
        return MessageComposer(columns, pattern)

    def compose(self, batch: pa.RecordBatch) -> Messages:
        """The rows of a batch as messages."""
        batch, bad = fitting(batch, DATA)
        subjects = self._subjects(batch, bad)
        payloads = binary(batch.column(DATA))
        named: frozenset[int] = frozenset()
        refuse_long(subjects, bad)
        lines = None
        present = [name for name in LINES if name in self.columns]
        if present or HEADERS in self.columns:
            sources = [(LINES[name][0], batch.column(name)) for name in present]
            maps = batch.column(HEADERS) if HEADERS in self.columns else None
            lines = lines_of(sources, maps, PUBLISHING, bad)
        if ID in self.columns:
            named = frozenset(pc.indices_nonzero(pc.is_valid(batch.column(ID))).to_pylist())
        return Messages(subjects, payloads, lines, bad, named)

    def _subjects(self, batch: pa.RecordBatch, bad: dict[int, str]) -> bytes | pa.Array:
        made: bytes | pa.Array | None = None
        if self.pattern is not None:
            made = fill(self.pattern, batch, bad if SUBJECT not in self.columns else {})
        if SUBJECT not in self.columns:
            assert made is not None
            return made
        given = batch.column(SUBJECT).cast(pa.string())
        if made is not None and given.null_count:
            given = pc.coalesce(given, made.decode() if isinstance(made, bytes) else made)
        for row in pc.indices_nonzero(pc.is_null(given)).to_pylist():
            bad.setdefault(row, "it has no subject")
        return given


def fitting(batch: pa.RecordBatch, payload: str) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The batch, with nulls in rows whose texts are not UTF-8, and the reasons of these rows.

    The column ``payload`` may have any bytes.
    """
    bad = unfit_rows(batch, but=(payload,))
    return (without_values(batch, bad, but=(payload,)), bad) if bad else (batch, bad)


def binary(array: pa.Array) -> pa.Array:
    """A column of texts or bytes, as bytes."""
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def fill(pattern: Pattern, batch: pa.RecordBatch, bad: dict[int, str]) -> bytes | pa.Array:
    """The subject of each row; rows with a value that cannot be a token are added to ``bad``."""
    if not pattern.columns:
        return pattern.parts[0].encode()
    parts: list[object] = []
    for place, part in enumerate(pattern.parts):
        if place % 2 == 0:
            parts.append(part)
            continue
        values = batch.column(part).cast(pa.string())
        usable = pc.fill_null(pc.match_substring_regex(values, _TOKEN), False)
        for row in pc.indices_nonzero(pc.invert(usable)).to_pylist():
            shown = values[row].as_py()
            bad.setdefault(row, f"column {part} is {shown!r:.80}, no token of a subject")
        parts.append(pc.fill_null(values, ""))
    return pc.binary_join_element_wise(*parts, "")


def refuse_long(subjects: bytes | pa.Array, bad: dict[int, str]) -> None:
    """Add the rows whose subject is longer than servers take to ``bad``."""
    if isinstance(subjects, bytes):
        return  # the subject comes from an option, which was checked before
    sizes = pc.binary_length(subjects)
    for row in pc.indices_nonzero(pc.fill_null(pc.greater(sizes, SUBJECT_BYTES_MAX), False)):
        at = row.as_py()
        bad.setdefault(at, f"its subject has {sizes[at].as_py()} bytes, more than a server takes")
