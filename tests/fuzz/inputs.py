"""How targets take an input apart: what is missing reads as zeros, so that every input means something."""

from __future__ import annotations


class Input:
    """Bytes read from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def __bool__(self) -> bool:
        """Whether something is left."""
        return self.at < len(self.data)

    def number(self, size: int = 1) -> int:
        """An unsigned number of that many bytes."""
        return int.from_bytes(self.bytes(size), "little")

    def below(self, limit: int) -> int:
        """A number in [0, limit); limit may be up to 65536."""
        return self.number(1 if limit <= 256 else 2) % max(limit, 1)

    def bytes(self, size: int) -> bytes:
        """That many bytes, or as many as are left."""
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken

    def sized(self, most: int = 255) -> bytes:
        """Bytes after a number that says how many."""
        return self.bytes(min(self.number(1 if most < 256 else 2), most))

    def text(self, most: int = 255) -> str:
        """As `sized`, as text that may hold any byte."""
        return self.sized(most).decode("utf-8", "surrogateescape")

    def rest(self) -> bytes:
        return self.bytes(max(len(self.data) - self.at, 0))


def pieces(data: bytes, seed: int) -> list[bytes]:
    """The bytes in pieces, whose lengths follow from the seed."""
    parts = []
    at, state = 0, seed * 2654435761 + 1
    while at < len(data):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        size = 1 + (state >> 33) % ((2, 5, 17, 64, 300)[seed % 5])
        parts.append(data[at : at + size])
        at += size
    return parts
