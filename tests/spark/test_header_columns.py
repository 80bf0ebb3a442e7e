"""Columns that become header lines: a batch at once says what each row by itself would."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.writing.header_columns import header_lines, header_value, lines_of

LEFT_OUT = frozenset({"nats-msg-id"})
NAMES = st.sampled_from(
    ["K", "k", "Trace", "Nats-Msg-Id", "nats-MSG-id", "", "A:B", "A\r", "Ü", "ſ"]
)
TEXTS = st.sampled_from(
    ["", "v", "v w", " v", "v ", "\u00a0v", "ü", "v\r\nX: y", "v\n", "\x1cv", "a\tb"]
)
LISTS = st.none() | st.lists(st.none() | TEXTS, max_size=3)


def maps(values: st.SearchStrategy) -> st.SearchStrategy:
    """Rows of a map column: pairs with different names."""
    pairs = st.lists(st.tuples(NAMES, values), max_size=4, unique_by=lambda pair: pair[0])
    return st.lists(st.none() | pairs, max_size=9)


def one_by_one(sources, given_maps, count):
    """What the rows are by themselves: lines, and reasons."""
    lines, bad = [], {}
    for row in range(count):
        try:
            made = b"" if given_maps is None else header_lines(given_maps[row].as_py(), LEFT_OUT)
            for header, values in sources:
                value = values[row].as_py()
                made += b"" if value is None else header_value(header, value)
        except ValueError as error:
            bad[row] = str(error)
            made = b""
        lines.append(made)
    return lines, bad


def check(sources, given_maps, count):
    """Both ways, also over slices of the columns."""
    for begin in (0, min(2, count)):
        cut = [(header, values.slice(begin)) for header, values in sources]
        cut_maps = None if given_maps is None else given_maps.slice(begin)
        bad: dict[int, str] = {}
        lines = lines_of(cut, cut_maps, LEFT_OUT, bad)
        assert lines.type == pa.binary()
        assert (lines.to_pylist(), bad) == one_by_one(cut, cut_maps, count - begin)


@given(maps(LISTS))
def test_maps_of_lists(rows):
    check([], pa.array(rows, pa.map_(pa.string(), pa.list_(pa.string()))), len(rows))


@given(maps(st.none() | TEXTS))
def test_maps_of_texts(rows):
    check([], pa.array(rows, pa.map_(pa.string(), pa.string())), len(rows))


@given(st.lists(st.tuples(st.none() | TEXTS, st.none() | st.integers(-2, 1 << 62), maps(LISTS))))
def test_texts_and_numbers(rows):
    texts = pa.array([text for text, _, _ in rows], pa.string())
    numbers = pa.array([number for _, number, _ in rows], pa.int64())
    sources = [("Nats-TTL", texts), ("Nats-Expected-Last-Sequence", numbers)]
    check(sources, None, len(rows))
    some = pa.array([(kept or [None])[0] for _, _, kept in rows], HEADERS)
    check(sources, some, len(rows))


HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))


def test_null_rows_and_lists_may_span_values():
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()),
        pa.array(["a", "hidden", "c"]),
        mask=pa.array([False, True, False]),
    )
    spanning = pa.MapArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array(["A", "B", "C"]), lists
    )
    check([], spanning, 2)
    nulls = pa.array([True, False]).buffers()[1]
    hidden = pa.Array.from_buffers(
        spanning.type, 2, [nulls, spanning.buffers()[1]], 1, children=[spanning_entries(spanning)]
    )
    assert hidden.to_pylist()[1] is None
    check([], hidden, 2)


def spanning_entries(array: pa.MapArray) -> pa.StructArray:
    """The names and lists of all rows."""
    entries = [array.type.key_field, array.type.item_field]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=entries)
