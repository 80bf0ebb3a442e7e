"""Header blocks as columns of maps, in plain Python: the twin of core/bulk/header_maps, which draws them."""

from pelton.core.plain.columns import Buffer, Columns, append_bytes, pieces
from pelton.core.plain.headers import decode_headers


class HeaderMaps:
    """The headers of a batch as buffers of Arrow's ``map<string, list<string>>``; see header_maps.pyi."""

    def __init__(self, columns: Columns) -> None:
        """Of all messages of a batch."""
        self.valid = Buffer((columns.count + 7) >> 3)
        self.map_offsets = Buffer(4)
        self.key_offsets, self.key_data = Buffer(4), Buffer()
        self.list_offsets = Buffer(4)
        self.value_offsets, self.value_data = Buffer(4), Buffer()
        self.count = columns.count
        self.nulls = self.keys = self.values = 0
        for row, block in enumerate(pieces(columns.headers_data, columns.headers_offsets)):
            headers = _headers(block)
            if headers:
                self.valid[row >> 3] |= 1 << (row & 7)
            else:
                self.nulls += 1
            for key, values in headers.items():
                self._put(key, values)
            self.map_offsets.put("i", self.keys)

    def _put(self, key: str, values: list[str]) -> None:
        append_bytes(self.key_data, self.key_offsets, key.encode("utf-8", "surrogateescape"))
        for value in values:
            encoded = value.encode("utf-8", "surrogateescape")
            append_bytes(self.value_data, self.value_offsets, encoded)
        self.keys += 1
        self.values += len(values)
        self.list_offsets.put("i", self.values)


def _headers(block: bytes) -> dict[str, list[str]]:
    try:
        return decode_headers(block)[2] if block else {}
    except ValueError:
        return {}


def message_sizes(columns: Columns) -> Buffer:
    """int64 values: the bytes of headers and payload of each message; a block without a header counts as none."""
    sizes = Buffer()
    for row, block in enumerate(pieces(columns.headers_data, columns.headers_offsets)):
        first = block.find(b"\n")
        has_lines = first >= 0 and len(block) - first > 3
        sizes.put("q", columns.payload_bytes(row) + (len(block) if has_lines else 0))
    return sizes
