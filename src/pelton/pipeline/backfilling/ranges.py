"""Ranges of sequences, and the record of those that back-fills have written into a sink.

A chunk is noted before it is written, and again when it is done::

    {"mark": "backfill-5f..", "next": 4, "current": [3001, 4000], "done": [[1, 3000]], ...}

The sink takes chunk 4 of this mark once. So a process that is killed in between writes the same chunk again
under the same number, and the sink recognizes it. Does not depend on Spark.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Span = tuple[int, int]
"""The first and the last sequence of a range."""
_MARK_CHARACTERS = 36  # those of a query's id, which stands in the same places


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same sequences in as few ranges as possible, in order."""
    found: list[Span] = []
    for first, last in sorted(span for span in spans if span[0] <= span[1]):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def without(span: Span, spans: Iterable[Span]) -> list[Span]:
    """The parts of a range that are in none of others."""
    first, last = span
    found: list[Span] = []
    for low, high in joined(spans):
        if high < first or low > last:
            continue
        if low > first:
            found.append((first, low - 1))
        first = high + 1
    if first <= last:
        found.append((first, last))
    return found


def chunks(spans: Iterable[Span], most: int) -> Iterator[Span]:
    """The ranges, cut into pieces of at most so many sequences."""
    for first, last in spans:
        for begin in range(first, last + 1, most):
            yield begin, min(last, begin + most - 1)


def count(spans: Iterable[Span]) -> int:
    """How many sequences ranges have together."""
    return sum(last - first + 1 for first, last in spans)


class Ledger(msgspec.Struct):
    """The ranges of one life of a stream that back-fills have written into the target ``place``."""

    place: str
    stream: str
    born: str
    mark: str
    next: int = 0
    current: Span | None = None
    done: list[Span] = []
    rebuilt: tuple[str, int, Span] | None = None
    """A rebuild under way: the mark of its commit, and the range that the table has with it."""

    def settle(self, held: int | None) -> None:
        """Note the end of a rebuild; ``held`` is the number of its mark's name in the table."""
        if self.rebuilt is not None and held is not None and held >= self.rebuilt[1]:
            name, number, span = self.rebuilt
            self.done = joined([*self.done, span])
            self.next = max(self.next, number + 1) if name == self.mark else self.next
        self.rebuilt = None


class LedgerError(RuntimeError):
    """A record that cannot be read or written; the text says why."""


@dataclass(frozen=True)
class Shelf:
    """The records of back-fills in a state folder."""

    state: Path

    @property
    def folder(self) -> Path:
        """The folder of the records, and of the lock of the one process that writes them."""
        return self.state / "backfill"

    def ledger(self, sink: str, place: str, stream: str, born: str) -> Ledger:
        """The record of a sink; a new one if the sink has another target now, or the stream another life."""
        mark = f"backfill-{uuid.uuid4().hex}"[:_MARK_CHARACTERS]
        path = self.folder / f"{sink}.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Ledger)
        except FileNotFoundError:
            return Ledger(place, stream, born, mark)
        except (OSError, msgspec.MsgspecError) as error:
            raise LedgerError(f"{path} cannot be read: {error}") from None
        same = (found.place, found.stream, found.born) == (place, stream, born)
        return found if same else Ledger(place, stream, born, mark)

    def keep(self, sink: str, ledger: Ledger) -> None:
        """Write the record durably."""
        path = self.folder / f"{sink}.json"
        draft = path.with_suffix(".draft")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                file.write(msgspec.json.encode(ledger))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            handle = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise LedgerError(f"{path} cannot be written: {error.strerror}") from None
