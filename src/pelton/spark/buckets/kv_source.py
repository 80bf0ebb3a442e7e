"""The classes that Spark calls to read ``format("jetstream_kv")``: a bucket's state or its changes.

An offset of a change feed is the last revision read, of one life of the bucket::

    {"bucket": "devices", "revision": 41, "born": "2026-10-16T23:04:01.123456789Z", "state": false}

With ``state``, the batch after the offset begins with the state of the bucket instead of its
history; only the first offset of a feed that begins at ``earliest`` has it.

This module makes all decisions. :mod:`pelton.spark.buckets.kv_bucket` sends all requests, and
:mod:`pelton.spark.buckets.kv_reading` turns messages into rows.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from pelton.spark.asking import Asking
from pelton.spark.buckets.kv_bucket import last_change, look
from pelton.spark.buckets.kv_options import EARLIEST, LATEST, parse_kv_options
from pelton.spark.older import SupportsTriggerAvailableNow, for_this_spark
from pelton.spark.parsing import OptionError
from pelton.spark.reading.offsets import DataLossError, Range
from pelton.spark.writing.sink import KvSink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from pelton.spark.buckets.kv_bucket import Bucket
    from pelton.spark.buckets.kv_options import KvOptions

# How long latestOffset waits for a change before it returns.
_POLL_SECONDS = 0.25
_POLL_EVERY_SECONDS = 0.05

COLUMNS = "key string, value binary, revision long, created timestamp, operation string"


@dataclass(frozen=True)
class KvOffset:
    """The last revision read of one life of a bucket."""

    bucket: str
    revision: int
    born: str
    state: bool = False

    def to_json(self) -> dict[str, Any]:
        """The form that Spark keeps in the checkpoint: JSON primitives only."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KvOffset:
        """Parse :meth:`to_json`'s form; ValueError for a checkpoint of another source."""
        try:
            revision = int(value["revision"])
            return cls(str(value["bucket"]), revision, str(value["born"]), bool(value["state"]))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{value!r} is not an offset of the jetstream_kv source") from None


@dataclass(frozen=True)
class KvPartition(InputPartition):
    """A state up to ``range.last``, or the changes in a range, of one life of a bucket.

    ``gone`` names a member of :class:`pelton.spark.buckets.kv_reading.Gone`; None for changes.
    """

    options: KvOptions
    bucket: Bucket
    range: Range
    gone: str | None = None


