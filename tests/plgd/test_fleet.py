"""A made-up fleet: the same seed is the same fleet, what is lost is in its truth, and nothing else is."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from pelton.plgd import EVENT_TYPES, Kind, LeadType, decode, decode_batch
from pelton.plgd.fleet import Delivery, Faults, FleetConfig, FleetRun, Loss, write_truth
from pelton.plgd.projection import apply, new_snapshot
from tests.ways import SEED, length

SMALL: dict[str, Any] = {
    "devices": length(8, 12),
    "duration_s": 1800,
    "seed": SEED,
    "command_interval_s": 120,
    "session_s": 300,
    "unpublish_interval_s": 3000,
    "delete_interval_s": 3000,
    "gateway_crash_s": (400.0,),
}
ALL_FAULTS = Faults(
    drop=0.01,
    tail_drop=0.2,
    reorder=0.02,
    duplicate=0.02,
    corrupt=0.005,
    wrong_envelope=0.005,
    unknown_type=0.005,
    hidden=0.1,
    outages=((600.0, 630.0),),
)


def made(**changes: Any) -> tuple[FleetRun, list[Delivery]]:
    run = FleetRun(FleetConfig(**SMALL | changes))
    return run, list(run.deliveries())


def test_the_same_seed_is_the_same_fleet() -> None:
    assert made(faults=ALL_FAULTS)[1] == made(faults=ALL_FAULTS)[1]
    assert made()[1] != made(seed=SEED + 1)[1]


@pytest.mark.parametrize("hub", ["v2.25", "v2.21", "v2.15", "v2.7", "v2.0"])
def test_without_faults_versions_are_contiguous_and_states_are_what_events_say(hub: str) -> None:
    run, deliveries = made(hub=hub)
    assert [d.time_ns for d in deliveries] == sorted(d.time_ns for d in deliveries)
    states: dict[str, Any] = {}
    registered: dict[str, int] = Counter()
    for delivery in deliveries:
        event = decode(delivery.subject, delivery.payload)
        if event.type.kind is Kind.REGISTRATIONS:
            [device] = event.message.device_ids
            registered[device] += 1 if event.type.name == "devicesregistered" else -1
            continue
        assert registered[str(event.device_id)] == 1, "an event of a device that is not registered"
        key = str(event.aggregate_id)
        if event.version == 0:
            states[key] = new_snapshot(event.message)
        else:
            assert event.version == states[key].event_metadata.version + 1
        apply(states[key], event.message)
    assert run.truth.summary()["lost"] == {}
    assert run.truth.states
    assert {key: states[key] for key in run.truth.states} == run.truth.states
    snapshots = [d for d in deliveries if d.subject.endswith("snapshottaken")]
    assert bool(snapshots) == (hub in {"v2.15", "v2.7", "v2.0"})


def test_what_the_bus_lacks_is_what_the_truth_says() -> None:
    _, whole = made()
    run, deliveries = made(faults=ALL_FAULTS)
    table = decode_batch([d.subject for d in deliveries], [d.payload for d in deliveries])
    errors = table.column("error").to_pylist()
    good = [d.message_id for d, error in zip(deliveries, errors, strict=True) if error is None]
    bad = {d.message_id for d, error in zip(deliveries, errors, strict=True) if error is not None}
    missing = {d.message_id for d in whole} - set(good)
    names = {(row["aggregate_id"], str(row["version"])) for row in run.truth.losses}
    of_devices = {tuple(m.split(".")[:2]) for m in missing if ".devices" not in m}
    assert of_devices == {name for name in names if name[0]}
    assert len(missing) == len(run.truth.losses)
    assert len(bad) == len(run.truth.dead_letters)
    assert len(deliveries) == run.truth.delivered
    assert len(good) + len(missing) == len(whole) + len(good) - len(set(good))


def test_every_fault_happens() -> None:
    run, _ = made(faults=ALL_FAULTS, seed=1)
    assert {loss["loss"] for loss in run.truth.losses} == {loss.value for loss in Loss}
    assert run.truth.reordered > 0
    assert run.truth.duplicates > 0


def test_damage_has_the_reason_of_its_kind() -> None:
    for knob, reasons in [
        ("corrupt", {"snappy"}),
        ("wrong_envelope", {"envelope", "mismatch", "event_type"}),
        ("unknown_type", {"event_type"}),
    ]:
        _, deliveries = made(faults=Faults(**{knob: 0.2}), seed=1)
        table = decode_batch([d.subject for d in deliveries], [d.payload for d in deliveries])
        assert set(table.column("error").to_pylist()) - {None} <= reasons
        assert table.column("error").null_count < len(deliveries)


def test_a_restore_uses_versions_again() -> None:
    faults = Faults(restore_at_s=1200, restore_back_s=300)
    _, deliveries = made(faults=faults, seed=1, delete_interval_s=1e12)
    times: dict[tuple[str, str], set[str]] = defaultdict(set)
    for delivery in deliveries:
        if ".registrations." not in delivery.subject:
            aggregate, version, time_ns = delivery.message_id.split(".")
            times[aggregate, version].add(time_ns)
    assert any(len(of_version) == 2 for of_version in times.values())


def test_a_gateway_that_dies_leaves_its_devices_offline_by_nobody() -> None:
    _, deliveries = made(seed=1)
    table = decode_batch([d.subject for d in deliveries], [d.payload for d in deliveries])
    rows = table.select(["user_id", "connection_status"]).to_pylist()
    nobody = [row for row in rows if row["user_id"] == "00000000-0000-0000-0000-000000000000"]
    assert {row["connection_status"] for row in nobody} == {"OFFLINE"}


@pytest.mark.parametrize("as_uuid", [False, True])
def test_a_lead_type_is_in_the_subjects_of_resources(as_uuid: bool) -> None:
    _, deliveries = made(lead=LeadType(choice="last", as_uuid=as_uuid), devices=2)
    for delivery in deliveries:
        event = decode(delivery.subject, delivery.payload)
        assert (event.subject.lead_type is not None) == (event.type.kind is Kind.RESOURCES)


def test_every_kind_of_event_is_made() -> None:
    _, deliveries = made(hub="v2.15", duration_s=7200, seed=1, snapshot_threshold=4)
    names = {decode(d.subject, d.payload).type.name for d in deliveries}
    assert names == {name for name, t in EVENT_TYPES.items() if t.kind is not Kind.SERVICES}


def test_a_flood_and_a_large_device() -> None:
    _, deliveries = made(
        seed=1, devices=1, large=1.0, flood_s=(120.0,), session_s=1e9, gateway_crash_s=()
    )
    changed = Counter(decode(d.subject, d.payload).href for d in deliveries)
    assert changed["/light/1"] >= 1000
    assert sum(1 for href in changed if href) >= 250


def test_the_truth_is_a_file_of_json_lines(tmp_path: Path) -> None:
    run, _ = made(faults=ALL_FAULTS)
    path = tmp_path / "truth.jsonl"
    write_truth(run.truth, path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert Counter(row["kind"] for row in rows) == {
        "loss": len(run.truth.losses),
        "dead_letter": len(run.truth.dead_letters),
        "aggregate": len(run.truth.states),
        "summary": 1,
    }
    assert rows[-1] == {"kind": "summary"} | run.truth.summary()
    assert [p.name for p in tmp_path.iterdir()] == ["truth.jsonl"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": -1}, "must not be negative"),
        ({"hubs": 0}, "hubs at least 1"),
        ({"hub": "3"}, "a version such as 'v2.25', not '3'"),
        ({"hub": "v2.21", "lead": LeadType()}, "v2.22 is the first"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FleetConfig(**changes)


def test_a_fleet_of_nobody_is_silent() -> None:
    assert made(devices=0, flood_s=(1.0,))[1] == []
