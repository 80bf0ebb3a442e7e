"""Header blocks as the buffers of a column of maps, and the sizes of messages."""

from pelton.core.bulk.columns import Buffer, Columns

class HeaderMaps:
    """The headers of a batch as buffers that Arrow's ``map<string, list<string>>`` is made of.

    What is in a block is what ``decode_headers`` finds in it, as bytes; a block that it refuses, and one without
    any header, is a null.
    """

    valid: Buffer
    """A bit per message, the lowest first: 0 where it has no headers."""
    map_offsets: Buffer
    """int32, ``count + 1`` of them: the names of message i are those from [i] to [i + 1]."""
    key_offsets: Buffer
    key_data: Buffer
    list_offsets: Buffer
    """int32, ``keys + 1`` of them: the values of a name, likewise."""
    value_offsets: Buffer
    value_data: Buffer
    count: int
    nulls: int
    keys: int
    values: int

    def __init__(self, columns: Columns) -> None: ...

def message_sizes(columns: Columns) -> Buffer:
    """int64 values: the bytes of headers and payload of each message; a block without a header counts as none.

    Of messages that came without their payload, that of the payload is what the server said.
    """
