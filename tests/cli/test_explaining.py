"""The reasoning alone: what a server can't be brought to quickly, and what a folder adds."""

from __future__ import annotations

import pytest

from pelton.api.consumers import (
    ConsumerConfig,
    ConsumerInfo,
    PriorityGroupState,
    SequenceInfo,
)
from pelton.api.streams import StreamConfig, StreamState
from pelton.cli.consumers.explaining import Facts, Message, Pending, explain

MINUTE = 60 * 10**9


def facts(pending: Pending | None = None, **fields: object) -> Facts:
    config = ConsumerConfig(
        ack_policy="explicit", ack_wait=MINUTE, max_deliver=3, backoff=[MINUTE, 5 * MINUTE]
    )
    info = ConsumerInfo(
        config=config,
        delivered=SequenceInfo(stream_seq=5),
        ack_floor=SequenceInfo(stream_seq=1),
        num_ack_pending=2,
        num_waiting=1,
        **fields,  # type: ignore[arg-type]  # fields by name
    )
    state = StreamState(first_seq=1, last_seq=9, messages=9)
    return Facts(StreamConfig(name="S"), state, info, 3, Message(3, MINUTE, "a"), pending)


@pytest.mark.parametrize(
    ("pending", "kind", "said"),
    [
        (Pending(1, 0), "delivered", "1970-01-01T00:01:00Z"),
        (Pending(2, MINUTE), "delivered", "1970-01-01T00:06:00Z"),
        (Pending(3, MINUTE), "max_deliver", "3 times"),
        (Pending(spent=True), "max_deliver", "max_deliver"),
        (Pending(), "acknowledged", "acknowledged"),
        (None, "delivered", "one of the 2"),
    ],
)
def test_what_is_known_of_a_delivered_message(
    pending: Pending | None, kind: str, said: str
) -> None:
    first = explain(facts(pending))[0]
    assert first.kind == kind
    assert said in first.text


def test_a_pinned_client() -> None:
    group = PriorityGroupState(group="g", pinned_client_id="X1", pinned_ts=1)
    told = explain(facts(priority_groups=[group]))
    assert [each.kind for each in told] == ["delivered", "pinned"]
    assert "X1" in told[1].text
