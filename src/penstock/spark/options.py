"""The options of ``format("jetstream")``, read once from Spark's strings into one frozen value.

``ROWS`` is the whole truth about an option: its name, how its text is read and what it means. The
parser, the error for an unknown name and the reference page are made from it.

Knows nothing of Spark, of the network or of what a stream holds: positions such as ``latest`` are
resolved in :mod:`penstock.spark.offsets`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.spark.parsing import (
    SEQUENCE_MAX,
    OptionError,
    Row,
    consumer_name,
    count,
    duration,
    flag,
    parse,
    size,
    stream_name,
    subject,
)
from penstock.spark.servers import SERVER_ROWS, Servers, take_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True)
class Position:
    """A place in a stream as a user names it: a word, a sequence, or a time; exactly one of the
    three is set.
    """

    word: str | None = None
    sequence: int | None = None
    time: datetime | None = None

    def __str__(self) -> str:
        """The text the option accepts for this position."""
        if self.word is not None:
            return self.word
        return str(self.sequence) if self.time is None else self.time.isoformat()


@dataclass(frozen=True)
class Options:
    """What a reader of one stream was asked to do.

    Picklable (it travels to the executors inside every partition). ``None`` means "no limit" or
    "not given".
    """

    stream: str
    servers: Servers = field(default_factory=Servers)
    subject: str | None = None
    starting_offsets: Position | None = None
    ending_offsets: Position | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_seconds: float = 900.0
    max_bytes_per_trigger: int | None = None
    min_partitions: int = 1
    max_records_per_partition: int = 100_000
    include_headers: bool = False
    fail_on_data_loss: bool = True
    batch_rows: int = 8192
    consumer: str | None = None


def _time(text: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


def _position(text: str) -> Position:
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return Position(word=word)
    # A bare number is a sequence, never the year or the basic form of a date.
    if word.isascii() and word.isdigit():
        if 1 <= int(word) <= SEQUENCE_MAX:
            return Position(sequence=int(word))
    elif time := _time(text.strip()):
        return Position(time=time)
    raise OptionError(
        "earliest, latest, a sequence such as 1, or a time such as 2026-10-16T23:04:01Z"
    )


ROWS: tuple[Row, ...] = (
    Row("stream", "stream", stream_name, "The stream to read. Required."),
    *SERVER_ROWS,
    Row(
        "subject",
        "subject",
        subject,
        "Read only messages on subjects that match; wildcards allowed.",
    ),
    Row(
        "startingOffsets",
        "starting_offsets",
        _position,
        "First message to read. A query that resumes from its checkpoint ignores it.",
    ),
    Row(
        "endingOffsets",
        "ending_offsets",
        _position,
        "Last message to read, itself included; a time is excluded. Batch only.",
    ),
    Row(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        count,
        "At most so many sequences in one micro-batch.",
    ),
    Row(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        count,
        "Wait for so many sequences before a micro-batch.",
    ),
    Row(
        "maxTriggerDelay",
        "max_trigger_delay_seconds",
        duration,
        "Wait for minOffsetsPerTrigger no longer than this.",
    ),
    Row(
        "maxBytesPerTrigger",
        "max_bytes_per_trigger",
        size,
        "About so many stored bytes in one micro-batch, reckoned by the mean message.",
    ),
    Row("minPartitions", "min_partitions", count, "Cut a read into at least so many partitions."),
    Row(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        count,
        "At most so many sequences in one partition.",
    ),
    Row("includeHeaders", "include_headers", flag, "Add the column headers."),
    Row(
        "failOnDataLoss",
        "fail_on_data_loss",
        flag,
        "Fail when messages not read yet are gone; false goes on with what is left.",
    ),
    Row(
        "batchRows",
        "batch_rows",
        count,
        "Rows in one Arrow batch at most (4 MiB at most in any case).",
    ),
    Row(
        "consumer",
        "consumer",
        consumer_name,
        "A durable consumer that follows what the query has committed. Streaming only.",
    ),
)


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Read Spark's options; names in any case.

    Raises :class:`OptionError` for an unknown name, a bad value, a missing stream, or options that
    contradict one another.
    """
    values = parse(ROWS, given, format_name="jetstream")
    if "stream" not in values:
        raise OptionError('option stream is missing: .option("stream", "ORDERS")')
    options = Options(servers=take_servers(values), **values)  # type: ignore[arg-type]  # each row's reader makes its field's type
    _check_together(options, streaming=streaming)
    return options


def _check_together(options: Options, *, streaming: bool) -> None:
    ending = options.ending_offsets
    if ending is not None and streaming:
        raise OptionError("endingOffsets is for batch reads; a stream has no end")
    if ending is not None and ending.word == EARLIEST:
        raise OptionError("endingOffsets cannot be earliest; use latest, a sequence or a time")
    if options.starting_offsets == Position(word=LATEST) and not streaming:
        raise OptionError("startingOffsets cannot be latest in a batch read; it would be empty")
    if options.consumer is not None and not streaming:
        raise OptionError("consumer is for streaming reads; a batch read commits nothing")
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            f"minOffsetsPerTrigger ({low}) is more than maxOffsetsPerTrigger ({high})"
        )
