"""The comparison of both servers: which differences it forgives."""

from __future__ import annotations

from tests.compat.twins import MAX_DELIVERIES, in_one_order

FIRST = (MAX_DELIVERIES + b"S.c", b'{"stream_seq": 1}')
SECOND = (MAX_DELIVERIES + b"S.c", b'{"stream_seq": 2}')
OTHER = (b"orders.new", b"42 bolts")


def test_advisories_of_exhausted_deliveries_come_in_any_order():
    assert in_one_order({"1": [SECOND, OTHER, FIRST]}) == in_one_order(
        {"1": [FIRST, OTHER, SECOND]}
    )


def test_each_of_them_counts():
    assert in_one_order({"1": [FIRST, FIRST]}) != in_one_order({"1": [FIRST, SECOND]})
    assert in_one_order({"1": [FIRST]}) != in_one_order({"1": [FIRST, FIRST]})


def test_other_messages_keep_their_places():
    assert in_one_order({"1": [OTHER, FIRST]}) != in_one_order({"1": [FIRST, OTHER]})
    assert in_one_order({"1": [OTHER]}) != in_one_order({"2": [OTHER]})
