"""CBOR values of many rows as JSON text.

Only plain values are read: maps with different texts as keys, arrays, numbers, texts in printable ASCII, true, false
and null, each with its length in front. Any other row is refused, and the caller reads it with a library.
"""

from pelton.core.bulk.columns import Buffer

def json_of_cbor(
    offsets: object, data: object, begin: int, count: int
) -> tuple[Buffer, Buffer, Buffer]:
    """The values that lie one behind the other, from offset number ``begin`` on, as JSON without spaces.

    Gives a byte for each row, 1 if it is refused, and the int32 offsets and bytes of the texts; a refused row has
    none. Raises ``ValueError`` for offsets that are outside of ``data``.
    """
