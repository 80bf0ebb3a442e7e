"""CBOR values as JSON: what is plain as the library would write it, the rest refused."""

import math
import struct
from itertools import pairwise

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pelton.core.bulk.cbor import json_of_cbor
from pelton.plgd.content import OCF_CBOR, content_json
from pelton.plgd.reasons import UndecodableEventError

ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62 - 1)
    | st.floats(1e-4, 1e15, exclude_max=True)
    | st.floats(-1e15, -1e-4, exclude_min=True)
    | st.sampled_from([0.0, -0.0])
    | ASCII,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ASCII, inner, max_size=5),
    max_leaves=20,
)
ANY = st.recursive(
    PLAIN
    | st.floats(width=16)
    | st.floats(width=32)
    | st.floats()
    | st.text()
    | st.binary()
    | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(), inner, max_size=5)
    ),
    max_leaves=20,
)


def laid(rows: list[bytes]) -> tuple[bytes, bytes]:
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    return struct.pack(f"{len(ends)}i", *ends), b"".join(rows)


def read(rows: list[bytes], begin: int = 0) -> list[str | None]:
    """Each row's JSON, None if it is refused."""
    refused, ends, texts = json_of_cbor(*laid(rows), begin, len(rows) - begin)
    found = [bytes(texts)[a:b].decode() for a, b in pairwise(ends.view("i"))]
    return [None if no else text for no, text in zip(bytes(refused), found, strict=True)]


def by_library(row: bytes) -> str | None:
    try:
        return content_json(row, "", OCF_CBOR)
    except UndecodableEventError:
        return None


@given(st.lists(PLAIN, min_size=1, max_size=5), st.booleans())
def test_a_plain_value_is_read_as_the_library_reads_it(values, canonical):
    rows = [cbor2.dumps(value, canonical=canonical) for value in values]
    assert read(rows) == [by_library(row) for row in rows]
    assert None not in read(rows)
    assert read(rows, 1) == read(rows)[1:]


@given(ANY)
@example(math.nan)
@example([math.inf])
def test_any_value_is_read_as_the_library_reads_it_or_refused(value):
    row = cbor2.dumps(value)
    (found,) = read([row])
    assert found in {None, by_library(row)}


@given(PLAIN, st.integers(0, 200), st.binary(max_size=3))
def test_damage_is_refused_or_read_as_the_library_reads_it(value, place, put):
    row = bytearray(cbor2.dumps(value))
    row[place : place + len(put)] = put
    (found,) = read([bytes(row)])
    assert found in {None, by_library(bytes(row))}


@given(st.binary(max_size=40))
def test_bytes_are_refused_or_read_as_the_library_reads_them(row):
    (found,) = read([row])
    assert found in {None, by_library(row)}


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\x01\x01",  # two values
        b"\xa2\x61a\x01\x61a\x02",  # a key twice
        b"\xa1\x01\x01",  # a key that is no text
        b"\x9f\xff",  # a length that is not in front
        b"\xf9\x7e\x00",  # not a number
        b"\xfb\x7f\xe0\x00\x00\x00\x00\x00\x00",  # 8.98e307
        b"\x61\xe9",  # no UTF-8
        b"\x63\xe2\x82\xac",  # beyond ASCII
        b"\x61\n",
        b"\x41a",  # bytes
        b"\xc1\x01",  # a tag
        b"\xf7",  # undefined
        b"\x1b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x7b\xff\xff\xff\xff\xff\xff\xff\xff",  # a text beyond the end
        b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x81" * 40 + b"\x01",
    ],
)
def test_what_is_not_plain_is_refused_and_the_next_row_is_read(row):
    assert read([row, b"\x82\x01\xf5"]) == [None, "[1,true]"]


@pytest.mark.parametrize(
    ("offsets", "begin", "count"), [([0, 9], 0, 1), ([0, 1], 0, 2), ([1, 0], 0, 1), ([-1, 0], 0, 1)]
)
def test_offsets_outside_of_the_data_are_an_error(offsets, begin, count):
    with pytest.raises(ValueError, match="offsets"):
        json_of_cbor(struct.pack(f"{len(offsets)}i", *offsets), b"\x01", begin, count)
