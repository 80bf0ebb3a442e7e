"""The options of writing ``format("jetstream")``: Spark's strings, parsed into one frozen value.

``ROWS`` defines each option: its name, how its text is parsed and what it means. ``SINK_ROWS`` are
the options that the other sinks into streams share. Does not depend on Spark, the network or
the stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.core.protocol.subjects import literal
from pelton.spark.holding import FAIL as FAIL_BEHIND
from pelton.spark.holding import STREAM_IF_BEHIND, checkpoint_given
from pelton.spark.parsing import (
    SEQUENCE_MAX,
    OptionError,
    Row,
    count,
    one_of,
    parse,
    size,
    stream_name,
    text,
)
from pelton.spark.servers import SERVER_ROWS, Servers, take_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

IDS, BATCH, NONE = "ids", "batch", "none"
FAIL, SIDE = "fail", "side"
PROGRESS_BUCKET = "pelton_spark"
ATOMIC_ROWS = 1000
WINDOW_ROWS = 16_384
WINDOW_BYTES = 16 * 2**20
_COLUMN = re.compile(r"\{([^{}]*)\}")
# Spark adds these to the options of every sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})


@dataclass(frozen=True)
class Pattern:
    """A subject that may contain columns: ``parts`` are texts and, at odd places, names of columns."""

    parts: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose values fill the subject; () for a subject that is the same for all
        rows.
        """
        return self.parts[1::2]

    @property
    def wildcards(self) -> str:
        """The subject with wildcards that every filled subject matches."""
        tokens = "\0".join(self.parts[::2]).split(".")
        return ".".join("*" if "\0" in token else token for token in tokens)

    def __str__(self) -> str:
        """The text that the option accepts for this subject."""
        named = (f"{{{part}}}" if place % 2 else part for place, part in enumerate(self.parts))
        return "".join(named)


@dataclass(frozen=True)
class WriteOptions:
    """The options of one writer into a stream; picklable, since it travels to the executors.

    ``None`` means "not given".
    """

    servers: Servers = field(default_factory=Servers)
    stream: str | None = None
    subject: Pattern | None = None
    exactly_once: str = IDS
    write_id: str | None = None
    write_epoch: int = 0
    progress_bucket: str = PROGRESS_BUCKET
    progress_subject: str | None = None
    atomic_rows: int = ATOMIC_ROWS
    on_row_error: str = FAIL
    error_path: str | None = None
    error_subject: str | None = None
    window_rows: int = WINDOW_ROWS
    window_bytes: int = WINDOW_BYTES
    if_behind: str = FAIL_BEHIND
    checkpoint: str | None = None
    """The checkpoint folder of the query that writes."""


def subject_pattern(text: str) -> Pattern:
    """Parse a subject that is the same for all rows, or that has columns in braces."""
    made = Pattern(tuple(_COLUMN.split(text)))
    texts = made.parts[::2]
    if not all(made.columns) or "{" in "".join(texts) or not literal("x".join(texts)):
        raise OptionError(
            "a subject without wildcards, columns in braces, such as orders.{country}.{id}"
        )
    return made


def literal_subject(text: str) -> str:
    """Parse a subject without wildcards."""
    if not literal(text):
        raise OptionError("a subject without wildcards, such as orders.refused")
    return text


