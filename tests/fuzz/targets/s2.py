"""S2: blocks against a reader of a few lines, frames against any split, what is compressed against what comes back."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.base.s2 import FrameReader, FrameWriter, compress, decompress
from tests.fuzz.inputs import pieces

MAX_BYTES = 8192
MODEL_MAX_BYTES = 1 << 20
WORDS = (
    b"\xff\x06\0\0S2sTwO",
    b"\xff\x06\0\0sNaPpY",
    b"\xfe",
    b"\x01\x04",
    b"\x05\xf0\x04",
    b"\x15\0\x04",
    b"\x19\0\x18\0",
)


def run(data: bytes) -> None:
    """Byte 0: what the rest is."""
    if len(data) < 2:
        return
    kind, seed, body = data[0] % 4, data[1], data[2:]
    if kind == 0:
        decoded(body)
    elif kind == 1:
        assert decompress(compress(body)) == body
        assert model(compress(body)) == body
    elif kind == 2:
        whole, split = framed([body]), framed(pieces(body, seed))
        assert whole == split, (whole, split)
    else:
        writer = FrameWriter(1 + seed)
        for piece in pieces(body, seed):
            writer.put(piece)
        writer.finish()
        assert framed([writer.take(len(writer))]) == (body, None)


def decoded(block: bytes) -> None:
    try:
        said = decompress(block)
    except ValueError:
        said = None
    expected = model(block)
    if expected is not NotImplemented:
        assert said == expected, (said, expected)


def framed(parts: list[bytes]) -> tuple[bytes, str | None]:
    """(what came out, why it ended)."""
    reader = FrameReader()
    out = b""
    try:
        for part in parts:
            reader.feed(part)
            while (block := reader.next()) is not None:
                out += block
    except ValueError as error:
        return out, str(error)
    return out, None


def model(block: bytes) -> bytes | None:
    """What a block holds, None when it is damaged; NotImplemented: too long to be worth it."""
    size, at = length_of(block)
    if size is None or size > 64 << 20:
        return None if size is None else NotImplemented
    if size > MODEL_MAX_BYTES:
        return NotImplemented
    out, offset = bytearray(), 0
    while at < len(block):
        tag, kind = block[at], block[at] & 3
        at += 1
        if kind == 0:
            count = tag >> 2
            if count >= 60:
                extra = count - 59
                if at + extra > len(block):
                    return None
                count = int.from_bytes(block[at : at + extra], "little")
                at += extra
            count += 1
            if count > len(block) - at or len(out) + count > size:
                return None
            out += block[at : at + count]
            at += count
            continue
        wide = (0, 1, 2, 4)[kind]
        if at + wide > len(block):
            return None
        said = int.from_bytes(block[at : at + wide], "little")
        at += wide
        if kind == 1:
            said |= (tag & 0xE0) << 3
            count = (tag >> 2 & 7) + 4
            if said == 0:
                count, at = repeat(count, block, at)
            else:
                offset = said
        else:
            count, offset = (tag >> 2) + 1, said
        if count is None or not 0 < offset <= len(out) or len(out) + count > size:
            return None
        for _ in range(count):
            out.append(out[-offset])
    return bytes(out) if len(out) == size else None


def length_of(block: bytes) -> tuple[int | None, int]:
    size = 0
    for k, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * k
        if byte < 128:
            return (size if size < 1 << 32 else None), k + 1
    return None, 0


def repeat(count: int, block: bytes, at: int) -> tuple[int | None, int]:
    """The length of a copy from the last offset."""
    extra = max(count - 8, 0)
    if extra == 0:
        return count, at
    if at + extra > len(block):
        return None, at
    base = {1: 4, 2: 1 << 8, 3: 1 << 16}[extra]
    return int.from_bytes(block[at : at + extra], "little") + base + 4, at + extra


def seeds() -> Iterable[bytes]:
    texts = [
        b"",
        b"abc",
        b"abcd" * 200,
        bytes(range(256)) * 3,
        b"device 7 says on; device 8 says off; " * 20,
    ]
    for text in texts:
        yield b"\0\0" + compress(text)
        yield b"\1\0" + text
        yield b"\3\7" + text
        writer = FrameWriter(64)
        writer.put(text)
        writer.finish()
        yield b"\2\3" + writer.take(len(writer))
    for block in (
        b"\x0c\x0cabcd\x01\x04\x01\x00",
        b"\x10\x0cabcd\x01\x04\x11\x00",
        b"\x14\x0cabcd\x01\x04\x15\x00\x04",
        b"\xa4\x02\x0cabcd\x01\x04\x19\x00\x18\x00",
        b"\x05\xf4\x04\x00abcde",
        b"\x06\x04ab\x0f\x02\x00\x00\x00",
        b"\x8c\x80\x04\x0cabcd\x01\x04\x1d\x00\x00\x00\x00",
    ):
        yield b"\0\0" + block
