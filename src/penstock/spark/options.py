"""The options of ``format("jetstream")``, read once from Spark's strings into one frozen value.

``ROWS`` is the whole truth about an option: its name, how its text is read and what it means. The
parser, the error for an unknown name and the reference page are made from it.

Knows nothing of Spark, of the network or of what a stream holds: positions such as ``latest`` are
resolved in :mod:`penstock.spark.offsets`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_SERVER = "nats://127.0.0.1:4222"
SEQUENCE_MAX = 2**63 - 1

EARLIEST = "earliest"
LATEST = "latest"


class OptionError(ValueError):
    """An option is unknown, missing or has a value that cannot be used. The text says which and
    what would be right.
    """


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
    servers: tuple[str, ...] = (DEFAULT_SERVER,)
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: str | None = None
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
    request_timeout_seconds: float = 10.0
    retry_timeout_seconds: float = 60.0

    def __repr__(self) -> str:
        """Every field but the secrets, so that a plan or an error can be shown."""
        shown = (
            f"{field.name}={'***' if value and field.name in _SECRETS else value!r}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"Options({', '.join(shown)})"


_SECRETS = frozenset({"password", "token"})


class Row(NamedTuple):
    """One option: public name, the field it fills, the reader of its text, what it means."""

    name: str
    field: str
    read: Callable[[str], object]
    meaning: str


def _text(text: str) -> str:
    if not text:
        raise OptionError("a text that is not empty")
    return text


def _stream_name(text: str) -> str:
    if not text or re.search(r"[\s.*>/\\]", text):
        raise OptionError("the name of a stream (no space, '.', '*', '>', '/' or '\\')")
    return text


def _subject(text: str) -> str:
    tokens = text.split(".")
    bad = any(not token or re.search(r"\s", token) for token in tokens) or ">" in tokens[:-1]
    if bad:
        raise OptionError("a subject, wildcards '*' and '>' allowed, such as orders.*.new")
    return text


def _servers(text: str) -> tuple[str, ...]:
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise OptionError(f"one or more addresses with commas between, such as {DEFAULT_SERVER}")
    return servers


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError("true or false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= SEQUENCE_MAX:
        raise OptionError("a whole number of 1 or more")
    return int(text)


_SIZES = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30, "gb": 2**30}


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if not match or match[2] not in _SIZES or int(match[1]) == 0:
        raise OptionError("a size of 1 byte or more, such as 67108864 or 64m")
    return int(match[1]) * _SIZES[match[2]]


_DURATIONS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _duration(text: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    if not match or match[2] not in _DURATIONS or float(match[1]) == 0:
        raise OptionError("a duration, such as 500ms, 30s or 15m")
    return float(match[1]) * _DURATIONS[match[2]]


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
    Row("stream", "stream", _stream_name, "The stream to read. Required."),
    Row("servers", "servers", _servers, "Addresses of the servers, with commas between."),
    Row("user", "user", _text, "User name to connect with."),
    Row("password", "password", _text, "Password to connect with."),
    Row("token", "token", _text, "Token to connect with, instead of a user and a password."),
    Row(
        "creds", "creds", _text, "A .creds file to connect with, on the driver and every executor."
    ),
    Row(
        "subject",
        "subject",
        _subject,
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
        _count,
        "At most so many sequences in one micro-batch.",
    ),
    Row(
        "minOffsetsPerTrigger",
        "min_offsets_per_trigger",
        _count,
        "Wait for so many sequences before a micro-batch.",
    ),
    Row(
        "maxTriggerDelay",
        "max_trigger_delay_seconds",
        _duration,
        "Wait for minOffsetsPerTrigger no longer than this.",
    ),
    Row(
        "maxBytesPerTrigger",
        "max_bytes_per_trigger",
        _size,
        "About so many stored bytes in one micro-batch, reckoned by the mean message.",
    ),
    Row("minPartitions", "min_partitions", _count, "Cut a read into at least so many partitions."),
    Row(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        _count,
        "At most so many sequences in one partition.",
    ),
    Row("includeHeaders", "include_headers", _flag, "Add the column headers."),
    Row(
        "failOnDataLoss",
        "fail_on_data_loss",
        _flag,
        "Fail when messages not read yet are gone; false goes on with what is left.",
    ),
    Row(
        "batchRows",
        "batch_rows",
        _count,
        "Rows in one Arrow batch at most (4 MiB at most in any case).",
    ),
    Row(
        "requestTimeout",
        "request_timeout_seconds",
        _duration,
        "How long one request to the server may take.",
    ),
    Row(
        "retryTimeout",
        "retry_timeout_seconds",
        _duration,
        "How long a read tries to reach a server again after losing it.",
    ),
)
_BY_NAME = {row.name.lower(): row for row in ROWS}


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Read Spark's options; names in any case.

    Raises :class:`OptionError` for an unknown name, a bad value, a missing stream, or options that
    contradict one another.
    """
    values: dict[str, object] = {}
    for name, text in given.items():
        row = _BY_NAME.get(name.lower())
        if row is None:
            known = ", ".join(row.name for row in ROWS)
            raise OptionError(f"jetstream has no option {name!r}. The options are: {known}")
        try:
            values[row.field] = row.read(str(text))
        except OptionError as wanted:
            shown = "***" if row.field in _SECRETS else repr(text)
            raise OptionError(f"option {row.name} is {shown}, but must be {wanted}") from None
    if "stream" not in values:
        raise OptionError('option stream is missing: .option("stream", "ORDERS")')
    options = Options(**values)  # type: ignore[arg-type]  # each row's reader makes its field's type
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
    if options.token is not None and options.user is not None:
        raise OptionError("give either token, or user and password")
    if options.password is not None and options.user is None:
        raise OptionError("password is given without user")
    low, high = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if low is not None and high is not None and low > high:
        raise OptionError(
            f"minOffsetsPerTrigger ({low}) is more than maxOffsetsPerTrigger ({high})"
        )
