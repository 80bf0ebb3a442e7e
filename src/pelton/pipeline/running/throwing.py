"""Finds the messages whose rows throw in a step, by halving ranges of their sequences.

Spark names neither the row nor its message when an expression or a function of Python throws, and it ends the
whole batch. A range that throws is halved until single messages are left; a step computes each row by itself, so
a half throws exactly if one of its rows does. Ranges of a few messages are computed in the driver, by
Spark's optimizer if the step is SQL: that takes some milliseconds, where a job takes a tenth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.running.rejected import Thrown
from pelton.pipeline.running.stages import said
from pelton.pipeline.running.supervising import WORKER_GONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    Make = Callable[[DataFrame], DataFrame]

MOST = 1000
"""More rows than these are the fault of the step."""
_ALL_OF = 100
_LOCAL = 128
_TEXT = 500


class TooManyThrow(Exception):
    """So many rows throw that the step is at fault; has the first ones."""

    def __init__(self, first: Thrown, count: str) -> None:
        """``count`` says how many throw."""
        super().__init__(count)
        self.first = first
        self.count = count


def evaluate(rows: DataFrame) -> Exception | None:
    """Compute all rows and columns, and keep nothing; returns what they throw."""
    try:
        java: Any = rows._jdf  # only the JVM's object has the plan
        if java.queryExecution().optimizedPlan().nodeName() != "LocalRelation":
            rows.write.format("noop").mode("overwrite").save()
    except Exception as error:  # from Spark and from users' functions
        return error
    return None


def thrown(rows: DataFrame, make: Make, *, most: int | None = None) -> list[Thrown]:
    """The messages of ``rows`` for which ``make`` throws; [] if no message alone does.

    ``rows`` have a column ``seq`` and, of several streams, ``stream``; cache them. With ``most=1`` only the
    first one. Raises :class:`TooManyThrow`, and what ``make`` throws without any rows or because a worker of
    Python is gone.
    """
    most = MOST if most is None else most
    nothing = evaluate(make(rows.where(F.lit(False))))
    if nothing is not None:
        raise nothing
    found: list[Thrown] = []
    streams = [""]
    if "stream" in rows.columns:
        streams = sorted(row[0] for row in rows.select("stream").distinct().collect() if row[0])
    for stream in streams:
        of_stream = rows.where(F.col("stream") == stream) if stream else rows
        found += _Search(of_stream, make, stream, most, found).run()
        if most == 1 and found:
            break
    return found


class _Search:
    """The messages of one stream, in order of their sequences."""

    def __init__(
        self, rows: DataFrame, make: Make, stream: str, most: int, before: list[Thrown]
    ) -> None:
        self._rows = rows
        self._make = make
        self._stream = stream
        self._most = most
        self._before = len(before)
        self._passed = 0
        self._found: list[Thrown] = []
        self._local: tuple[int, int, pa.Table] | None = None
        numbers = rows.select("seq").where("seq is not null").distinct().toArrow()["seq"]
        self._seqs: list[int] = sorted(numbers.to_pylist())

    def run(self) -> list[Thrown]:
        if self._seqs and (error := self._error(0, len(self._seqs))):
            self._halve(0, len(self._seqs), error)
        return self._found

    def _halve(self, begin: int, end: int, error: Exception | None) -> None:
        """Look for messages in a range that throws ``error``, or one that is not known yet."""
        if self._most == 1 and self._found:
            return
        if end - begin == 1:
            self._note(begin, error)
            return
        middle = (begin + end) // 2
        left = self._error(begin, middle)
        if left is not None:
            self._halve(begin, middle, left)
        else:
            self._passed += middle - begin
        right = None if left is None else self._error(middle, end)
        if left is None or right is not None:
            self._halve(middle, end, right)
        else:
            self._passed += end - middle

    def _note(self, place: int, error: Exception | None) -> None:
        # Twice, so that nothing is blamed on a message that went wrong by chance.
        error = error or self._error(place, place + 1)
        again = error and self._error(place, place + 1)
        if again is None:
            self._passed += 1
            return
        self._found.append(Thrown(self._stream, self._seqs[place], said(again)[:_TEXT]))
        count = self._before + len(self._found)
        if self._most > 1 and count > self._most:
            raise TooManyThrow(
                self._found[0], f"more than {self._most:,} messages of a batch throw"
            )
        if self._most > 1 and count == _ALL_OF and not self._passed:
            raise TooManyThrow(
                self._found[0], f"all of the first {_ALL_OF} messages of a batch throw"
            )

    def _error(self, begin: int, end: int) -> Exception | None:
        error = evaluate(self._make(self._range(begin, end)))
        if error is not None and any(text in str(error) for text in WORKER_GONE):
            raise error
        return error

    def _range(self, begin: int, end: int) -> DataFrame:
        """The rows of the messages from one place in the order of sequences to another."""
        first, last = self._seqs[begin], self._seqs[end - 1]
        between = F.col("seq").between(first, last)
        if end - begin > _LOCAL:
            return self._rows.where(between)
        if self._local is None or not (self._local[0] <= begin and end <= self._local[1]):
            self._local = (begin, end, self._rows.where(between).toArrow())
        table = self._local[2]
        seqs = table["seq"]
        few = table.filter(pc.and_(pc.greater_equal(seqs, first), pc.less_equal(seqs, last)))
        return self._rows.sparkSession.createDataFrame(few, self._rows.schema)
