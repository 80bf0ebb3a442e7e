"""Clocks that are wrong: one device's time says nothing about the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from pelton.plgd import encode
from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.fleet.delivery import Delivery
from pelton.plgd.tables import TABLES, Settings
from pelton.plgd.wire import events_pb2 as events
from tests.plgd.tables_help import Memory, as_messages, cut
from tests.ways import length

DEVICE = "00000000-0000-4000-8000-0000000000ff"  # whose clock is wrong


@cache
def right() -> Sequence[Delivery]:
    """Messages of a fleet whose clocks are right."""
    duration_s = length(500.0, 900.0)
    config = FleetConfig(devices=6, duration_s=duration_s, command_interval_s=20.0, seed=2)
    return list(FleetRun(config).deliveries())


def of_others(deliveries: Sequence[Delivery]) -> dict[str, list[str]]:
    """The rows of each table that those messages make, without the one device's and without sequences."""
    memory = Memory(Settings(buckets=1))
    for part in cut(as_messages(deliveries, 1), 200):
        memory.run(part)
    return {
        name: sorted(
            repr({key: value for key, value in row.items() if "seq" not in key})
            for row in memory.rows(name)
            if row.get("device_id") != DEVICE
        )
        for name in TABLES
        if name != "raw"
    }


@cache
def wanted() -> dict[str, list[str]]:
    return of_others(right())


@pytest.mark.parametrize("time_ns", [2**63 - 1, 4 * 10**18, 0, -(2**63)])
def test_a_clock_that_is_far_off_changes_nothing_for_others(time_ns: int) -> None:
    """One event with a wrong time: far in the future, it let the commands of all devices expire."""
    wrong = events.ResourceChanged(
        resource_id=events.ResourceId(device_id=DEVICE, href="/light/1"),
        event_metadata=events.EventMetadata(timestamp=time_ns),
    )
    made = encode(wrong, owner="a")
    deliveries = right()
    place = len(deliveries) // 4
    more = Delivery(deliveries[place].time_ns, made.subject, made.payload, "wrong")
    found = of_others([*deliveries[:place], more, *deliveries[place:]])
    for name, rows in wanted().items():
        assert found[name] == rows, name
    assert wanted()["commands"]
