"""Fields of many protobuf messages as columns, in plain Python: the twin of core/bulk/protobuf refuses every row.

The caller reads a row that is refused with a library, which is what there is without the compiled module.
"""

from pelton.core.plain.columns import Buffer


class Scanner:
    """A type of messages; see protobuf.pyi."""

    def __init__(self, nodes: list[dict[int, tuple[str, int]]], kinds: list[str]) -> None:
        """``kinds`` are those of the columns."""
        self._kinds = kinds

    def scan(
        self, offsets: object, data: object, begin: int, count: int
    ) -> tuple[Buffer, list[tuple[Buffer, ...]]]:
        """A 1 for each row, and the buffers of each column, with 0 or nothing in each row."""
        return Buffer(b"\1" * count), [_nothing(kind, count) for kind in self._kinds]


def _nothing(kind: str, count: int) -> tuple[Buffer, ...]:
    if kind == "int":
        return (Buffer(8 * count),)
    if kind == "texts":
        return Buffer(4 * (count + 1)), Buffer(4), Buffer()
    return Buffer(4 * (count + 1)), Buffer()


def unpack_blocks(
    offsets: object, data: object, begin: int, count: int, limit: int
) -> tuple[Buffer, Buffer, Buffer]:
    """A 1 for each row, and offsets and bytes of `count` empty blocks."""
    return Buffer(b"\1" * count), Buffer(4 * (count + 1)), Buffer()