class JetStreamKv(KvSink):
    """``spark.read`` and ``spark.readStream`` ``.format("jetstream_kv")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "jetstream_kv"

    def schema(self) -> str:
        """The columns of a read."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the state of a bucket."""
        return KvReader(parse_kv_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """A reader of the changes of a bucket."""
        return for_this_spark(KvStreamReader(parse_kv_options(self.options, streaming=True)))


class _PartitionReader:
    """The method ``read``, shared by batch and streaming readers."""

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition as Arrow batches.

        For a batch read without partitions Spark gives None.
        """
        from pelton.spark.buckets.kv_reading import Gone, KvPlan, read_changes, read_state

        if not isinstance(partition, KvPartition):
            return
        plan = KvPlan(partition.options, partition.bucket)
        if partition.gone is None:
            yield from read_changes(plan, partition.range)
        else:
            yield from read_state(plan, partition.range.last, Gone[partition.gone])


def _state_partitions(
    options: KvOptions, bucket: Bucket, bound: int, gone: str
) -> list[KvPartition]:
    from pelton.spark.buckets.kv_reading import parts_of

    return [KvPartition(part, bucket, Range(1, bound), gone) for part in parts_of(options)]


class KvReader(_PartitionReader, DataSourceReader):
    """A batch read: the state at a revision, which is fixed when Spark plans it."""

    def __init__(self, options: KvOptions) -> None:
        """Sends no request."""
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each part of the read, or none when the bucket never held anything."""
        options = self._options
        bucket = look(Asking(options.servers), options.bucket)
        bound, gone = bucket.last, "NEWER"
        if options.ending is not None:
            gone = "FAIL" if options.fail_on_data_loss else "LEAVE"
            if options.ending > bucket.last:
                raise OptionError(
                    f"endingOffsets is {options.ending}, but bucket {bucket.name} is at revision"
                    f" {bucket.last}"
                )
            bound = options.ending
        return _state_partitions(options, bucket, bound, gone) if bound else []


class KvStreamReader(_PartitionReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A change feed: micro-batches from one revision to the next."""

    def __init__(self, options: KvOptions) -> None:
        """Sends no request."""
        self._options = options
        self._asking = Asking(options.servers)
        self._bound: int | None = None
        self._available_now = False
        self._seen: tuple[Bucket, int] | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of the run: later changes are for the next run."""
        self._available_now = True
        self._bound = self._look()[1]

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """No limit from Spark: :meth:`latestOffset` applies the limits of the options."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The offset at which a query without a checkpoint begins."""
        start = self._options.starting or EARLIEST
        bucket, _ = self._look()
        if start == EARLIEST:
            return KvOffset(bucket.name, 0, bucket.born, state=True).to_json()
        if start == LATEST:
            return KvOffset(bucket.name, bucket.last, bucket.born).to_json()
        revision = int(start)
        if revision > bucket.last + 1:
            raise OptionError(
                f"startingOffsets is {revision}, but bucket {bucket.name} is at revision"
                f" {bucket.last}"
            )
        return KvOffset(bucket.name, revision - 1, bucket.born).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """The end of the next micro-batch; ``start`` itself when there is nothing to do.

        Waits a moment for changes when there are none.
        """
        begin = KvOffset.from_json(start)
        deadline = time.monotonic() + (0.0 if self._available_now else _POLL_SECONDS)
        while True:
            end = self._next_end(begin)
            left = deadline - time.monotonic()
            if end != begin or left <= 0:
                return end.to_json()
            time.sleep(min(_POLL_EVERY_SECONDS, left))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """The last revision at the last check; Spark shows it in the query's progress."""
        if self._seen is None:
            return None
        bucket, last = self._seen
        return KvOffset(bucket.name, last, bucket.born).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The state or the changes between two offsets; the same for the same offsets."""
        begin, goal = KvOffset.from_json(start), KvOffset.from_json(end)
        bucket, _ = self._look()
        begin = self._continue(begin, bucket)
        if goal.born != bucket.born or goal.revision <= begin.revision:
            return []  # planned for a bucket that is gone, which _continue reported
        if begin.state:
            return _state_partitions(self._options, bucket, goal.revision, "LEAVE")
        most = self._options.max_records_per_partition
        return [
            KvPartition(self._options, bucket, Range(first, min(first + most - 1, goal.revision)))
            for first in range(begin.revision + 1, goal.revision + 1, most)
        ]

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: the server keeps no state for a feed."""

    def stop(self) -> None:
        """Nothing to release: the process ends."""

    def _look(self) -> tuple[Bucket, int]:
        """The bucket, and its last change that the keys match; requests the latter only after a
        change.
        """
        bucket = look(self._asking, self._options.bucket)
        if self._seen is None or bucket != self._seen[0]:
            self._seen = bucket, last_change(self._asking, bucket, self._options.keys)
        return self._seen

    def _next_end(self, begin: KvOffset) -> KvOffset:
        bucket, last = self._look()
        origin = self._continue(begin, bucket)
        if self._bound is not None:
            last = min(last, self._bound)
        limit = self._options.max_offsets_per_trigger
        if limit is not None and not origin.state:
            last = min(last, origin.revision + limit)
        if last <= origin.revision:
            return begin if origin == begin else origin
        return KvOffset(bucket.name, last, bucket.born)

    def _continue(self, begin: KvOffset, bucket: Bucket) -> KvOffset:
        """``begin``, or the offset to go on from when the bucket is another one; raises
        DataLossError.
        """
        if begin.bucket != bucket.name:
            raise ValueError(
                f"the checkpoint is of bucket {begin.bucket}, not {bucket.name}: use another one"
            )
        if begin.born != bucket.born:
            problem = f"was deleted and created again (at {bucket.born}, before that {begin.born})"
            origin = KvOffset(bucket.name, 0, bucket.born, state=True)
        elif begin.revision > bucket.last:
            problem = f"is at revision {bucket.last}, before the last one read, {begin.revision}"
            origin = KvOffset(bucket.name, bucket.last, bucket.born)
        else:
            return begin
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"bucket {bucket.name} {problem}."
                " To continue with the values that the bucket has, set failOnDataLoss to false"
            )
        warnings.warn(f"bucket {bucket.name} {problem}; the query goes on", stacklevel=2)
        return origin
