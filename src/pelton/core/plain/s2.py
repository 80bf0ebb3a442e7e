"""S2 and snappy, in plain Python: the twin of core/base/s2, which draws blocks and streams.

Compressing is greedy, as there, and makes no S2 repeats.
"""

from pelton.core.plain.buffer import crc32c_of

BLOCK_MAX = 4 << 20

_LITERAL, _COPY1, _COPY2 = range(3)
_WORD = 4  # bytes that have to be the same
_COPY_MAX = 64
_OFFSET_MAX = 65535
_HEAD_BYTES, _CRC_BYTES = 4, 4
_KIND_BLOCK, _KIND_PLAIN, _KIND_SKIP, _KIND_START = 0x00, 0x01, 0x80, 0xFF
_MAGICS = (b"S2sTwO", b"sNaPpY")
_NO_BEGIN = "the data does not begin with a stream header"


class _DamagedError(ValueError):
    """What is wrong with a block."""


def compress(data: bytes) -> bytes:
    """One block; ValueError for more than BLOCK_MAX bytes."""
    if len(data) > BLOCK_MAX:
        raise ValueError(f"a block holds {BLOCK_MAX} bytes at most, not {len(data)}")
    out = bytearray(_uvarint(len(data)))
    last: dict[bytes, int] = {}  # where each word of four bytes was seen
    at = written = 0
    while at + _WORD <= len(data):
        word = data[at : at + _WORD]
        match = last.get(word, -1)
        last[word] = at
        if match < 0 or at - match > _OFFSET_MAX:
            at += 1 + (at - written) // 32  # faster through what does not repeat
            continue
        size = _WORD
        while (
            size < _COPY_MAX
            and data[match + size : match + size + 1] == data[at + size : at + size + 1]
        ):
            size += 1
        size = min(size, len(data) - at)
        out += _literal(data[written:at])
        out += b"%c%b" % ((size - 1) << 2 | _COPY2, (at - match).to_bytes(2, "little"))
        at = written = at + size
    return bytes(out + _literal(data[written:]))


def _literal(data: bytes) -> bytes:
    size = len(data) - 1
    if size < 0:
        return b""
    if size < 60:
        return b"%c%b" % (size << 2, data)
    extra = (size.bit_length() + 7) // 8
    return b"%c%b%b" % ((59 + extra) << 2, size.to_bytes(extra, "little"), data)


def decompress(block: bytes) -> bytes:
    """What a block holds; ValueError when it is damaged."""
    try:
        return _decoded(block)
    except _DamagedError as damaged:
        raise ValueError(f"s2: {damaged}") from None


