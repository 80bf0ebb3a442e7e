"""Fields of protobuf messages as columns: what is plain as a plain reader reads it, the rest refused."""

import struct
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.bulk.protobuf import Scanner, unpack_blocks

NODES = [
    {
        1: ("int", 0),
        2: ("text", 1),
        3: ("bytes", 2),
        4: ("texts", 3),
        5: ("message", 1),
        6: ("no text", 0),
    },
    {1: ("int", 4), 2: ("message", 1), 3: ("no int", 0), 4: ("no bytes", 0)},
]
KINDS = ["int", "text", "bytes", "texts", "int"]


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def sized(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def laid(rows: list[bytes]) -> tuple[bytes, bytes]:
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    return struct.pack(f"{len(ends)}i", *ends), b"".join(rows)


def pieces(offsets: Any, data: Any) -> list[bytes]:
    ends = memoryview(offsets).cast("i")
    return [bytes(data)[a:b] for a, b in pairwise(ends)]


def scan(rows: list[bytes]) -> list[tuple[Any, ...] | None]:
    """Each row's values, None if it is refused."""
    refused, found = Scanner(NODES, KINDS).scan(*laid(rows), 0, len(rows))
    ints = [memoryview(found[c][0]).cast("q").tolist() for c in (0, 4)]
    texts, blobs = pieces(*found[1]), pieces(*found[2])
    ends, offsets, data = found[3]
    every = pieces(offsets, data)
    lists = memoryview(ends).cast("i").tolist()
    out: list[tuple[Any, ...] | None] = []
    for row, flag in enumerate(bytes(refused)):
        mine = (
            ints[0][row],
            texts[row],
            blobs[row],
            every[lists[row] : lists[row + 1]],
            ints[1][row],
        )
        assert not flag or mine == (0, b"", b"", [], 0)
        out.append(None if flag else mine)
    return out


ASCII = st.text(st.characters(max_codepoint=127), max_size=20).map(str.encode)
MESSAGES = st.tuples(
    st.integers(0, 2**63 - 1),
    ASCII,
    st.binary(max_size=20),
    st.lists(ASCII, max_size=4),
    st.integers(0, 2**63 - 1),
)


def encoded(values: tuple[Any, ...]) -> bytes:
    one, text, blob, texts, inner = values
    parts = number(1, one) + sized(2, b"old") + sized(2, text) + sized(3, blob)
    parts += b"".join(sized(4, each) for each in texts)
    parts += sized(5, number(1, 7) + sized(4, blob)) + sized(5, sized(2, number(1, inner)))
    return parts + sized(6, b"left out") + sized(5, number(3, 2**64 - 1))


@given(st.lists(MESSAGES, max_size=8))
def test_plain_messages_are_read(messages: list[tuple[Any, ...]]) -> None:
    assert scan([encoded(each) for each in messages]) == messages


REFUSED = {
    "an unknown field": number(9, 1),
    "field 0": number(0, 1),
    "a great number": number(128, 1),
    "another wire type": number(2, 1),
    "a group": b"\x0b\x0c",
    "text beyond ASCII": sized(2, "ä".encode()),
    "text that is left out, beyond ASCII": sized(6, b"\xff"),
    "a size beyond the end": b"\x12\x05ab",
    "a number that does not end": b"\x08" + b"\xff" * 10,
    "a number of more than 64 bits": b"\x08" + b"\xff" * 9 + b"\x02",
    "no value": b"\x08",
    "too many texts": sized(4, b"a") * 513,
    "too deep": sized(5, reduce(lambda inner, _: sized(2, inner), range(10), b"")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_plain_is_refused_alone(what: str) -> None:
    good = encoded((1, b"a", b"b", [b"c"], 2))
    found = scan([good, good + REFUSED[what], good])
    assert found == [(1, b"a", b"b", [b"c"], 2), None, (1, b"a", b"b", [b"c"], 2)]


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_do_harm(rows: list[bytes]) -> None:
    scan(rows)
    unpack_blocks(*laid(rows), 0, len(rows), 1000)


@given(st.lists(st.binary(max_size=300) | st.binary(max_size=4).map(lambda b: b * 60), max_size=6))
def test_blocks_are_unpacked(rows: list[bytes]) -> None:
    blocks = [bytes(snappy.compress_raw(row)) for row in rows]
    refused, ends, data = unpack_blocks(*laid(blocks), 0, len(blocks), 100)
    got = pieces(ends, data)
    assert list(bytes(refused)) == [len(row) > 100 for row in rows]
    assert got == [b"" if len(row) > 100 else row for row in rows]


def test_rows_in_the_middle_are_read() -> None:
    rows = [number(1, n) for n in range(6)]
    refused, found = Scanner(NODES, KINDS).scan(*laid(rows), 2, 3)
    assert memoryview(found[0][0]).cast("q").tolist() == [2, 3, 4]
    assert len(refused) == 3


@pytest.mark.parametrize(
    ("offsets", "begin", "count"),
    [([0, 5], 0, 1), ([0, 2, 1], 0, 2), ([0, 1], 0, 2), ([0, 1], -1, 1), ([-1, 1], 0, 1)],
)
def test_rows_beyond_the_data_are_refused(offsets: list[int], begin: int, count: int) -> None:
    packed = struct.pack(f"{len(offsets)}i", *offsets)
    with pytest.raises(ValueError, match="offsets"):
        unpack_blocks(packed, b"abc", begin, count, 10)


@pytest.mark.parametrize(
    ("nodes", "kinds"),
    [
        ([{0: ("int", 0)}], ["int"]),
        ([{1: ("int", 1)}], ["int"]),
        ([{1: ("text", 0)}], ["int"]),
        ([{1: ("message", 2)}], []),
        ([{1: ("no int", 0)}], ["no int"]),
    ],
)
def test_a_scanner_of_no_sense_is_refused(nodes: Any, kinds: list[str]) -> None:
    with pytest.raises(ValueError, match=r"field|kind"):
        Scanner(nodes, kinds)
