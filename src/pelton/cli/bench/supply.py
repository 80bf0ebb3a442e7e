"""The messages that a load publishes, as bytes: subjects, payload, headers, and how fast they may go."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

from pelton.core.bulk.publish_window import Column, Encoder, Rows
from pelton.core.load.crowd import Pace as Pace
from pelton.errors import PayloadTooLargeError

if TYPE_CHECKING:
    from collections.abc import Sequence

CHUNK = 64 * 1024
"""Bytes that are written to a connection before the others get their turn."""
_BLOCK = 65_536  # names that are made at once
_ENDLESS = 1 << 40


def column_of(names: Sequence[str]) -> Column:
    """The names in Arrow's layout."""
    texts = [name.encode() for name in names]
    ends = [0]
    for text in texts:
        ends.append(ends[-1] + len(text))
    return Column(b"".join(texts), struct.pack(f"{len(ends)}i", *ends), len(texts))


class Subjects:
    """The subject of each message of a load, by its number."""

    def __init__(
        self,
        subject: str,
        *,
        many: bool = False,
        most: int = 0,
        shuffled: bool = False,
        plain: bool = False,
    ) -> None:
        """``many``: each message has its number as the last token.

        ``most``: numbers below this, again and again; 0 for no limit. ``shuffled``: they are drawn by lot.
        Unless they are ``plain``, such numbers have zeros in front.
        """
        self._subject = subject
        self._many = many
        self._most = most
        self._shuffled = shuffled
        self._width = 0 if plain or not most else len(str(most - 1))
        self._start = -1
        self._column = Column(subject.encode())
        self._size = _ENDLESS
        if many and most:
            order = random.choices(range(most), k=_BLOCK) if shuffled else range(most)
            self._column = column_of([f"{subject}.{at:0{self._width}}" for at in order])
            self._size = self._column.count

    def block(self, number: int) -> tuple[Column, int, int]:
        """The column with the message, its row there, and the number of rows."""
        if not self._many or self._most:
            return self._column, number % self._size, self._size
        start = number - number % _BLOCK
        if start != self._start:
            self._start = start
            self._column = column_of([f"{self._subject}.{start + at}" for at in range(_BLOCK)])
        return self._column, number - start, _BLOCK

    def name(self, number: int) -> str:
        """The subject of one message."""
        if not self._many:
            return self._subject
        if not self._most:
            return f"{self._subject}.{number}"
        if self._shuffled:
            number = random.randrange(self._most)
        return f"{self._subject}.{number % self._most:0{self._width}}"


class Supply:
    """The messages of one client, from the number ``first`` on."""

    def __init__(
        self,
        subjects: Subjects,
        payload: bytes,
        *,
        lines: bytes = b"",
        numbered: bytes = b"",
        reply: bytes = b"",
        first: int = 0,
        max_payload: int,
    ) -> None:
        """``lines``: header lines of every message; ``numbered``: the begin of one that ends with the number."""
        headers = 12 + len(lines) + (len(numbered) + 22 if numbered else 0)
        if len(payload) + (headers if lines or numbered else 0) > max_payload:
            raise PayloadTooLargeError(
                f"messages of {len(payload)} bytes; the server takes at most {max_payload}"
            )
        self.subjects = subjects
        self.payload = payload
        self.number = first
        self.encoder = Encoder(
            common=lines, numbered=numbered, reply=reply, max_payload=max_payload
        )
        self._column = Column(payload)
        self._at_once = max(1, CHUNK // (len(payload) + 24))
        self._same = self._blob(subjects) if not numbered and not reply else b""
        self._same_size = len(self._same) // self._at_once

    def _blob(self, subjects: Subjects) -> bytes:
        """As many messages as go at once, if all are alike."""
        column, at, stop = subjects.block(0)
        if stop != _ENDLESS:
            return b""
        rows = Rows(column, self._column, None, first=0, count=self._at_once)
        return self.encoder.operations(rows, at, self._at_once, 0)[0]

    def rows(self, count: int) -> tuple[Rows, int]:
        """Rows that begin with the next message, at most ``count`` of them, and where it is in them."""
        column, at, stop = self.subjects.block(self.number)
        stop = min(stop, at + count)
        return Rows(column, self._column, None, first=self.number - at, count=stop), at

    def rows_from(self, number: int) -> tuple[Rows, int]:
        """Rows with this message and those behind it, and where it is in them."""
        column, at, stop = self.subjects.block(number)
        return Rows(column, self._column, None, first=number - at, count=stop), at

    def take(self, count: int) -> tuple[bytes | memoryview, int]:
        """The next messages as bytes, at most ``count``, and how many they are."""
        count = min(count, self._at_once)
        if self._same:
            self.number += count
            whole = count == self._at_once
            return (
                self._same if whole else memoryview(self._same)[: count * self._same_size]
            ), count
        rows, at = self.rows(count)
        data, made = self.encoder.operations(rows, at, rows.count, self.number)
        self.number += made
        return data, made