def _uvarint(value: int) -> bytes:
    made = bytearray()
    while value >= 128:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def _decoded_length(block: bytes) -> tuple[int, int]:
    """(decoded length, bytes that say so)."""
    value = 0
    for i, byte in enumerate(block[:5]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            if value > BLOCK_MAX:
                break
            return value, i + 1
    raise _DamagedError("the length of a block is not valid")


def _decoded(block: bytes) -> bytes:
    length, at = _decoded_length(block)
    out = bytearray()
    offset = 0
    while at < len(block):
        tag = block[at]
        at += 1
        kind = tag & 3
        if kind == _LITERAL:
            size, at = _literal_size(block, tag, at)
            if size > min(len(block) - at, length - len(out)):
                raise _DamagedError("a block is damaged")
            out += block[at : at + size]
            at += size
            continue
        if kind == _COPY1:
            offset, size, at = _short_copy(block, tag, at, offset)
        else:
            width = 2 if kind == _COPY2 else 4
            offset, at = _number(block, at, width)
            size = 1 + (tag >> 2)
        if not 0 < offset <= len(out) or size > length - len(out):
            raise _DamagedError("a block is damaged")
        _copy(out, offset, size)
    if len(out) != length:
        raise _DamagedError("a block is damaged")
    return bytes(out)


def _number(block: bytes, at: int, width: int) -> tuple[int, int]:
    """A little-endian number of so many bytes, and where it ends."""
    if len(block) - at < width:
        raise _DamagedError("a block is damaged")
    return int.from_bytes(block[at : at + width], "little"), at + width


def _literal_size(block: bytes, tag: int, at: int) -> tuple[int, int]:
    size = tag >> 2
    if size >= 60:
        size, at = _number(block, at, size - 59)
    return size + 1, at


def _short_copy(block: bytes, tag: int, at: int, last: int) -> tuple[int, int, int]:
    """(offset, size, end) of a copy with an offset of 11 bits; 0 is the last offset again, with a size of its own."""
    low, at = _number(block, at, 1)
    offset = (tag & 0xE0) << 3 | low
    size = tag >> 2 & 7
    if not offset:
        offset = last
        if size > 4:
            width = size - 4
            more, at = _number(block, at, width)
            size = more + (4, 256, 65536)[width - 1]
    return offset, size + 4, at


def _copy(out: bytearray, offset: int, size: int) -> None:
    """Append what lies `offset` before the end; what is copied may be copied again."""
    start = len(out) - offset
    piece = out[start : start + size]
    out += (piece * (size // len(piece) + 1))[:size]


def _masked_crc(data: bytes) -> bytes:
    crc = crc32c_of(data)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, "little")


class FrameWriter:
    """Bytes in, a framed stream out. Blocks are cut at ``block_bytes``."""

    def __init__(self, block_bytes: int = 262144) -> None:
        """ValueError unless 1 <= block_bytes <= BLOCK_MAX."""
        if not 1 <= block_bytes <= BLOCK_MAX:
            raise ValueError(f"a block has 1 to {BLOCK_MAX} bytes, not {block_bytes}")
        self._block_bytes = block_bytes
        self._plain = bytearray()
        self._out = bytearray(b"\xff\x06\x00\x00" + _MAGICS[0])

    def __len__(self) -> int:
        """Bytes of the stream that wait to be taken."""
        return len(self._out)

    def put(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes; full blocks are written at once."""
        self._plain += data
        while len(self._plain) >= self._block_bytes:
            self._add(self._block_bytes)

    def finish(self) -> None:
        """Write what is left."""
        if self._plain:
            self._add(len(self._plain))

    def take(self, count: int) -> bytes:
        """The next bytes of the stream, at most that many."""
        taken = bytes(self._out[:count])
        del self._out[:count]
        return taken

    def _add(self, size: int) -> None:
        plain = bytes(self._plain[:size])
        del self._plain[:size]
        kind, block = _KIND_BLOCK, compress(plain)
        if len(block) >= size - size // 16:
            kind, block = _KIND_PLAIN, plain
        self._out.append(kind)
        self._out += (len(block) + _CRC_BYTES).to_bytes(3, "little") + _masked_crc(plain) + block


class FrameReader:
    """A framed stream in, its bytes out, one block at a time."""

    def __init__(self) -> None:
        """A stream that has not begun."""
        self._in = bytearray()
        self._begun = False
        self._broken: str | None = None

    @property
    def waiting(self) -> int:
        """Bytes that were fed and not read."""
        return len(self._in)

    def feed(self, data: bytes) -> None:
        """Take bytes of the stream."""
        self._in += data

    def next(self) -> bytes | None:
        """The next decompressed block, or None: not there yet. ValueError from the first damage on."""
        if self._broken is None:
            try:
                return self._next_block()
            except _DamagedError as damaged:
                self._broken = f"s2: {damaged}"
        raise ValueError(self._broken)

    def _next_block(self) -> bytes | None:
        while len(self._in) >= _HEAD_BYTES:
            kind = self._in[0]
            end = _HEAD_BYTES + int.from_bytes(self._in[1:4], "little")
            if not self._begun and kind != _KIND_START:
                raise _DamagedError(_NO_BEGIN)
            if _KIND_PLAIN < kind < _KIND_SKIP:
                raise _DamagedError(f"a chunk has the unknown kind {kind:#x}")
            if len(self._in) < end:
                return None
            chunk = bytes(self._in[_HEAD_BYTES:end])
            del self._in[:end]
            if kind == _KIND_START and chunk not in _MAGICS:
                raise _DamagedError(_NO_BEGIN)
            self._begun = True
            data = _chunk_data(kind, chunk) if kind <= _KIND_PLAIN else b""
            if data:
                return data
        return None


def _chunk_data(kind: int, chunk: bytes) -> bytes:
    if len(chunk) < _CRC_BYTES:
        raise _DamagedError("a chunk has no checksum")
    data = chunk[_CRC_BYTES:]
    if kind != _KIND_PLAIN:
        data = _decoded(data)
    elif len(data) > BLOCK_MAX:
        raise _DamagedError("a block is too long")
    if _masked_crc(data) != chunk[:_CRC_BYTES]:
        raise _DamagedError("the checksum of a block does not match")
    return data