def name(text: str) -> str:
    """Parse a name that can stand in a subject: letters, digits, '-' and '_'."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        raise OptionError("a name of 1 to 64 letters, digits, '-' and '_'")
    return text


def _window(text: str) -> int:
    rows = count(text)
    if rows > 2**20:
        raise OptionError("a whole number from 1 to 1048576")
    return rows


def _batch_rows(text: str) -> int:
    rows = count(text)
    if not 2 <= rows <= 2**20:
        raise OptionError("a whole number from 2 to 1048576")
    return rows


def _epoch(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > SEQUENCE_MAX:
        raise OptionError("a whole number from 0 on")
    return int(text)


ERROR_ROWS: tuple[Row, ...] = (
    Row(
        "onRowError",
        "on_row_error",
        one_of(FAIL, SIDE),
        "What a row that cannot be written does: fail the write, or go to a side output.",
    ),
    Row("errorPath", "error_path", text, "Side output: a folder of Parquet files."),
    Row(
        "errorSubject", "error_subject", literal_subject, "Side output: a subject a stream stores."
    ),
)
WRITE_ID_ROW = Row(
    "writeId",
    "write_id",
    name,
    "Name of a batch write: run again under it, it adds only what is missing.",
)
WRITE_EPOCH_ROW = Row(
    "writeEpoch",
    "write_epoch",
    _epoch,
    "Number of a batch write under its writeId, for one of many that follow each other.",
)
PROGRESS_ROW = Row(
    "progressBucket", "progress_bucket", name, "Bucket of the progress records of ids."
)
_WINDOWS = (
    Row("maxInFlight", "window_rows", _window, "Messages of a task that wait for their ack."),
    Row("maxInFlightBytes", "window_bytes", size, "Bytes of a task that wait for their ack."),
)
SINK_ROWS: tuple[Row, ...] = (
    Row(
        "exactlyOnce",
        "exactly_once",
        one_of(IDS, NONE),
        "How a row that is written again is known: by message ids, or not.",
    ),
    WRITE_ID_ROW,
    WRITE_EPOCH_ROW,
    PROGRESS_ROW,
    STREAM_IF_BEHIND,
    *ERROR_ROWS,
    *_WINDOWS,
)
ROWS: tuple[Row, ...] = (
    Row("stream", "stream", stream_name, "The stream that must be the one which stores the rows."),
    *SERVER_ROWS,
    Row("subject", "subject", subject_pattern, "Subject of the rows, columns in braces."),
    Row(
        "exactlyOnce",
        "exactly_once",
        one_of(IDS, BATCH, NONE),
        "How a row that is written again is known: by message ids, by atomic batches, or not.",
    ),
    WRITE_ID_ROW,
    WRITE_EPOCH_ROW,
    PROGRESS_ROW,
    Row(
        "progressSubject",
        "progress_subject",
        literal_subject,
        "First tokens of the subjects of the progress records of batch, in the stream itself.",
    ),
    Row("atomicRows", "atomic_rows", _batch_rows, "Messages the server takes in an atomic batch."),
    STREAM_IF_BEHIND,
    *ERROR_ROWS,
    *_WINDOWS,
)


KAFKA = {
    "kafka.bootstrap.servers": "give the addresses of NATS servers, option servers",
    "topic": "give the subject, option subject, which {column} fills; or a column subject",
}
"""Options of Spark's Kafka sink, in lower case, each with what to give instead."""


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse Spark's options; names in any case.

    Raises :class:`OptionError` for an unknown name, a bad value, or options that contradict one
    another.
    """
    values = parse(ROWS, without_sparks_own(given), format_name="writing jetstream", habits=KAFKA)
    values["checkpoint"] = checkpoint_given(given)
    options = WriteOptions(servers=take_servers(values), **values)  # type: ignore[arg-type]  # each row's parser makes its field's type
    check_once(options)
    return options


def without_sparks_own(given: Mapping[str, str]) -> dict[str, str]:
    """The options without those that Spark adds to every sink."""
    return {key: value for key, value in given.items() if key.lower() not in _SPARKS_OWN}


def check_once(options: WriteOptions) -> None:
    """Check the rules between options; :class:`OptionError` when one is broken."""
    side = options.error_path is not None or options.error_subject is not None
    if options.on_row_error == SIDE and not side:
        raise OptionError("onRowError is side: say where, with errorPath or errorSubject")
    if options.on_row_error == FAIL and side:
        raise OptionError("errorPath and errorSubject are for onRowError=side")
    if options.progress_subject is not None and options.exactly_once != BATCH:
        raise OptionError("progressSubject is for exactlyOnce=batch")
    if options.write_epoch and options.write_id is None:
        raise OptionError("writeEpoch is the number of a write that writeId names")
    if options.write_id is not None and options.exactly_once == NONE:
        raise OptionError("writeId is for exactlyOnce=ids or batch")
