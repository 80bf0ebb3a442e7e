"""Clocks that are wrong: one device's time says nothing about the others."""

from __future__ import annotations

import pytest

from penstock.plgd import encode
from penstock.plgd.fleet import FleetConfig, FleetRun
from penstock.plgd.fleet.delivery import Delivery
from penstock.plgd.tables import TABLES, Settings
from penstock.plgd.wire import events_pb2 as events
from tests.plgd.tables_help import Memory, as_messages, cut


@pytest.mark.parametrize("time_ns", [2**63 - 1, 4 * 10**18, 0, -(2**63)])
def test_a_clock_that_is_far_off_changes_nothing_for_others(time_ns: int) -> None:
    """One event with a wrong time: far in the future, it let the commands of all devices expire."""
    config = FleetConfig(devices=6, duration_s=900.0, command_interval_s=20.0, seed=2)
    right = list(FleetRun(config).deliveries())
    device = "00000000-0000-4000-8000-0000000000ff"
    wrong = events.ResourceChanged(
        resource_id=events.ResourceId(device_id=device, href="/light/1"),
        event_metadata=events.EventMetadata(timestamp=time_ns),
    )
    made = encode(wrong, owner="a")
    place = len(right) // 4
    more = Delivery(right[place].time_ns, made.subject, made.payload, "wrong")
    found: list[dict[str, list[str]]] = []
    for deliveries in (right, [*right[:place], more, *right[place:]]):
        memory = Memory(Settings(buckets=1))
        for part in cut(as_messages(deliveries, 1), 200):
            memory.run(part)
        rows = {name: memory.rows(name) for name in TABLES if name != "raw"}
        found.append(
            {
                name: sorted(
                    repr({key: value for key, value in row.items() if "seq" not in key})
                    for row in of
                    if row.get("device_id") != device
                )
                for name, of in rows.items()
            }
        )
    for name in found[0]:
        assert found[0][name] == found[1][name], name
