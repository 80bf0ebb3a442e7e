"""The small files of backups: written files are read back, garbage is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api.consumers import ConsumerConfig
from pelton.api.streams import StreamConfig
from pelton.engine.backups import nats_files
from pelton.engine.backups.nats_files import NatsConsumerState, pack_state, unpack_state

SECOND = 1_000_000_000


@st.composite
def states(draw: st.DrawFn) -> NatsConsumerState:
    floor_consumer, floor_stream = draw(st.integers(0, 2**40)), draw(st.integers(0, 2**40))
    steps = draw(st.lists(st.tuples(st.integers(1, 999), st.integers(0, 2**32)), max_size=20))
    pending, redelivered, seq = {}, {}, floor_stream
    for n, (step, at) in enumerate(steps):
        seq += step
        pending[seq] = (floor_consumer + n + 1, at * SECOND)
        if at % 3 == 0:
            redelivered[seq] = 1 + at % 7
    delivered = floor_consumer + len(steps)
    return NatsConsumerState(floor_consumer, floor_stream, delivered, seq, pending, redelivered)


@given(states())
def test_a_state_comes_back(state: NatsConsumerState) -> None:
    assert unpack_state(pack_state(state)) == state


def test_a_state_as_nats_server_writes_it() -> None:
    data = bytes.fromhex("1602050815180fd4e085b00d02")  # floor 5 and 8, delivered 21 and 24
    data += bytes.fromhex("01010202020203030404050506060707080809090a0a0b0b0c0c0d0d0e0e0f0f1010")
    with pytest.raises(ValueError, match="ends early"):
        unpack_state(data)
    state = unpack_state(
        b"\x16\x02\x05\x08\x15\x18\x01\xd4\xe0\x85\xb0\x0d\x02\x01\x02\x01\x02\x03"
    )
    assert (state.floor_consumer, state.floor_stream) == (5, 8)
    assert (state.delivered_consumer, state.delivered_stream) == (21, 24)
    assert state.pending == {10: (6, 1795209257 * SECOND)}
    assert state.redelivered == {10: 3}
    assert unpack_state(b"") == NatsConsumerState()


def test_the_first_version_of_states() -> None:
    # floor 5 and 8; then the deliveries since, with times after a base
    state = unpack_state(b"\x16\x01\x05\x08\x03\x04\x01\x14\x02\x06\x00")
    assert (state.delivered_consumer, state.delivered_stream) == (3 + 4, 4 + 7)
    assert state.pending == {10: (0, 13 * SECOND)}


@given(st.binary(max_size=80), st.booleans())
def test_a_state_of_garbage_is_refused_or_sensible(data: bytes, begun: bool) -> None:
    try:
        state = unpack_state((b"\x16\x02" if begun else b"x") + data)
    except ValueError:
        return
    numbers = [state.delivered_stream, state.floor_stream, *state.pending, *state.redelivered]
    assert all(0 <= number < 1 << 63 for number in numbers)


def test_configurations_come_back_with_their_times() -> None:
    stream = StreamConfig(name="S", subjects=["a.>"], max_age=5, metadata={"k": "v"})
    meta = nats_files.stream_meta(stream, 1_700_000_000_123_456_789)
    assert meta.startswith(b'{"Created":"2023-11-14T22:13:20.123456789Z","name":"S"')
    assert nats_files.read_stream_meta(meta) == (stream, 1_700_000_000_123_456_789)
    consumer = ConsumerConfig(durable_name="c", name="c", ack_policy="explicit")
    meta = nats_files.consumer_meta("c", consumer, 7)
    assert b'"Name":"c"' in meta
    assert nats_files.read_consumer_meta(meta) == (consumer, 7)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name":5}', b'{"Created":"x"}'])
def test_a_configuration_that_is_none(data: bytes) -> None:
    if data == b"":
        assert nats_files.read_stream_meta(data) == (StreamConfig(), 0)
        return
    with pytest.raises(ValueError, match=r"."):
        nats_files.read_stream_meta(data)


def test_a_checksum_as_nats_server_writes_it() -> None:
    # recorded from nats-server 2.10.27
    meta = (
        b'{"Created":"2026-11-20T21:14:17.458192248Z","name":"S","subjects":["s.\\u003e"],'
        b'"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,'
        b'"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file",'
        b'"num_replicas":1,"duplicate_window":120000000000,"compression":"none",'
        b'"allow_direct":false,"mirror_direct":false,"sealed":false,"deny_delete":false,'
        b'"deny_purge":false,"allow_rollup_hdrs":false,"consumer_limits":{}}'
    )
    assert nats_files.checksum("S", meta) == b"f6f2476586a68322"
