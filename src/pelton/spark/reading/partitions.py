"""Cut the ranges of a read into partitions; as plain functions.

Each partition is a task, which costs Spark some ten milliseconds even when it reads little. So when
many streams have few messages each, as with a pattern, a partition takes pieces of several streams.

Does not depend on Spark, and does no I/O.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from pelton.spark.reading.offsets import Range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.spark.reading.options import Options


FEW = 16
"""Up to this number of pieces, each piece is a partition."""


@dataclass(frozen=True)
class Part:
    """A range of one life of a stream.

    ``mean_bytes`` is the mean size of its messages. Below ``empty_below``, where known, there are none.
    """

    stream: str
    born: str
    range: Range
    mean_bytes: int | None = None
    empty_below: int = 0


def cut(parts: Sequence[Part], options: Options) -> list[Part]:
    """Cut each part into as few pieces as the options allow, of nearly equal length, in order.

    Every sequence is in exactly one piece; an empty part gives none. maxRecordsPerPartition and
    maxBytesPerPartition set the number of pieces; for minPartitions the longest ones are cut further.
    """
    parts = [part for part in parts if part.range]
    counts = [-(-len(part.range) // _longest(part, options)) for part in parts]
    missing = options.min_partitions - sum(counts)
    lengths = [len(part.range) for part in parts]
    heap = [(-lengths[place] / counts[place], place) for place in range(len(parts))]
    heapq.heapify(heap)
    while missing > 0 and heap:
        _, place = heapq.heappop(heap)
        if counts[place] < lengths[place]:
            counts[place] += 1
            missing -= 1
            heapq.heappush(heap, (-lengths[place] / counts[place], place))
    return [
        piece for part, count in zip(parts, counts, strict=True) for piece in _pieces(part, count)
    ]


def _longest(part: Part, options: Options) -> int:
    longest = options.max_records_per_partition
    if options.max_bytes_per_partition is not None and part.mean_bytes is not None:
        longest = min(longest, max(1, options.max_bytes_per_partition // part.mean_bytes))
    return longest


def _pieces(part: Part, count: int) -> list[Part]:
    whole, length = part.range, len(part.range)
    bounds = [whole.first + length * index // count for index in range(count + 1)]
    return [replace(part, range=Range(low, high - 1)) for low, high in pairwise(bounds)]


def packed(pieces: Sequence[Part], options: Options) -> list[list[Part]]:
    """The pieces as partitions, in order.

    Each piece is a partition, unless there are more than ``FEW`` and more than minPartitions asks for:
    then a partition takes several, within the limits of a partition.
    """
    wanted = max(FEW, options.min_partitions)
    if len(pieces) <= wanted:
        return [[piece] for piece in pieces]
    room = -(-sum(len(piece.range) for piece in pieces) // wanted)
    while True:
        partitions = _filled(pieces, min(room, options.max_records_per_partition), options)
        if len(partitions) >= wanted:
            return partitions
        room //= 2


def _filled(pieces: Sequence[Part], rows_max: int, options: Options) -> list[list[Part]]:
    """Partitions with up to ``rows_max`` sequences each, or one piece that has more."""
    bytes_max = options.max_bytes_per_partition
    partitions: list[list[Part]] = []
    rows = size = 0
    for piece in pieces:
        rows += len(piece.range)
        size += len(piece.range) * (piece.mean_bytes or 0)
        if partitions and rows <= rows_max and (bytes_max is None or size <= bytes_max):
            partitions[-1].append(piece)
        else:
            partitions.append([piece])
            rows = len(piece.range)
            size = rows * (piece.mean_bytes or 0)
    return partitions
