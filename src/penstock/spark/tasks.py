"""From ranges to the partitions that Spark hands to executors, and from a partition to rows.

``read`` is called on a pickled copy of a reader, in workers: everything it needs is in the
partition.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from penstock.spark.patterns import EVERYTHING, shortest
from penstock.spark.plan import ReadPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from penstock.spark.options import Options
    from penstock.spark.partitions import Part


_settled = False


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """A range of one life of a stream, and how to read it."""

    plan: ReadPlan


def partitions_of(
    pieces: Iterable[Part], options: Options, subjects: tuple[str, ...]
) -> list[InputPartition]:
    """The pieces as partitions, with these filters of subjects, none for all."""
    filters = shortest(subjects)
    return [
        StreamPartition(
            ReadPlan(
                servers=options.servers,
                stream=piece.stream,
                born=piece.born,
                range=piece.range,
                subjects=() if filters == EVERYTHING else filters,
                columns=options.column_names(),
                batch_rows=options.batch_rows,
                transport=options.transport,
                segments=options.segments,
                fail_on_data_loss=options.fail_on_data_loss,
            )
        )
        for piece in pieces
    ]


class PartitionReader:
    """``read``, which batch and streaming have in common."""

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of a partition as Arrow batches; Spark gives a batch read without partitions
        a None, or a partition of nothing.
        """
        from penstock.spark.ranges import read_range

        if isinstance(partition, StreamPartition):
            yield from read_range(partition.plan)
            _settle()


def _settle() -> None:
    """Tell the collector that what a worker of Spark has loaded by now stays.

    Spark's workers collect garbage after each task; with all modules loaded that takes as long as
    reading ten thousand messages.
    """
    global _settled
    if not _settled and TaskContext.get() is not None:
        _settled = True
        gc.collect()
        gc.freeze()
