"""A stored state with right checksums and numbers that can't be: the consumer goes on with what can be."""

from __future__ import annotations

import pytest

from pelton.core.consumer.snapshot import Entry, pack
from tests.core.streams import Site

NUMBERS = (5, 5, 6, 9, 1, 1, 9)  # delivered, passed, next, then times and floors


@pytest.mark.parametrize(
    ("numbers", "entries", "starts"),
    [
        (NUMBERS, [(8, 8, 9, 1, 1)], []),  # handed out ahead of the cursor
        ((5, 5, 6, 9, 1, 1, 9), [(2, 2, 9, 1, 1)], [7, 8]),  # first messages ahead of it
        (NUMBERS, [(6, 6, 9, 1, 1)], [3, 4]),  # and behind what was handed out
        (NUMBERS, [], [8, 7, 7]),
        ((5, 5, 6, 9, 99, 1 << 60, 9), [], []),  # a floor above what was delivered
        ((5, 1 << 60, 1 << 60, 9, 0, 0, 9), [(9, 9, 9, 1, 1)], [1 << 60]),
    ],
)
def test_every_message_is_handed_out_in_order_whatever_was_stored(
    numbers: tuple[int, ...], entries: list[Entry], starts: list[int]
) -> None:
    site = Site()
    for n in range(9):
        site.publish(f"s.{n}", b"m")
    consumer = site.consumer(ack_wait_ns=1_000_000_000)
    consumer.restore(pack(numbers, entries, starts))
    state = consumer.state()
    assert state.floor_stream_seq <= state.delivered_stream_seq
    assert state.floor_consumer_seq <= state.delivered_consumer_seq
    site.publish("s.new", b"last")
    for _ in range(3):
        site.pull(b"20")
        site.after(2_000_000_000)
    heard = [message for message in site.heard() if not message.status]
    assert heard[-1].payload in (b"m", b"last")
    assert any(message.payload == b"last" for message in heard)
