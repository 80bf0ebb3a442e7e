"""Schedules of a stream that is being opened: they wait until its consumers are there."""

from pathlib import Path
from typing import Any

from tests.core.streams import block
from tests.engine.house import SECOND, House
from tests.engine.rules.test_schedules import at

IDS = 20_000  # more message ids than one step of an opening reads


def test_a_schedule_that_is_due_waits_for_the_consumers(tmp_path: Path) -> None:
    """Interest retention would store no message of a stream whose consumers are not there yet."""
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_msg_schedules=True, retention="interest")
    house.consumer("c", ack_policy="explicit", durable_name="c", max_ack_pending=IDS + 9)
    house.publish(
        "s.plan", b"body", block(f"Nats-Schedule: {at(1)}", "Nats-Schedule-Target: s.out")
    )
    core = house.account.streams["S"].core
    for number in range(IDS):
        core.publish("s.x", b"", block(f"Nats-Msg-Id: {number}"))
    house.server.reactor.settle()
    house.server.clock.advance(SECOND)
    house = house.crash(gradually=True)
    ticks = 0
    while house.engine.open_more():
        ticks += "S" in house.account.streams
        house.server.clock.advance(SECOND // 2)
        house.engine.tick(house.server.clock.now())
        house.server.reactor.settle()
    assert ticks > 1  # the timer runs while the stream is opened
    house.pass_time(2 * SECOND)
    got: list[Any] = []
    while more := house.pull(IDS):
        got += more
    assert len([event for event in got if b"Nats-Scheduler: s.plan" in event[4]]) == 1
