"""The options of reading ``format("jetstream_kv")``: Spark's strings, parsed into one frozen value.

``ROWS`` defines each option: its name, how its text is parsed and what it means. The parser, the
error for an unknown name and the reference page are made from it.

Does not depend on Spark, the network or the contents of a bucket.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.core.protocol.subjects import collide, subset
from pelton.spark.parsing import (
    SEQUENCE_MAX,
    OptionError,
    Row,
    count,
    flag,
    missing,
    parse,
    subject,
)
from pelton.spark.servers import SERVER_ROWS, Servers, take_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST = "earliest"
LATEST = "latest"
_REVISIONS = f"{EARLIEST}, {LATEST}, or a revision such as 41"


@dataclass(frozen=True)
class KvOptions:
    """The options of a reader of one bucket; picklable, since it travels inside partitions.

    ``starting`` and ``ending`` are a word, a revision, or None for "not given".
    """

    bucket: str
    servers: Servers = field(default_factory=Servers)
    keys: tuple[str, ...] = (">",)
    deletes: bool = False
    starting: str | int | None = None
    ending: int | None = None
    max_offsets_per_trigger: int | None = None
    max_records_per_partition: int = 100_000
    fail_on_data_loss: bool = True
    batch_rows: int = 8192


def bucket_name(text: str) -> str:
    """Parse the name of a bucket."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise OptionError("the name of a bucket (letters, digits, '-' and '_')")
    return text


def key_patterns(text: str) -> tuple[str, ...]:
    """Parse patterns of keys with commas between; leaves out patterns that another one covers."""
    patterns = [part.strip() for part in text.split(",") if part.strip()]
    try:
        for pattern in patterns:
            subject(pattern)
    except OptionError:
        patterns = []
    if not patterns:
        raise OptionError("keys with commas between, wildcards '*' and '>' allowed, such as a.>,b")
    unique = list(dict.fromkeys(patterns))
    return tuple(
        pattern
        for pattern in unique
        if not any(other != pattern and subset(pattern, other) for other in unique)
    )


def overlapping(patterns: tuple[str, ...]) -> bool:
    """Whether a key may match two of the patterns; servers refuse such filters in one consumer."""
    return any(
        collide(pattern, other)
        for index, pattern in enumerate(patterns)
        for other in patterns[index + 1 :]
    )


def _start(text: str) -> str | int:
    word = text.strip().lower()
    return word if word in (EARLIEST, LATEST) else _revision(word)


def _end(text: str) -> int | None:
    word = text.strip().lower()
    return None if word == LATEST else _revision(word, f"{LATEST} or a revision such as 41")


def _revision(word: str, wanted: str = _REVISIONS) -> int:
    if not word.isascii() or not word.isdigit() or not 1 <= int(word) <= SEQUENCE_MAX:
        raise OptionError(wanted)
    return int(word)


ROWS: tuple[Row, ...] = (
    Row("bucket", "bucket", bucket_name, "The bucket to read. Required."),
    *SERVER_ROWS,
    Row("keys", "keys", key_patterns, "Read only keys that match; several with commas between."),
    Row("deletes", "deletes", flag, "A row also for keys whose last operation is a delete."),
    Row("startingOffsets", "starting", _start, "Where a change feed begins. Streaming only."),
    Row("endingOffsets", "ending", _end, "The revision whose state is read. Batch only."),
    Row(
        "maxOffsetsPerTrigger",
        "max_offsets_per_trigger",
        count,
        "At most so many revisions of a change feed in one micro-batch.",
    ),
    Row(
        "maxRecordsPerPartition",
        "max_records_per_partition",
        count,
        "At most so many revisions of a change feed in one partition.",
    ),
    Row(
        "failOnDataLoss",
        "fail_on_data_loss",
        flag,
        "Fail when what was asked for cannot be told any more; false goes on with what is there.",
    ),
    Row(
        "batchRows",
        "batch_rows",
        count,
        "Rows in one Arrow batch at most (4 MiB at most in any case).",
    ),
)


def parse_kv_options(given: Mapping[str, str], *, streaming: bool) -> KvOptions:
    """Parse Spark's options; names in any case.

    Raises :class:`OptionError` for an unknown name, a bad value, a missing bucket, or options that
    do not fit the kind of read.
    """
    values = parse(ROWS, given, format_name="jetstream_kv")
    if "bucket" not in values:
        raise missing("bucket", "devices", given)
    if streaming and "ending" in values:
        raise OptionError("endingOffsets is for batch reads; a change feed has no end")
    if not streaming and "starting" in values:
        raise OptionError("startingOffsets is for change feeds; a batch read is the state")
    return KvOptions(servers=take_servers(values), **values)  # type: ignore[arg-type]  # each row's reader makes its field's type
