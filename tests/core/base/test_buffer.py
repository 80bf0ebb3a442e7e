import random
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.buffer import (
    OutBuffer,
    ReadCursor,
    crc32c_of,
    crc32c_table_of,
    digits_of,
    hash_of,
    number_of,
)

PUT = st.binary(max_size=3000)
TAKE = st.integers(0, 4000)


@given(st.lists(st.one_of(PUT, TAKE), max_size=60))
def test_out_is_a_queue_of_bytes(steps: list[bytes | int]) -> None:
    out, model = OutBuffer(), b""
    for step in steps:
        if isinstance(step, bytes):
            out.put(step)
            model += step
        else:
            assert out.take(step) == model[:step]
            model = model[step:]
        assert len(out) == len(model)
        assert out.capacity >= len(model)


def test_out_that_is_drained_as_fast_as_filled_stays_small() -> None:
    out = OutBuffer()
    for i in range(20_000):
        out.put(b"%04d" % (i % 10_000) * 64)
        if i >= 4:
            assert out.take(256) == b"%04d" % ((i - 4) % 10_000) * 64
    assert out.capacity <= 8192


def test_out_refuses_a_negative_take() -> None:
    with pytest.raises(ValueError, match="-1"):
        OutBuffer().take(-1)


@given(st.binary(max_size=40), st.lists(st.one_of(st.integers(0, 20), st.sampled_from("QI"))))
def test_cursor_never_passes_its_end(data: bytes, steps: list[int | str]) -> None:
    cursor, at = ReadCursor(data), 0
    for step in steps:
        size = struct.calcsize("<" + step) if isinstance(step, str) else step
        fits = at + size <= len(data)
        got: object
        want: object = data[at : at + size]
        if step == "Q":
            got = cursor.u64()
        elif step == "I":
            got = cursor.u32()
        else:
            got = cursor.take(size)
        if fits and isinstance(step, str):
            want = struct.unpack_from("<" + step, data, at)[0]
        assert got == (want if fits else None)
        at += size if fits else 0
        assert cursor.left == len(data) - at


@given(st.integers(0, 2**64 - 1))
def test_digits(value: int) -> None:
    assert digits_of(value) == str(value).encode()


@pytest.mark.parametrize("value", [10**k + d for k in range(20) for d in (-1, 0, 1) if 10**k + d])
def test_digits_at_every_length(value: int) -> None:
    assert digits_of(value) == str(value).encode()


@given(st.integers(0, 2**64 - 1))
def test_number_of_digits(value: int) -> None:
    assert number_of(b"%d" % value) == (value if value < 2**63 else -1)


@given(st.one_of(st.binary(max_size=22), st.text("0123456789+-. x", max_size=22).map(str.encode)))
def test_number_of_anything(text: bytes) -> None:
    good = 1 <= len(text) <= 19 and all(c in b"0123456789" for c in text) and int(text) < 2**63
    assert number_of(text) == (int(text) if good else -1)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_hash_tells_keys_apart(a: bytes, b: bytes) -> None:
    assert hash_of(a) % 2 == 1
    assert (hash_of(a) == hash_of(b)) == (a == b)


def test_hash_spreads_over_the_bits_a_table_uses() -> None:
    for bits in (8, 12):
        for keys in (
            [b"orders.%d" % i for i in range(2**bits)],
            [b"%d" % i for i in range(2**bits)],
        ):
            used = {hash_of(key) >> 1 & 2**bits - 1 for key in keys}
            assert (
                len(used) > 0.6 * 2**bits
            )  # a random function leaves about 0.63 of the slots used


def test_hash_depends_on_the_seed() -> None:
    code = """if True:
        import sys
        from pelton.core.base.buffer import hash_of, seed_hash
        from pelton.core.base.maps import BytesMap
        seed_hash(int(sys.argv[1]))
        m = BytesMap()
        for i in range(1000): m.set(b"k%d" % i, i)
        assert all(m.get(b"k%d" % i) == i for i in range(1000))
        print(hash_of(b"orders.new"), hash_of(b"a subject longer than two words of memory"))
    """

    def run(seed: int) -> list[str]:
        return subprocess.run(
            [sys.executable, "-c", code, str(seed)], check=True, capture_output=True, text=True
        ).stdout.split()

    first, other = run(1), run(2**200 + 7)
    assert first == run(1)
    assert all(a != b for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc32c_known_values(data: bytes, crc: int) -> None:
    """The vectors of RFC 3720, B.4, and the common check value."""
    assert crc32c_of(data) == crc
    assert crc32c_table_of(data) == crc


@given(st.binary(max_size=100), st.integers(0, 3000), st.integers(0, 3100))
def test_crc32c_in_hardware_by_table_and_in_parts(data: bytes, more: int, cut: int) -> None:
    data += random.Random(more).randbytes(more)
    whole = crc32c_of(data)
    assert whole == crc32c_table_of(data)
    assert whole == crc32c_of(data[cut:], crc32c_of(data[:cut]))
    assert whole == crc32c_table_of(data[cut:], crc32c_table_of(data[:cut]))
