"""The partitions that Spark hands to executors, made from ranges, and their rows.

Workers call ``read`` on a pickled copy of a reader: the partition holds everything it needs.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from pelton.spark.reading.partitions import cut, packed
from pelton.spark.reading.patterns import EVERYTHING, shortest
from pelton.spark.reading.plan import ReadPlan
from pelton.spark.reading.schema import filter_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from pelton.spark.reading.options import Options
    from pelton.spark.reading.partitions import Part


_settled = False


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """Ranges of streams that are read one after the other, each with its plan."""

    plans: tuple[ReadPlan, ...]


def partitions_of(
    parts: Sequence[Part], options: Options, subjects: tuple[str, ...]
) -> list[InputPartition]:
    """The ranges of the streams as partitions; ``filters`` are subject filters, none for all."""
    filters = shortest(subjects)
    if filters == EVERYTHING:
        filters = ()
    return [
        StreamPartition(tuple(plan_of(piece, options, filters) for piece in pieces))
        for pieces in packed(cut(parts, options), options)
    ]


def plan_of(piece: Part, options: Options, filters: tuple[str, ...]) -> ReadPlan:
    """The plan to read a piece."""
    return ReadPlan(
        servers=options.servers,
        stream=piece.stream,
        born=piece.born,
        range=piece.range,
        subjects=filters,
        columns=options.column_names(),
        batch_rows=options.batch_rows,
        transport=options.transport,
        segments=options.segments,
        fail_on_data_loss=options.fail_on_data_loss,
        empty_below=piece.empty_below,
        where=filter_of(options),
    )


class PartitionReader:
    """The method ``read``, shared by batch and streaming readers."""

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of a partition as Arrow batches.

        For a batch read without partitions Spark gives None, or an empty partition.
        """
        from pelton.spark.reading.ranges import read_range

        if isinstance(partition, StreamPartition):
            for plan in partition.plans:
                yield from read_range(plan)
            _settle()


def _settle() -> None:
    """Exempt all modules that a worker of Spark has loaded by now from garbage collection.

    Spark's workers collect garbage after each task; with all modules loaded that takes as long as
    reading ten thousand messages.
    """
    global _settled
    if not _settled and TaskContext.get() is not None:
        _settled = True
        gc.collect()
        gc.freeze()
