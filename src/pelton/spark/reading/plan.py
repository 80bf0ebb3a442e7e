"""The plan of reading one partition, made on the driver for
:func:`pelton.spark.reading.ranges.read_range` on an executor.

The plan has everything that decides which rows the partition gives, so that reading it again, on
another machine or later, gives the same rows. Does not depend on Spark, and does no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pelton.spark.filters import Filter
    from pelton.spark.reading.offsets import Range
    from pelton.spark.servers import Servers

COLUMNS: dict[str, str] = {
    "stream": "string",
    "seq": "bigint",
    "subject": "string",
    "ts": "timestamp",
    "headers": "map<string, array<string>>",
    "data": "binary",
    "ts_ns": "bigint",
    "size": "bigint",
    "born": "string",
    "reply": "string",
}
"""The columns of a read with their SQL types, in the order of the rows when no column is named.

``ts`` is the time at which the server stored the message, cut to microseconds; ``ts_ns`` is the same
in nanoseconds since 1970. ``headers`` is null for a message without headers. ``size`` is the bytes of
the headers and the payload together. ``born`` is the time at which the stream was created. ``reply``
is the ack subject of a message that a consumer delivered; null for other transports.
"""

DEFAULT_COLUMNS = ("stream", "seq", "subject", "ts", "data")

AUTO = "auto"
CONSUMER = "consumer"
DIRECT = "direct"
SEGMENTS = "segments"
GET = "get"
TRANSPORTS = (AUTO, CONSUMER, DIRECT, GET, SEGMENTS)
"""The ways to read: an own consumer, batches of direct gets, a request for each message, the files
of a Pelton store; ``AUTO`` is the best that server and stream allow.
"""

BATCH_ROWS = 8192


class UnfitError(Exception):
    """A transport cannot read (on) here, but another one can; the text, if any, is for the user."""


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """One partition of a read; picklable, since it travels to an executor.

    ``born`` is the life of the stream that ``range`` was planned for. ``subjects`` are the filters, none
    for every subject. ``columns`` are names of :data:`COLUMNS` in the order of the rows. ``segments`` is
    the folder of a Pelton store, or of this stream in it, on the executor. ``empty_below`` is a
    sequence below which the range held nothing when it was planned, so nothing can be lost there.
    Messages stored before ``not_before_ns``, or at ``not_after_ns`` or later, are left out; 0 stands for
    no limit. ``where`` keeps some of the rows.
    """

    servers: Servers
    stream: str
    born: str
    range: Range
    subjects: tuple[str, ...] = ()
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    batch_rows: int = BATCH_ROWS
    transport: str = AUTO
    segments: str | None = None
    fail_on_data_loss: bool = True
    not_before_ns: int = 0
    not_after_ns: int = 0
    empty_below: int = 0
    where: Filter | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns to read: those of the rows, and those that ``where`` asks about."""
        asked = () if self.where is None else self.where.columns
        return tuple(dict.fromkeys([*self.columns, *asked]))

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown column or transport, or a batch without rows or columns."""
        if not self.columns:
            raise ValueError(f"a row has at least one column: {', '.join(COLUMNS)}")
        for name in self.columns:
            if name not in COLUMNS:
                raise ValueError(f"there is no column {name}: {', '.join(COLUMNS)}")
        if self.transport not in TRANSPORTS:
            raise ValueError(f"there is no transport {self.transport}: {', '.join(TRANSPORTS)}")
        if self.transport == SEGMENTS and self.segments is None:
            raise ValueError("reading from segments needs the folder they are in")
        if self.batch_rows < 1:
            raise ValueError(f"a batch has at least one row, not {self.batch_rows}")
