"""Positions in streams as users name them, in ``startingOffsets`` and ``endingOffsets``.

==============================  ==================================================================
``earliest``, ``latest``        the first message; after the last message
``41``                          a sequence
``2026-10-16T23:04:01Z``        a time, UTC where no zone is named
``{"ORDERS": 41, "EVENTS":      one of those for each stream; streams that are not named have the
"earliest"}``                   default
==============================  ==================================================================

Does not depend on streams; :mod:`pelton.spark.reading.offsets` turns positions into sequences.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

from pelton.spark.parsing import SEQUENCE_MAX, OptionError, stream_name

EARLIEST = "earliest"
LATEST = "latest"

_RIGHT = "earliest, latest, a sequence such as 1, or a time such as 2026-10-16T23:04:01Z"


@dataclass(frozen=True)
class Position:
    """A position in a stream: exactly one of a word, a sequence and a time is set."""

    word: str | None = None
    sequence: int | None = None
    time: datetime | None = None

    def __str__(self) -> str:
        """The text that the option accepts for this position."""
        if self.word is not None:
            return self.word
        return str(self.sequence) if self.time is None else self.time.isoformat()


@dataclass(frozen=True)
class Positions:
    """A position for every stream: ``everywhere``, or ``by_stream`` with a default for all others."""

    everywhere: Position | None = None
    by_stream: tuple[tuple[str, Position], ...] = ()

    def of(self, stream: str, default: Position) -> Position:
        """The position in a stream."""
        return dict(self.by_stream).get(stream, self.everywhere or default)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that are named."""
        return tuple(name for name, _ in self.by_stream)

    def words(self) -> set[str | None]:
        """The words among the positions."""
        given = [position for _, position in self.by_stream]
        return {position.word for position in [*given, *filter(None, [self.everywhere])]}


def position(text: str) -> Position:
    """Parse one position; :class:`OptionError` names the accepted forms."""
    word = text.strip().lower()
    if word in (EARLIEST, LATEST):
        return Position(word=word)
    # A bare number is a sequence, never the year or the basic form of a date.
    if word.isascii() and word.isdigit():
        if 1 <= int(word) <= SEQUENCE_MAX:
            return Position(sequence=int(word))
    elif time := _time(text.strip()):
        return Position(time=time)
    raise OptionError(_RIGHT)


def positions(text: str) -> Positions:
    """Parse a position for all streams, or a JSON object with one for each."""
    if not text.lstrip().startswith("{"):
        try:
            return Positions(everywhere=position(text))
        except OptionError:
            raise OptionError(
                f'{_RIGHT}, or one for each stream: {{"ORDERS": 41, "EVENTS": "earliest"}}'
            ) from None
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise OptionError('a JSON object such as {"ORDERS": 41, "EVENTS": "earliest"}') from None
    found: dict[str, Position] = {}
    for name, value in pairs:
        if name in found:
            raise OptionError(f"a JSON object that names {name} once")
        try:
            stream_name(name)
        except OptionError:
            raise OptionError(f"a JSON object whose keys are streams; {name!r} is none") from None
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise OptionError(f"a JSON object; for {name}: {_RIGHT}")
        try:
            found[name] = position(str(value))
        except OptionError:
            raise OptionError(f"a JSON object; for {name}: {_RIGHT}") from None
    return Positions(by_stream=tuple(found.items()))


def _time(text: str) -> datetime | None:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed
