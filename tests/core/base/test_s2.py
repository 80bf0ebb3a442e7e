"""S2 and snappy: what is compressed comes back, and nothing that comes in does harm."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.buffer import crc32c_of
from pelton.core.base.s2 import BLOCK_MAX, FrameReader, FrameWriter, compress, decompress

START = b"\xff\x06\x00\x00S2sTwO"
SNAPPY_START = b"\xff\x06\x00\x00sNaPpY"

repetitive = st.lists(
    st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 400)), max_size=30
).map(lambda parts: b"".join(part * times for part, times in parts))


def mixed(seed: int, size: int) -> bytes:
    """Words, noise and long runs."""
    source = random.Random(seed)
    words = [source.randbytes(source.randrange(1, 40)) for _ in range(50)]
    out = bytearray()
    while len(out) < size:
        kind = source.random()
        if kind < 0.7:
            out += source.choice(words)
        elif kind < 0.9:
            out += source.randbytes(source.randrange(200))
        else:
            out += source.choice(words)[:1] * source.randrange(1, 3000)
    return bytes(out[:size])


def chunk(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(3, "little") + data


def masked(data: bytes) -> bytes:
    crc = crc32c_of(data)
    return ((((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def read_all(reader: FrameReader) -> bytes:
    out = b""
    while (block := reader.next()) is not None:
        out += block
    return out


@given(st.one_of(st.binary(max_size=2000), repetitive))
def test_a_block_comes_back(data: bytes) -> None:
    assert decompress(compress(data)) == data


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 65535, 65536, 65537, 300_000, BLOCK_MAX])
def test_blocks_of_every_size_come_back(size: int, seed: int) -> None:
    data = mixed(seed, size)
    block = compress(data)
    assert decompress(block) == data
    assert size < 1000 or len(block) < size


def test_what_repeats_gets_small_and_noise_does_not_grow_much() -> None:
    assert len(compress(b"abcdefgh" * 10_000)) < 5000
    noise = random.Random(1).randbytes(100_000)
    assert len(compress(noise)) < 100_000 * 1.01


def test_other_readers_read_our_blocks_and_we_theirs(seed: int) -> None:
    cramjam: Any = pytest.importorskip("cramjam", reason="cramjam is not installed")
    for size in (0, 5, 100, 70_000, 1_000_000):
        data = mixed(seed + size, size)
        assert bytes(cramjam.snappy.decompress_raw(compress(data))) == data
        assert decompress(bytes(cramjam.snappy.compress_raw(data))) == data


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (b"\x00", b""),
        (b"\x03\x08abc", b"abc"),
        (b"\x05\xf0\x04abcde", b"abcde"),  # a literal whose length is in the next byte
        (b"\x05\xf4\x04\x00abcde", b"abcde"),
        (b"\x05\xf8\x04\x00\x00abcde", b"abcde"),
        (b"\x05\xfc\x04\x00\x00\x00abcde", b"abcde"),
        (b"\x08\x0cabcd\x01\x04", b"abcdabcd"),  # a copy of 4 from 4 before
        (b"\x08\x00a\x0d\x01", b"a" * 8),  # which overlaps what it makes
        (b"\x06\x04ab\x0e\x02\x00", b"ababab"),  # with an offset of two bytes
        (b"\x06\x04ab\x0f\x02\x00\x00\x00", b"ababab"),  # of four
        # S2: the last offset again, with every form of the length
        (b"\x0c\x0cabcd\x01\x04\x01\x00", b"abcd" * 3),
        (b"\x10\x0cabcd\x01\x04\x11\x00", b"abcd" * 4),
        (b"\x14\x0cabcd\x01\x04\x15\x00\x04", b"abcd" * 5),
        (b"\xa4\x02\x0cabcd\x01\x04\x19\x00\x18\x00", b"abcd" * 73),
        (b"\x8c\x80\x04\x0cabcd\x01\x04\x1d\x00\x00\x00\x00", b"abcd" * 16387),
    ],
)
def test_every_operation(block: bytes, data: bytes) -> None:
    assert decompress(block) == data


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\xff\xff",
        b"\x81\x80\x80\x02",  # more than a block may hold
        b"\x01",  # shorter than it says
        b"\x03\x08ab",
        b"\x02\x08abc",  # longer than it says
        b"\x05\xf0",
        b"\x05\xfc\xff\xff\xff\xffabcde",
        b"\x04\x01\x01",  # a copy of what is not there
        b"\x08\x0cabcd\x01\x05",
        b"\x08\x0cabcd\x01\x00",  # the last offset, and there is none
        b"\x08\x0cabcd\x0e\x00\x00",
        b"\x07\x0cabcd\x01\x04",  # past the end
        b"\x08\x0cabcd\x01",
        b"\x08\x0cabcd\x0e\x04",
        b"\x08\x0cabcd\x0f\x04\x00\x00",
        b"\x14\x0cabcd\x01\x04\x1d\x00\x00",
    ],
)
def test_damaged_blocks_are_refused(block: bytes) -> None:
    with pytest.raises(ValueError, match="s2"):
        decompress(block)


@given(st.binary(max_size=300))
def test_garbage_is_refused_or_read_but_harms_nothing(block: bytes) -> None:
    try:
        data = decompress(block)
    except ValueError:
        return
    assert decompress(compress(data)) == data


@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=8))
def test_a_block_with_flipped_bytes_harms_nothing(seed: int, flips: list[tuple[int, int]]) -> None:
    block = bytearray(compress(mixed(seed, 3000)))
    for at, value in flips:
        block[at % len(block)] = value
    try:
        data = decompress(bytes(block))
    except ValueError:
        return
    assert len(data) <= BLOCK_MAX


# -- the framed stream


@given(
    st.lists(st.binary(max_size=3000), max_size=8),
    st.integers(1, 2000),
    st.integers(1, 500),
)
def test_a_stream_comes_back_however_it_is_cut(
    parts: list[bytes], block_bytes: int, cut: int
) -> None:
    writer, reader = FrameWriter(block_bytes), FrameReader()
    out = b""
    for part in parts:
        writer.put(part)
        while len(writer) > 700:
            reader.feed(writer.take(cut))
            out += read_all(reader)
    writer.finish()
    while len(writer):
        reader.feed(writer.take(cut))
        out += read_all(reader)
    assert out == b"".join(parts)
    assert reader.waiting == 0


def test_both_starts_padding_plain_chunks_and_a_second_start_are_read() -> None:
    reader = FrameReader()
    reader.feed(SNAPPY_START + chunk(1, masked(b"abc") + b"abc") + chunk(0xFE, bytes(9)))
    reader.feed(START + chunk(0x99, b"index") + chunk(0, masked(b"defg") + compress(b"defg")))
    assert read_all(reader) == b"abcdefg"


@pytest.mark.parametrize(
    "stream",
    [
        b"garbage",
        chunk(0, masked(b"a") + compress(b"a")),  # no start
        b"\xff\x06\x00\x00S2sTwX",
        b"\xff\x05\x00\x00S2sTw",
        START + chunk(0x02, b"x"),
        START + chunk(0x7F, b"x"),
        START + chunk(0, b"abc"),
        START + chunk(0, masked(b"a") + b""),
        START + chunk(0, masked(b"a") + b"\xff"),
        START + chunk(0, masked(b"b") + compress(b"a")),
        START + chunk(1, masked(b"b") + b"a"),
        START + chunk(1, masked(bytes(BLOCK_MAX + 1)) + bytes(BLOCK_MAX + 1)),
    ],
)
def test_damaged_streams_are_refused_and_stay_so(stream: bytes) -> None:
    reader = FrameReader()
    reader.feed(stream)
    for _ in range(2):
        with pytest.raises(ValueError, match="s2"):
            reader.next()


@given(st.binary(max_size=200), st.booleans())
def test_a_stream_of_garbage_harms_nothing(data: bytes, begun: bool) -> None:
    reader = FrameReader()
    reader.feed((START if begun else b"") + data)
    try:
        read_all(reader)
    except ValueError:
        with pytest.raises(ValueError, match="s2"):
            reader.next()


def test_a_small_stream_that_gets_large_is_read_a_block_at_a_time() -> None:
    block = compress(bytes(BLOCK_MAX))
    reader = FrameReader()
    reader.feed(START + chunk(0, masked(bytes(BLOCK_MAX)) + block) * 5)
    before = reader.waiting
    assert len(reader.next() or b"") == BLOCK_MAX
    assert 0 < reader.waiting < before


@pytest.mark.parametrize("size", [0, BLOCK_MAX + 1])
def test_block_sizes_out_of_range(size: int) -> None:
    with pytest.raises(ValueError, match="a block has"):
        FrameWriter(size)


def test_too_much_for_one_block() -> None:
    with pytest.raises(ValueError, match="at most"):
        compress(bytes(BLOCK_MAX + 1))
