"""Cutting: every sequence in exactly one piece, within the limits."""

from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.reading.offsets import Range
from pelton.spark.reading.options import Options
from pelton.spark.reading.partitions import FEW, Part, cut, packed

ranges = st.integers(1, 10**9).flatmap(
    lambda first: st.integers(first - 1, first + 10**5).map(lambda last: Range(first, last))
)
parts = st.lists(st.tuples(ranges, st.none() | st.integers(1, 10**5)), max_size=4).map(
    lambda made: [Part(f"S{place}", "born", *each) for place, each in enumerate(made)]
)


@given(
    parts,
    st.integers(1, 64),
    st.integers(100, 10**6),
    st.none() | st.integers(10**5, 10**9),
)
def test_every_sequence_is_in_one_piece(whole, min_partitions, records_max, bytes_max):
    options = Options(
        ("S",),
        min_partitions=min_partitions,
        max_records_per_partition=records_max,
        max_bytes_per_partition=bytes_max,
    )
    pieces = cut(whole, options)
    for part in whole:
        mine = [piece for piece in pieces if piece.stream == part.stream]
        position = part.range.first
        for piece in mine:
            assert piece.range.first == position
            assert 1 <= len(piece.range) <= records_max
            if bytes_max is not None and part.mean_bytes is not None and len(piece.range) > 1:
                assert len(piece.range) * part.mean_bytes <= bytes_max
            position = piece.range.last + 1
        assert position == max(part.range.last + 1, part.range.first)
        sizes = [len(piece.range) for piece in mine]
        assert not sizes or max(sizes) - min(sizes) <= 1
    total = sum(len(part.range) for part in whole)
    assert len(pieces) >= min(min_partitions, total)
    assert cut(whole, options) == pieces
    assert [piece.stream for piece in pieces] == sorted(piece.stream for piece in pieces)


def test_as_few_pieces_as_can_be():
    whole = [Part("A", "born", Range(1, 100)), Part("B", "born", Range(5, 14))]
    assert len(cut(whole, Options(("S",)))) == 2
    more = cut(whole, Options(("S",), min_partitions=5))
    assert [piece.stream for piece in more] == ["A"] * 4 + ["B"]


small = st.lists(st.tuples(st.integers(1, 400), st.none() | st.integers(1, 5000)), max_size=60).map(
    lambda made: [
        Part(f"S{place:02}", "born", Range(1, length), mean)
        for place, (length, mean) in enumerate(made)
    ]
)


@given(small, st.integers(1, 64), st.integers(50, 1000), st.none() | st.integers(10**4, 10**6))
def test_small_pieces_share_a_partition(whole, min_partitions, records_max, bytes_max):
    options = Options(
        ("S",),
        min_partitions=min_partitions,
        max_records_per_partition=records_max,
        max_bytes_per_partition=bytes_max,
    )
    pieces = cut(whole, options)
    partitions = packed(pieces, options)
    assert [piece for partition in partitions for piece in partition] == pieces
    assert all(partitions)
    assert len(partitions) >= min(min_partitions, len(pieces))
    for partition in partitions:
        assert sum(len(piece.range) for piece in partition) <= records_max
        size = sum(len(piece.range) * (piece.mean_bytes or 0) for piece in partition)
        assert bytes_max is None or len(partition) == 1 or size <= bytes_max
    if len(pieces) <= FEW:
        assert len(partitions) == len(pieces)


def test_a_thousand_streams_with_a_little_each():
    whole = [Part(f"S{place}", "born", Range(1, 10)) for place in range(1000)]
    assert FEW <= len(packed(whole, Options(("S",)))) <= FEW + 1
    assert len(packed(whole, Options(("S",), min_partitions=40))) == 40
