"""Header blocks as maps: what is found is what `decode_headers` finds, whatever the bytes are."""

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pelton.core.bulk.columns import Columns
from pelton.core.bulk.header_maps import HeaderMaps, message_sizes
from pelton.core.protocol.headers import decode_headers, encode_headers

REPLY = "$JS.ACK.S.c.1.{seq}.{seq}.1700000000000000000.0"


def columns_of(blocks, payload=b""):
    made = Columns(max(1, len(blocks)))
    for seq, block in enumerate(blocks, 1):
        assert made.append("s", REPLY.format(seq=seq), block, payload)
    return made


def numbers(buffer):
    return list(buffer.view("i"))


def strings(offsets, data):
    ends, raw = numbers(offsets), bytes(data)
    return [raw[low:high] for low, high in pairwise(ends)]


def maps_of(columns):
    """Each message's headers as a list of (name, values), None for none; read off the buffers."""
    made = HeaderMaps(columns)
    names = strings(made.key_offsets, made.key_data)
    values = strings(made.value_offsets, made.value_data)
    lists, rows = numbers(made.list_offsets), numbers(made.map_offsets)
    assert (len(names), len(values)) == (made.keys, made.values)
    assert len(lists) == made.keys + 1
    assert len(rows) == made.count + 1 == columns.count + 1
    assert len(made.valid) == (columns.count + 7) // 8
    found = []
    for row in range(made.count):
        entries = [
            (names[at], values[lists[at] : lists[at + 1]]) for at in range(rows[row], rows[row + 1])
        ]
        valid = bytes(made.valid)[row >> 3] >> (row & 7) & 1
        assert valid or not entries
        found.append(entries if valid else None)
    assert made.nulls == found.count(None)
    return found


def wanted(block):
    """The same by way of `decode_headers`."""
    try:
        headers = decode_headers(block)[2]
    except ValueError:
        return None
    raw = [
        (
            name.encode("utf-8", "surrogateescape"),
            [value.encode("utf-8", "surrogateescape") for value in values],
        )
        for name, values in headers.items()
    ]
    return raw or None


# Bytes that blocks are made of, so that nearly good ones are frequent.
PIECES = st.sampled_from(
    [
        *(b"NATS/1.0", b" 200", b" 20", b" ", b"\t", b"\r\n", b"\r", b"\n", b":", b"a", b"b: "),
        *(b"\xff", b"\xc3\xa9", b"\x00", b" 503 No Responders"),
        *(b"a: 1\r\n", b"a:  2\r\n", b"A: 3\r\n", b": x\r\n"),
    ]
)
NAMES = st.sampled_from(["a", "A", "Nats-Msg-Id", "\u00e9", "\udcff", "x" * 40, " a"])
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6)
GOOD = st.dictionaries(NAMES, st.lists(VALUES, max_size=3), max_size=6).map(encode_headers)
LINES = st.lists(st.sampled_from([b"a: 1", b"b: 2", b"a:3", b"b:\t4", b"c:", b"c: :"]), max_size=80)
INTERLEAVED = LINES.map(lambda lines: b"\r\n".join([b"NATS/1.0", *lines, b"", b""]))
NEARLY = st.lists(PIECES, max_size=14).map(b"".join)
FRAMED = NEARLY.map(lambda inside: b"NATS/1.0" + inside + b"\r\n\r\n")
BLOCKS = st.one_of(st.just(b""), GOOD, INTERLEAVED, NEARLY, FRAMED, st.binary(max_size=40))


@given(st.lists(BLOCKS, max_size=20))
def test_what_is_found_is_what_decode_headers_finds(blocks):
    assert maps_of(columns_of(blocks)) == [wanted(block) for block in blocks]


def test_nothing_at_all():
    assert maps_of(Columns(1)) == []


def test_many_names_in_one_block_are_not_compared_with_one_another():
    names = [f"name-{number % 40_000}" for number in range(60_000)]
    block = b"NATS/1.0\r\n" + "".join(f"{name}: v\r\n" for name in names).encode() + b"\r\n"
    [entries] = maps_of(columns_of([block]))
    assert len(entries) == 40_000
    assert entries[0] == (b"name-0", [b"v", b"v"])
    assert entries[-1] == (b"name-39999", [b"v"])


@given(st.lists(st.tuples(BLOCKS, st.binary(max_size=5)), max_size=9))
def test_sizes_count_headers_where_there_are_any(messages):
    made = Columns(max(1, len(messages)))
    for seq, (block, payload) in enumerate(messages, 1):
        made.append("s", REPLY.format(seq=seq), block, payload)
    sizes = struct.unpack(f"{len(messages)}q", bytes(message_sizes(made)))
    for (block, payload), size in zip(messages, sizes, strict=True):
        no_line = block.find(b"\n") < 0 or len(block) - block.find(b"\n") <= 3
        assert size == len(payload) + (0 if no_line else len(block))
