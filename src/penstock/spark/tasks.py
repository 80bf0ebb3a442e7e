"""From ranges to the partitions that Spark hands to executors, and from a partition to rows.

``read`` is called on a pickled copy of a reader, in workers: everything it needs is in the
partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from penstock.core.subjects import matches
from penstock.spark.patterns import EVERYTHING, askable, cover, shortest
from penstock.spark.plan import ReadPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from penstock.spark.lookups import Lookups
    from penstock.spark.options import Options
    from penstock.spark.partitions import Part


@dataclass(frozen=True)
class StreamPartition(InputPartition):
    """A range of one life of a stream, and how to read it.

    ``only`` are filters that the server cannot be asked for: rows of other subjects are left out
    here.
    """

    plan: ReadPlan
    only: tuple[str, ...] = ()


def partitions_of(
    pieces: Sequence[Part],
    options: Options,
    lookups: Lookups,
    subjects: tuple[str, ...] | None = None,
) -> list[InputPartition]:
    """The pieces as partitions; ``subjects`` instead of those of the options where given."""
    if not pieces:
        return []
    asked, only = _filters(options.subjects if subjects is None else subjects, lookups)
    return [
        StreamPartition(
            ReadPlan(
                servers=options.servers,
                stream=piece.stream,
                born=piece.born,
                range=piece.range,
                subjects=asked,
                columns=options.column_names(),
                batch_rows=options.batch_rows,
                transport=options.transport,
                segments=options.segments,
                fail_on_data_loss=options.fail_on_data_loss,
            ),
            only,
        )
        for piece in pieces
    ]


def _filters(
    subjects: tuple[str, ...], lookups: Lookups
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What to ask the server for, and what to leave to :func:`rows_of`."""
    wanted = shortest(subjects)
    if not wanted or wanted == EVERYTHING:
        return (), ()
    if len(wanted) == 1 or askable(wanted, lookups.filters_at_most()):
        return wanted, ()
    covering = (cover(wanted),)
    return (() if covering == EVERYTHING else covering), wanted


class PartitionReader:
    """``read``, which batch and streaming have in common."""

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of a partition as Arrow batches; Spark gives a batch read without partitions
        a None, or a partition of nothing.
        """
        if isinstance(partition, StreamPartition):
            yield from rows_of(partition)


def rows_of(partition: StreamPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a partition; raises what :func:`penstock.spark.ranges.read_range` does."""
    from penstock.spark.ranges import read_range

    plan, only = partition.plan, partition.only
    if not only:
        yield from read_range(plan)
        return
    extra = () if "subject" in plan.columns else ("subject",)
    for batch in read_range(replace(plan, columns=plan.columns + extra)):
        yield _matching(batch, only).select(list(plan.columns))


def _matching(batch: pa.RecordBatch, patterns: tuple[str, ...]) -> pa.RecordBatch:
    """The rows whose subject matches one of the patterns; each subject is looked at once."""
    import pyarrow as pa

    coded = batch.column("subject").dictionary_encode()
    taken = pa.array(
        [
            any(matches(subject, each) for each in patterns)
            for subject in coded.dictionary.to_pylist()
        ],
        pa.bool_(),
    )
    return batch.filter(taken.take(coded.indices))
