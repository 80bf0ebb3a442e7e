"""A server that hangs while a consumer is read: missed heartbeats are counted in time, whatever is looked up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.base.message import BaseMessage
from pelton.client.base.models import ConsumerConfig, ConsumerInfo
from pelton.client.base.steps import Sleep, Until
from pelton.client.consume.events import ConsumerEvent
from pelton.client.consume.heartbeats import Heartbeats
from pelton.client.consume.pulled import PullIntake
from pelton.client.consume.requests import Asking, Sizes
from pelton.client.jetstream.streams import Streams
from tests.client.test_intake import Quiet

INTERVAL_S = 2.0


def begun(timeout_s: float) -> tuple[Quiet, Any, list[tuple[float, ConsumerEvent]]]:
    """A client, an operation of its own, and what this one tells, with its times."""
    client = Quiet()
    js: Any = Streams(client, domain=None, prefix=None, timeout=timeout_s)
    sizes = Sizes(heartbeat=INTERVAL_S, expires=30)
    config = ConsumerConfig(durable_name="c")
    info = ConsumerInfo(stream_name="S", name="c", config=config)
    intake = PullIntake(js, info, Asking(config, {}), sizes, "wait")
    told: list[tuple[float, ConsumerEvent]] = []
    intake.events.callback = lambda event: told.append((client.now, event))
    intake.begin()
    return client, intake, told


@pytest.mark.parametrize("timeout_s", [0.3, 5.0, 60.0])
@pytest.mark.parametrize("offset", [0.0, 0.4, 0.9, 1.3, 1.9])
def test_the_third_missed_heartbeat_comes_after_three_intervals(
    timeout_s: float, offset: float
) -> None:
    """However long each look-up waits for its answer."""
    client, intake, told = begun(timeout_s)
    heard_at = 10 * INTERVAL_S + offset
    beat = BaseMessage(
        intake._replies.subject(1),
        "",
        b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
        b"",
        intake._interest,
    )
    work = intake.keeping()
    answer: Any = None
    next_beat = offset
    while not any(each.count == 3 for _, each in told if each.kind == "heartbeats_missed"):
        step = work.send(answer)
        answer = None
        if not isinstance(step, Until | Sleep):
            continue
        end = client.now + step.seconds
        while next_beat <= min(end, heard_at):
            client.now = max(client.now, next_beat)
            intake._on_message(beat)
            next_beat += INTERVAL_S
        client.now = end
        if isinstance(step, Until):
            answer = step.done()
        assert client.now < heard_at + 100
    work.close()
    missed = [(at - heard_at, each.count) for at, each in told if each.kind == "heartbeats_missed"]
    assert [count for _, count in missed] == [1, 2, 3]
    for at, count in missed:
        assert count * INTERVAL_S < at <= (count + 1) * INTERVAL_S + 1e-6


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=40), st.floats(0.2, 5))
def test_the_count_is_that_of_the_clock(arrivals: list[float], interval_s: float) -> None:
    """Missed heartbeats since the last arrival, each half an interval late, or up to half an interval more."""
    heartbeats = Heartbeats()
    heartbeats.interval_s = interval_s
    heartbeats.restart(0.0)
    heard_at, count = 0.0, 0
    for gap in [*arrivals, 20 * interval_s]:
        arrives = heard_at + gap
        while heartbeats.due < arrives:
            now = heartbeats.due
            if missed := heartbeats.missed(now, watched=True):
                assert missed == count + 1
                count = missed
            silence = (now - heard_at) / interval_s
            assert count <= silence
            assert count >= silence - 1.5 - 1e-9
        heartbeats.heard = True
        heard_at, count = arrives, 0


def test_nothing_is_missed_while_nothing_is_owed() -> None:
    heartbeats = Heartbeats()
    heartbeats.interval_s = 1.0
    heartbeats.restart(0.0)
    for _ in range(20):
        assert not heartbeats.missed(heartbeats.due, watched=False)
    assert not heartbeats.silent
