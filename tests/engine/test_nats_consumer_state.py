"""States of consumers in nats-server's terms and back."""

import pytest

from pelton.core.consumer.snapshot import unpack
from pelton.engine.backups.nats_consumer_state import from_peer, to_peer
from pelton.engine.backups.nats_files import NatsConsumerState
from tests.engine.house import SECOND, House


def test_what_waits_is_delayed_due_or_spent(house: House) -> None:
    house.stream(subjects=["s"])
    house.consumer("c", ack_policy="explicit", ack_wait=30 * SECOND, max_deliver=2)
    for _ in range(6):
        house.publish("s")
    events = house.pull(5)
    start_ns = house.server.clock.now()
    house.send(events[0][3], b"+ACK")
    house.send(events[1][3], b'-NAK {"delay": 50000000000}')
    house.send(events[2][3], b"-NAK")
    entry = house.engine.accounts["$G"].streams["S"].consumers["c"]
    state = to_peer(entry.core, 30 * SECOND, start_ns)
    assert (state.floor_consumer, state.floor_stream) == (1, 1)
    assert (state.delivered_consumer, state.delivered_stream) == (5, 5)
    assert {seq: at - start_ns for seq, (_, at) in state.pending.items()} == {
        2: 20 * SECOND,
        3: -30 * SECOND,
        4: 0,
        5: 0,
    }
    for _ in range(2):
        house.pull(9)
        house.pass_time(61 * SECOND)
    state = to_peer(entry.core, 30 * SECOND, house.server.clock.now())
    assert not set(state.pending) & {3, 4, 5}
    assert all(times >= 1 for times in state.redelivered.values())


def test_a_state_is_read_without_being_taken_for_saved(house: House) -> None:
    house.stream(subjects=["s"])
    house.consumer("c", durable_name="c", ack_policy="explicit")
    house.publish("s")
    house.pull(1)
    entry = house.engine.accounts["$G"].streams["S"].consumers["c"]
    to_peer(entry.core, SECOND, 0)
    house.pass_time(SECOND)
    assert house.crash().ok("CONSUMER.INFO.S.c")["delivered"]["consumer_seq"] == 1


def test_back_again() -> None:
    state = NatsConsumerState(3, 5, 6, 9, {7: (4, 11), 9: (6, 12)}, {7: 2, 8: 4, 2: 1})
    numbers, entries, starts = unpack(from_peer(state))
    assert numbers == (6, 9, 10, 0, 3, 5, 0)
    assert entries == [(7, 4, 11, 3, 1), (9, 6, 12, 1, 1), (8, 0, 0, 5, 4)]
    assert starts == []


@pytest.mark.parametrize("field", ["delivered_stream", "floor_consumer"])
def test_numbers_out_of_range(field: str) -> None:
    import struct

    with pytest.raises(struct.error):
        from_peer(NatsConsumerState(**{field: -5}))
