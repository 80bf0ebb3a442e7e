"""Fields of many protobuf messages as columns, and snappy blocks of many rows.

Only plain messages are read: fields that are known, of their wire type, and text in ASCII. Any other row is
refused, and the caller reads it with a library.
"""

from pelton.core.bulk.columns import Buffer

class Scanner:
    """A type of messages: its fields, and the columns that they go to."""

    def __init__(self, nodes: list[dict[int, tuple[str, int]]], kinds: list[str]) -> None:
        """``nodes`` has, for the message and those in it, each field's kind and target by its number.

        Kinds are those of columns (`int`, `text`, `bytes`, `texts`: repeated text), for which the target is
        the column; `message`, for which it is a node; and `no int`, `no text`, `no bytes` for what is checked and
        left out. ``kinds`` are those of the columns.
        """

    def scan(
        self, offsets: object, data: object, begin: int, count: int
    ) -> tuple[Buffer, list[tuple[Buffer, ...]]]:
        """Read messages that lie one behind the other, from offset number ``begin`` on.

        Gives a byte for each row, 1 if it is refused, and the buffers of each column: int64 values; or int32
        offsets and bytes; or, for repeated text, int32 offsets into the offsets of the bytes, these, and the bytes. A
        refused row has 0, or nothing. Raises ``ValueError`` for offsets that are outside of ``data``.
        """

def unpack_blocks(
    offsets: object, data: object, begin: int, count: int, limit: int
) -> tuple[Buffer, Buffer, Buffer]:
    """Unpack snappy blocks of at most ``limit`` bytes each.

    Gives a byte for each row, 1 if it is no such block, and the offsets and bytes of what is unpacked. Raises
    ``ValueError`` for offsets that are outside of ``data``.
    """
