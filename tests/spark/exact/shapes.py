"""A message by its number: everything about it follows from the seed, so nothing has to be kept.

Each message tells its number somewhere (payload, subject or a header), so no two are alike, and a
copy of all of them without their sequences can be compared one by one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

STREAMS = {"EXACT_A": "a", "EXACT_B": "b", "EXACT_C": "c"}
LARGE_BYTES = 2**20
GROUPS = 7
LEAVES = 10_007

Headers = tuple[tuple[str, tuple[str, ...]], ...]
"""Names in order, each once, with its values in their order; () for none."""


class Shape(NamedTuple):
    """One message; `lines` are its headers as they are sent, names may be there several times."""

    stream: str
    subject: str
    lines: tuple[tuple[str, str], ...]
    payload: bytes

    @property
    def headers(self) -> Headers:
        return by_name(self.lines)

    @property
    def block(self) -> bytes:
        """The headers as bytes, b"" for none."""
        if not self.lines:
            return b""
        body = "".join(f"{name}: {value}\r\n" for name, value in self.lines)
        return f"NATS/1.0\r\n{body}\r\n".encode()


def by_name(lines: tuple[tuple[str, str], ...]) -> Headers:
    """Header lines as names with all their values."""
    found: dict[str, list[str]] = {}
    for name, value in lines:
        found.setdefault(name, []).append(value)
    return tuple(sorted((name, tuple(values)) for name, values in found.items()))


def digest(data: bytes | memoryview) -> bytes:
    """What tells payloads apart."""
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclass(frozen=True)
class Shapes:
    """The messages of a seed; every `large_every`-th has a payload of 1 MiB."""

    seed: int
    large_every: int = 5000

    def __call__(self, number: int) -> Shape:
        dice = hashlib.blake2b(b"%d/%d" % (self.seed, number), digest_size=12).digest()
        stream = ("EXACT_A",) * 6 + ("EXACT_B",) * 3 + ("EXACT_C",)
        name = stream[dice[0] % 10]
        group, leaf = dice[1] % GROUPS, int.from_bytes(dice[2:5]) % LEAVES
        subject = f"exact.{STREAMS[name]}.g{group}.{leaf}"
        if number % self.large_every == self.large_every // 2:
            return Shape(name, subject, _lines(dice[5], number), _payload(number, LARGE_BYTES))
        kind = dice[6]
        if kind < 12:
            # an empty payload: the subject tells the number
            return Shape(
                name, f"exact.{STREAMS[name]}.empty.{number}", _lines(dice[5], number), b""
            )
        size = 1 + int.from_bytes(dice[7:9]) % (4000 if kind < 20 else 160)
        return Shape(name, subject, _lines(dice[5], number), _payload(number, size))


def _payload(number: int, size: int) -> bytes:
    head = b"%d|" % number
    filler = bytes([number % 251, 0, 255, 13, 10]) * (size // 5 + 1)
    return (head + filler)[: max(size, len(head))]


def _lines(choice: int, number: int) -> tuple[tuple[str, str], ...]:
    """Two messages of five have no headers; the others each kind there is."""
    kind = choice % 20
    if kind < 8:
        return ()
    if kind < 11:
        return (("Number", str(number)),)
    if kind < 13:
        return (("Tag", "x"), ("Tag", str(number)), ("Tag", "x"))
    if kind < 15:
        return (("Tag", "1"), ("Other", str(number)), ("Tag", "2"), ("tag", "3"), ("TAG", ""))
    if kind == 15:
        return (("Empty", ""),)
    if kind == 16:
        return tuple((f"H{place}", str(number + place)) for place in range(20))
    if kind == 17:
        return (("Grüße", "käse €"), ("Colon", "a: b:c"), ("Long", "v" * 700))
    if kind == 18:
        return (("Nats-Msg-Id", f"own-{number}"), ("Number", str(number)))
    return (("a", str(number)), ("b", "2"), ("a", "3"))
