"""Long reports in slices: between two slices the server serves its clients.

A report that may be long is a generator: it yields between slices and returns its result. `Pace` counts
the work of a slice in units of about a microsecond. Who runs a report decides when the next slice runs;
what a report shows may have changed meanwhile, so each slice reads the state of that moment.
"""

import json
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

T = TypeVar("T")
S = TypeVar("S")

Slices = Generator[None, None, T]  # yields between slices, returns the result

SLICE = 1000  # units in a slice
_ROW = 20  # a list with more items is encoded item by item,
_LONG = 200  # and so is a map


class Pace:
    """The work of the current slice."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        """Start a slice."""
        self._done = 0

    def over(self, units: int = 1) -> bool:
        """Count units; whether the slice is over. The caller then yields."""
        self._done += units
        if self._done < SLICE:
            return False
        self._done = 0
        return True


def finish(work: Slices[T]) -> T:
    """Run all slices at once."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


def each_of(items: Iterable[S], make: Callable[[S], T], pace: Pace, units: int) -> Slices[list[T]]:
    """make(item) for every item; each takes so many units."""
    made = []
    for item in items:
        made.append(make(item))
        if pace.over(units):
            yield
    return made


def encoded(body: object, indent: int | None, escapes: dict[int, str]) -> Slices[bytes]:
    """The JSON text of a report, as `encoding.to_json` writes it; takes away the report's long lists."""
    chunks: list[bytes] = []
    pieces: list[str] = []
    pace = Pace()
    for piece in _compact(body) if indent is None else _encoder(indent).iterencode(body):
        pieces.append(piece)
        if pace.over(_units(piece, indent)):
            chunks.append(_closed(pieces, escapes))
            pieces.clear()
            yield
    chunks.append(_closed(pieces, escapes))
    yield from _forget_rows(body)
    return b"".join(chunks)


def _forget_rows(body: object) -> Slices[None]:
    """Empty the long lists of rows of a report step by step: 100,000 rows at once take 10 ms."""
    for rows in body.values() if isinstance(body, dict) else ():
        if isinstance(rows, dict):
            yield from _forget_rows(rows)
        while isinstance(rows, list) and len(rows) > SLICE and isinstance(rows[0], dict):
            del rows[-SLICE:]
            yield


def _units(piece: str, indent: int | None) -> int:
    return 1 + (len(piece) >> 6 if indent is None else len(piece) >> 8)


def _closed(pieces: list[str], escapes: dict[int, str]) -> bytes:
    return "".join(pieces).translate(escapes).encode("utf-8", "replace")


def _encoder(indent: int | None) -> json.JSONEncoder:
    separators = (",", ":") if indent is None else (",", ": ")
    return json.JSONEncoder(indent=indent, separators=separators, ensure_ascii=False)


_plain = _encoder(None)


def _compact(value: object) -> Iterable[str]:
    """The pieces of a text without blanks; what has no long list inside is one piece."""
    if isinstance(value, dict) and not _flat(value):
        yield "{"
        comma = ""
        for name, item in value.items():
            yield f"{comma}{_plain.encode(name)}:"
            yield from _compact(item)
            comma = ","
        yield "}"
    elif isinstance(value, list) and (len(value) > _ROW or not all(map(_flat, value))):
        yield "["
        comma = ""
        for item in value:
            if comma:
                yield comma
            yield from _compact(item)
            comma = ","
        yield "]"
    else:
        yield _plain.encode(value)


def _flat(value: object) -> bool:
    """Whether it holds no list and no map."""
    if isinstance(value, dict):
        return len(value) <= _LONG and not any(
            isinstance(item, dict | list) for item in value.values()
        )
    return not isinstance(value, list)
