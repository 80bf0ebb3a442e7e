"""The state of a consumer in nats-server's terms, and back: the form in backups.

nats-server stores, for a pending message, the time of its last delivery and the number of its
redeliveries; Pelton also stores whether the message waits, was refused with a delay or is due. A
message that is due is written with a delivery time so old that its ack wait is over. Messages that
reached max_deliver are redelivered and not pending for nats-server.
"""

from pelton.core.consumer.consumer import Consumer
from pelton.core.consumer.snapshot import SPENT, pack, unpack
from pelton.engine.backups.nats_files import NatsConsumerState

_WAITING, _DELAYED, _QUEUED = 1, 2, 3


def to_peer(core: Consumer, ack_wait_ns: int, now_ns: int) -> NatsConsumerState:
    """Return the state of a running consumer."""
    numbers, entries, _ = unpack(core.snapshot())
    core.unsaved()  # the snapshot cleared the mark, and the state file does not get this state
    delivered, passed, _, _, floor_consumer, floor_stream, _ = numbers
    state = NatsConsumerState(
        floor_consumer=floor_consumer,
        floor_stream=floor_stream,
        delivered_consumer=delivered,
        delivered_stream=passed,
    )
    for seq, consumer_seq, since_ns, deliveries, kind in entries:
        if seq <= floor_stream:
            continue  # nats-server counts the message as acknowledged
        if kind == SPENT:
            state.redelivered[seq] = max(deliveries - 1, 1)
            continue
        if kind == _DELAYED:
            since_ns = since_ns - ack_wait_ns
        elif kind == _QUEUED:
            since_ns = now_ns - ack_wait_ns
        state.pending[seq] = (max(consumer_seq, floor_consumer), max(since_ns, 0))
        if deliveries > 1:
            state.redelivered[seq] = deliveries - 1
    return state


def from_peer(state: NatsConsumerState) -> bytes:
    """Return the state for `Consumer.restore`."""
    entries = [
        (seq, consumer_seq, ns, 1 + min(state.redelivered.get(seq, 0), 2**31), _WAITING)
        for seq, (consumer_seq, ns) in sorted(state.pending.items())
    ]
    entries += [
        (seq, 0, 0, 1 + min(times, 2**31), SPENT)
        for seq, times in sorted(state.redelivered.items())
        if seq not in state.pending and seq > state.floor_stream
    ]
    delivered = state.delivered_stream
    numbers = (
        state.delivered_consumer,
        delivered,
        delivered + 1,
        0,
        state.floor_consumer,
        state.floor_stream,
        0,
    )
    return pack(numbers, entries, ())
