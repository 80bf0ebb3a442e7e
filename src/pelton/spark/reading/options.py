"""The options of reading ``format("jetstream")``: Spark's strings, parsed into one frozen value.

``ROWS`` defines each option: its name, how its text is parsed and what it means. The parser, the
error for an unknown name and the reference page are made from it.

Does not depend on Spark, the network or the contents of a stream:
:mod:`pelton.spark.reading.offsets` resolves positions such as ``latest``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.spark import parsing
from pelton.spark.conditions import parse_condition
from pelton.spark.parsing import (
    OptionError,
    Row,
    count,
    duration,
    flag,
    missing,
    no_pushdown,
    parse,
    size,
)
from pelton.spark.reading.plan import (
    AUTO,
    BATCH_ROWS,
    COLUMNS,
    DEFAULT_COLUMNS,
    SEGMENTS,
    TRANSPORTS,
)
from pelton.spark.reading.positions import EARLIEST, LATEST, Positions, positions
from pelton.spark.servers import SERVER_ROWS, Servers, take_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.spark.conditions import Term

METADATA = ("ts_ns", "size", "born", "reply")
"""The columns that the option ``metadata`` adds."""


@dataclass(frozen=True)
class Options:
    """The options of one reader: it reads ``streams``, or those that match ``stream_pattern``.

    Picklable, since it travels to the executors. ``None`` means "no limit" or "not given".
    ``subjects`` are filters; none means every subject.
    """

    streams: tuple[str, ...] = ()
    stream_pattern: str | None = None
    servers: Servers = field(default_factory=Servers)
    subjects: tuple[str, ...] = ()
    starting_offsets: Positions = field(default_factory=Positions)
    ending_offsets: Positions | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_seconds: float = 900.0
    max_bytes_per_trigger: int | None = None
    min_partitions: int = 1
    max_records_per_partition: int = 100_000
    max_bytes_per_partition: int | None = None
    include_headers: bool = False
    metadata: bool = False
    columns: tuple[str, ...] | None = None
    where: tuple[Term, ...] = ()
    fail_on_data_loss: bool = True
    batch_rows: int = BATCH_ROWS
    transport: str = AUTO
    segments: str | None = None
    consumer: str | None = None

    def column_names(self) -> tuple[str, ...]:
        """The columns of a row, in order."""
        if self.columns is not None:
            return self.columns
        asked = {
            *DEFAULT_COLUMNS,
            *(["headers"] if self.include_headers else []),
            *(METADATA if self.metadata else []),
        }
        return tuple(name for name in COLUMNS if name in asked)

    def selects(self, stream: str) -> bool:
        """Whether the options select a stream of this name."""
        if self.stream_pattern is None:
            return stream in self.streams
        return re.fullmatch(self.stream_pattern, stream) is not None

    @property
    def one_stream(self) -> bool:
        """Whether exactly one stream is read, whatever streams the server has."""
        return self.stream_pattern is None and len(self.streams) == 1

    def described(self) -> str:
        """The streams as text, for errors."""
        if self.stream_pattern is not None:
            return f"streams that match {self.stream_pattern}"
        word = "stream" if self.one_stream else "streams"
        return f"{word} {', '.join(self.streams)}"


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _streams(text: str) -> tuple[str, ...]:
    try:
        names = tuple(parsing.stream_name(name) for name in _list(text))
    except OptionError as wanted:
        raise OptionError(f"{wanted}, or several with commas between") from None
    if len(set(names)) != len(names):
        raise OptionError("names of streams, each of them once")
    return names


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionError(f"a regular expression such as ORDERS_.* ({error})") from None
    return parsing.text(text)


def _subjects(text: str) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(parsing.subject(subject) for subject in _list(text)))
    except OptionError as wanted:
        raise OptionError(f"{wanted}, or several with commas between") from None


def _columns(text: str) -> tuple[str, ...]:
    names = _list(text)
    if len(set(names)) != len(names) or not set(names) <= COLUMNS.keys():
        raise OptionError(f"names of columns with commas between, of: {', '.join(COLUMNS)}")
    return names


def _transport(text: str) -> str:
    if text.lower() not in TRANSPORTS:
        raise OptionError(", ".join(TRANSPORTS[:-1]) + " or " + TRANSPORTS[-1])
    return text.lower()


ROWS: tuple[Row, ...] = (
    Row("stream", "streams", _streams, "The stream to read, or several with commas between."),
    Row(
        "streamPattern",
        "stream_pattern",
        _pattern,
        "Read all streams whose whole name matches this regular expression, instead of stream.",
    ),
    *SERVER_ROWS,
    Row(
        "subject",
        "subjects",
        _subjects,
        "Read only messages on subjects that match one of these, with commas between; wildcards"
        " allowed.",
    ),
    Row(
        "startingOffsets",
        "starting_offsets",
        positions,
        "First message to read. A query that resumes from its checkpoint ignores it.",
    ),
    Row(
        "endingOffsets",
        "ending_offsets",
        positions,
        "Last message to read, itself included; a time is excluded. Batch and AvailableNow only.",
    ),
    Row(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        count,
        "At most so many sequences in one micro-batch, shared fairly by the streams.",
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
    Row(
        "maxBytesPerPartition",
        "max_bytes_per_partition",
        size,
        "About so many stored bytes in one partition, reckoned by the mean message.",
    ),
    Row("includeHeaders", "include_headers", flag, "Add the column headers."),
    Row("metadata", "metadata", flag, f"Add the columns {', '.join(METADATA)}."),
    Row("columns", "columns", _columns, "Only these columns, in this order, commas between."),
    Row(
        "where",
        "where",
        parse_condition,
        "Only rows that meet this: seq >= 41 and subject = 'orders.eu'. Batch only.",
    ),
    Row(
        "pushdown",
        "pushdown",
        no_pushdown,
        "false: Spark would give later queries of a DataFrame what the first one's where() left.",
    ),
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
    Row("transport", "transport", _transport, "How messages come: auto, or one way only."),
    Row("segments", "segments", parsing.text, "Folder of a Pelton store, as executors see it."),
    Row(
        "consumer",
        "consumer",
        parsing.consumer_name,
        "A durable consumer that follows what the query has committed. Streaming only.",
    ),
)


_TIME = "a time goes into startingOffsets itself, such as 2026-10-16T23:04:01Z"
_TIME_AT_END = "a time goes into endingOffsets itself, such as 2026-10-16T23:04:01Z"
_STREAM = "give the name of the stream, option stream"
_CONSUMER = "name a durable consumer for the query, option consumer"
KAFKA = {
    "kafka.bootstrap.servers": "give the addresses of NATS servers, option servers",
    "subscribe": _STREAM + "; option subject filters its messages",
    "topic": _STREAM,
    "assign": _STREAM + "; a stream has no partitions",
    "subscribepattern": "give a regular expression for names of streams, option streamPattern",
    "kafka.group.id": _CONSUMER,
    "groupidprefix": _CONSUMER,
    "startingtimestamp": _TIME,
    "startingoffsetsbytimestamp": _TIME,
    "startingoffsetsbytimestampstrategy": _TIME,
    "endingtimestamp": _TIME_AT_END,
    "endingoffsetsbytimestamp": _TIME_AT_END,
    "kafkaconsumer.polltimeoutms": "option requestTimeout is how long an answer may take",
}
"""Options of Spark's Kafka source, in lower case, each with what to give instead."""


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Parse Spark's options; names in any case.

    Raises :class:`OptionError` for an unknown name, a bad value, a missing stream, or options that
    contradict one another.
    """
    values = parse(ROWS, given, format_name="jetstream", habits=KAFKA)
    values.pop("pushdown", None)
    if "streams" not in values and "stream_pattern" not in values:
        raise missing("stream", "ORDERS", given)
    options = Options(servers=take_servers(values), **values)  # type: ignore[arg-type]  # each row's reader makes its field's type
    _check_together(options, streaming=streaming)
    _check_positions(options, streaming=streaming)
    return options


def _check_together(options: Options, *, streaming: bool) -> None:
    if options.consumer is not None and not streaming:
        raise OptionError("consumer is for streaming reads; a batch read commits nothing")
    if options.streams and options.stream_pattern is not None:
        raise OptionError("give either stream or streamPattern")
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            f"minOffsetsPerTrigger ({low}) is more than maxOffsetsPerTrigger ({high})"
        )
    if options.transport == SEGMENTS and options.segments is None:
        raise OptionError("transport is segments, but option segments does not say where they are")


def _check_positions(options: Options, *, streaming: bool) -> None:
    for name, given in (
        ("startingOffsets", options.starting_offsets),
        ("endingOffsets", options.ending_offsets),
    ):
        for stream in () if given is None else given.streams:
            if not options.selects(stream):
                raise OptionError(
                    f"{name} is for {stream}, but the read is of {options.described()}"
                )
    if options.ending_offsets is not None and EARLIEST in options.ending_offsets.words():
        raise OptionError("endingOffsets cannot be earliest; use latest, a sequence or a time")
    if not streaming and LATEST in options.starting_offsets.words():
        raise OptionError("startingOffsets cannot be latest in a batch read; it would be empty")
