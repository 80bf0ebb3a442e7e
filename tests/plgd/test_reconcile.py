"""Reconciliation: with the truth of a made-up fleet, what is found is what was lost, and repairs are exact."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from pelton.plgd import aggregate_id, decode, decode_batch, links_id
from pelton.plgd.fleet import Delivery, Faults, FleetConfig, FleetRun
from pelton.plgd.kinds import type_of
from pelton.plgd.projection import apply, new_snapshot
from pelton.plgd.reconcile import (
    Cause,
    Kept,
    Policy,
    Report,
    Row,
    Sightings,
    compare,
    encoded_repair,
    lake,
)
from pelton.plgd.reconcile.judging import recoverable
from pelton.plgd.reconcile.scanning import take
from pelton.plgd.reconcile.sightings import Seen
from pelton.plgd.store import Aggregate
from pelton.plgd.wire import events_pb2 as events
from tests.ways import SEED, length

FLEET: dict[str, Any] = {
    "devices": 12,
    "duration_s": 1500,
    "command_interval_s": 120,
    "session_s": 300,
    "unpublish_interval_s": 3000,
    "delete_interval_s": 2000,
    "gateway_crash_s": (400.0,),
}
FAULTS: dict[str, Any] = {
    "drop": 0.01,
    "tail_drop": 0.2,
    "reorder": 0.02,
    "duplicate": 0.02,
    "corrupt": 0.005,
    "wrong_envelope": 0.005,
    "unknown_type": 0.005,
    "hidden": 0.1,
    "outages": ((600.0, 630.0),),
}
NOW_NS = 1 << 61
EVERYTHING = Policy(commands=True)


class Fleet:
    """A run with its deliveries, as the source that a store of it would be."""

    name = "fleet"
    owner = None

    def __init__(
        self, *, history: bool = True, faults: Faults | None = None, **changes: Any
    ) -> None:
        made = {"faults": faults or Faults(**FAULTS), "seed": SEED} | changes
        self.run = FleetRun(FleetConfig(**FLEET | made), keep_events=True)
        self.deliveries = list(self.run.deliveries())
        self.history = history
        self.rows = sorted(
            self.run.aggregates(), key=lambda row: (row[0].device_id, row[0].aggregate_id)
        )
        lost = {(r["aggregate_id"], r["incarnation"], r["version"]) for r in self.run.truth.losses}
        assert self.run.history is not None
        self.lost: set[tuple[str, int]] = set()
        for state, _ in self.rows:
            hidden = set() if history else self.hidden(state, lost)
            for event in self.run.history[state.aggregate_id]:
                version = int(event.version or 0)
                if (
                    version <= state.version
                    and (state.aggregate_id, event.incarnation, version) in lost
                    and version not in hidden
                ):
                    self.lost.add((state.aggregate_id, version))

    def hidden(self, state: Aggregate, lost: set[tuple[str, int, int]]) -> set[int]:
        """Versions whose loss does not show: the bus also lost that the device had been deleted.

        Until an event of the new life came, those of the lives before a lost deletion are taken for
        it, but for what the state contains.
        """
        unseen_ends = {
            row["incarnation"]
            for row in self.run.truth.losses
            if row["event_type"] == "devicesunregistered" and row["device_id"] == state.device_id
        }
        name = state.aggregate_id
        came = {each.message_id.rpartition(".")[0] for each in self.deliveries}
        hidden: set[int] = set()
        assert self.run.history is not None
        for event in self.run.history[name]:
            version, life = int(event.version or 0), event.incarnation
            if (name, life, version) not in lost:
                break
            merged = takewhile(unseen_ends.__contains__, range(life - 1, -1, -1))
            if f"{name}.{version}" in came and any(
                (name, old, version) not in lost for old in merged
            ):
                hidden.add(version)
        kept = Kept(name, state.device_id, state.owner, state.snapshot)
        return hidden - recoverable(kept).keys()

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        for _, group in groupby(self.rows, key=lambda row: row[0].device_id):
            yield [
                Kept(
                    s.aggregate_id,
                    s.device_id,
                    s.owner,
                    s.snapshot,
                    tuple(e if self.history else ()),
                )
                for s, e in group
            ]

    def versions(self) -> dict[str, set[int]]:
        return {state.aggregate_id: set(range(state.version + 1)) for state, _ in self.rows}


def rows_of(deliveries: Iterable[Delivery]) -> list[tuple[int, int, str, bytes, bytes]]:
    return [(n, d.time_ns, d.subject, b"", d.payload) for n, d in enumerate(deliveries, 1)]


def sighted(rows: list[tuple[int, int, str, bytes, bytes]]) -> Sightings:
    made = Sightings()
    take(made, rows)
    return made


def repaired(report: Report, sightings: Sightings) -> list[tuple[int, int, str, bytes, bytes]]:
    """The repairs as the stream's next messages."""
    rows, ids = [], set()
    for finding, repair in report.repairs():
        made, headers = encoded_repair(repair, report.owners[finding.device_id], "test", sightings)
        assert made.message_id not in ids, "published twice"
        ids.add(made.message_id)
        block = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
        rows.append((0, 0, made.subject, block.encode(), made.payload))
    return rows


GIVEN_UP = {Cause.DELETED, Cause.RESTORED}


def found(report: Report) -> list[tuple[str, int]]:
    """The versions of histories that the store has."""
    return [
        (f.aggregate_id, version)
        for f in report.findings
        if f.cause not in GIVEN_UP
        for version in range(f.first, f.last + 1)
    ]


@pytest.mark.parametrize("hub", ["v2.25", "v2.15", "v2.7"])
@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_what_is_found_is_what_was_lost_and_all_is_repaired(hub: str, seed: int) -> None:
    fleet = Fleet(hub=hub, seed=seed)
    rows = rows_of(fleet.deliveries)
    report = compare(fleet, sighted(rows), EVERYTHING, NOW_NS)
    assert Counter(found(report)) == Counter(fleet.lost)
    assert not any(f.unrepaired for f in report.findings if f.cause not in GIVEN_UP)
    assert report.dead_letters >= len(fleet.run.truth.dead_letters)  # some came twice

    rows += repaired(report, sighted(rows))
    again = sighted(rows)
    for aggregate, versions in fleet.versions().items():
        assert again.aggregates[aggregate].lineage(since_ns=0).times.keys() >= versions
    second = compare(fleet, again, EVERYTHING, NOW_NS)
    assert (found(second), second.repairs()) == ([], [])


@pytest.mark.parametrize("hub", ["v2.25", "v2.15"])
def test_a_store_of_states_repairs_what_it_can_and_says_the_rest(hub: str) -> None:
    fleet = Fleet(history=False, hub=hub)
    rows = rows_of(fleet.deliveries)
    sightings = sighted(rows)
    report = compare(fleet, sightings, EVERYTHING, NOW_NS)
    lost = set(fleet.lost)
    assert Counter(found(report)) == Counter(lost)
    events_of = {
        (f.aggregate_id, int(r.message.event_metadata.version))
        for f, r in report.repairs()
        if not r.is_state
    }
    unrepaired = {
        (f.aggregate_id, v)
        for f in report.findings
        if f.cause not in GIVEN_UP
        for v in f.unrepaired
    }
    assert events_of | unrepaired == lost
    assert not events_of & unrepaired
    assert events_of
    assert unrepaired

    states = Counter(f.aggregate_id for f, r in report.repairs() if r.is_state)
    assert set(states.values()) == {1}
    for finding, repair in report.repairs():
        if repair.is_state:
            [state] = [s for s, _ in fleet.rows if s.aggregate_id == finding.aggregate_id]
            assert repair.message == state.snapshot
    rows += repaired(report, sightings)
    second = compare(fleet, sighted(rows), EVERYTHING, NOW_NS)
    assert Counter(found(second)) == Counter(unrepaired)
    assert second.repairs() == []


def test_repairs_make_projections_equal_to_the_truth() -> None:
    """A consumer that takes states and events by version ends where the store is."""
    fleet = Fleet(history=False, delete_interval_s=1e12)
    rows = rows_of(fleet.deliveries)
    report = compare(fleet, sighted(rows), EVERYTHING, NOW_NS)
    rows += repaired(report, sighted(rows))
    messages: dict[str, dict[int, Any]] = defaultdict(dict)
    for _, _, subject, _, payload in rows:
        try:
            event = decode(subject, payload)
        except ValueError:
            continue
        if event.aggregate_id is not None:
            version = int(event.version or 0)
            if event.type.is_snapshot or version not in messages[event.aggregate_id]:
                messages[event.aggregate_id][version] = event.message
    for state, _ in fleet.rows:
        made = None
        for _, message in sorted(messages[state.aggregate_id].items()):
            made = made or new_snapshot(message)
            apply(made, message)
        assert made is not None
        if hasattr(made, "latest_resource_change"):
            assert made.latest_resource_change == state.snapshot.latest_resource_change
        else:
            assert made == state.snapshot


def test_histories_that_the_store_has_not_are_told_as_lost_for_ever() -> None:
    fleet = Fleet(seed=SEED, faults=Faults(**FAULTS | {"drop": 0.05}), delete_interval_s=400)
    truth = fleet.run.truth
    seen: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    incarnations = {
        (str(e.aggregate_id), int(e.message.event_metadata.timestamp)): e.incarnation
        for e in FleetRun(fleet.run.config).simulation.run()
        if e.aggregate_id is not None
    }
    for delivery in fleet.deliveries:
        try:
            event = decode(delivery.subject, delivery.payload)
        except ValueError:
            continue
        if event.aggregate_id is not None:
            key = event.aggregate_id, incarnations[event.aggregate_id, event.timestamp_ns]
            seen[key] = max(seen[key], int(event.version or 0))
    unsure = {row["device_id"] for row in truth.losses if row["aggregate_id"] is None}
    expected = Counter(
        (row["aggregate_id"], row["version"])
        for row in truth.losses
        if row["aggregate_id"] is not None
        and row["device_id"] not in unsure
        and (row["aggregate_id"], row["version"]) not in fleet.lost
        and row["version"] < seen[row["aggregate_id"], row["incarnation"]]
    )
    report = compare(fleet, sighted(rows_of(fleet.deliveries)), EVERYTHING, NOW_NS)
    gone = Counter(
        (f.aggregate_id, version)
        for f in report.findings
        if f.cause is Cause.DELETED and f.device_id not in unsure
        for version in range(f.first, f.last + 1)
    )
    for key in gone & Counter(fleet.lost):
        expected[key] = gone[key]  # lost in two incarnations
    assert gone == +expected
    assert gone
    assert all(f.unrepaired and not f.repairs for f in report.findings if f.cause is Cause.DELETED)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_after_a_restore_the_way_that_the_store_went_is_repaired(seed: int) -> None:
    faults = Faults(**FAULTS | {"restore_at_s": 900, "restore_back_s": 300})
    fleet = Fleet(seed=seed, faults=faults, delete_interval_s=1e12)
    sightings = sighted(rows_of(fleet.deliveries))
    report = compare(fleet, sightings, EVERYTHING, NOW_NS)
    assert Counter(found(report)) == Counter(fleet.lost)
    assert {f.cause for f in report.findings} & {Cause.RESTORED}
    rows = rows_of(fleet.deliveries) + repaired(report, sightings)
    assert compare(fleet, sighted(rows), EVERYTHING, NOW_NS).repairs() == []


def causes(**faults: Any) -> Counter[Cause]:
    less = {"devices": length(6, 12), "duration_s": length(900, 1500), "delete_interval_s": 1e12}
    fleet = Fleet(faults=Faults(**faults), **less)
    report = compare(fleet, sighted(rows_of(fleet.deliveries)), EVERYTHING, NOW_NS)
    assert Counter(found(report)) == Counter(fleet.lost)
    return Counter(f.cause for f in report.findings)


def test_causes_are_told_apart() -> None:
    assert set(causes(drop=0.01)) <= {Cause.LOST, Cause.TAIL}
    assert set(causes(tail_drop=0.3)) == {Cause.TAIL}
    assert set(causes(corrupt=0.01, unknown_type=0.01)) == {Cause.DAMAGED}
    assert set(causes(outages=((600.0, 640.0),))) == {Cause.OUTAGE}
    assert causes() == {}
    older = Fleet(faults=Faults(drop=0.05), hub="v2.15", snapshot_threshold=4)
    report = compare(older, sighted(rows_of(older.deliveries)), EVERYTHING, NOW_NS)
    assert Cause.SNAPSHOT in {f.cause for f in report.findings}


DEVICE = "00000000-0000-4000-8000-000000000001"


def light(href: str, *versions: int) -> list[Any]:
    made = []
    for version in versions:
        message = events.ResourceChanged(
            resource_id=events.ResourceId(device_id=DEVICE, href=href), status=events.OK
        )
        message.event_metadata.version = version
        message.event_metadata.timestamp = version * 10**9 + 1
        message.audit_context.owner = "a"
        made.append(message)
    return made


class One:
    """A source of one device."""

    name = "one"
    owner = None

    def __init__(self, *kept: Kept) -> None:
        self.kept = list(kept)

    def devices(self, seen: Iterable[str]) -> Iterator[list[Kept]]:
        yield self.kept


def kept(*messages: Any, history: bool = True, owner: str = "a", **options: Any) -> Kept:
    state = new_snapshot(messages[0])
    for message in messages:
        apply(state, message)
    name = (
        aggregate_id(DEVICE, messages[0].resource_id.href)
        if hasattr(messages[0], "resource_id")
        else links_id(DEVICE)
    )
    return Kept(name, DEVICE, owner, state, messages if history else (), **options)


def seen_of(*versions: int, href: str = "/light/1") -> Sightings:
    made = Sightings()
    for message in light(href, *versions):
        made.event(
            aggregate_id(DEVICE, href),
            DEVICE,
            "o",
            message.event_metadata.version,
            message.event_metadata.timestamp,
        )
    return made


def test_a_forced_command_is_hidden_and_not_sent_again_unless_asked() -> None:
    pending = events.ResourceUpdatePending(
        resource_id=events.ResourceId(device_id=DEVICE, href="/secret")
    )
    pending.event_metadata.timestamp = 5
    source = One(kept(pending, *light("/secret", 1)))
    sightings = seen_of(1, href="/secret")
    [finding] = compare(source, sightings, Policy(), NOW_NS).findings
    assert (finding.cause, finding.first, finding.repairs) == (Cause.HIDDEN, 0, [])
    assert "again" in finding.unrepaired[0]
    [finding] = compare(source, sightings, EVERYTHING, NOW_NS).findings
    assert [repair.message for repair in finding.repairs] == [pending]
    assert finding.as_data() == {
        "device_id": DEVICE,
        "aggregate_id": aggregate_id(DEVICE, "/secret"),
        "kind": "resources",
        "href": "/secret",
        "cause": "hidden",
        "first_version": 0,
        "last_version": 0,
        "missing": 1,
        "repaired": 1,
        "state_version": None,
        "unrepaired": [],
    }


@pytest.mark.parametrize(
    ("time_ns", "history", "cause"),
    [
        (5, True, Cause.HIDDEN),  # before it was published
        (10, True, Cause.LOST),
        (29, True, Cause.LOST),
        (30, True, Cause.HIDDEN),  # it was unpublished
        (10, False, Cause.HIDDEN),  # only the links of today are known
    ],
)
def test_a_command_is_hidden_if_its_resource_was_not_published_then(
    time_ns: int, history: bool, cause: Cause
) -> None:
    link = events.Resource(href="/light/1", device_id=DEVICE)
    links = [
        events.ResourceLinksPublished(device_id=DEVICE, resources=[]),
        events.ResourceLinksPublished(device_id=DEVICE, resources=[link]),
        events.ResourceLinksUnpublished(device_id=DEVICE, hrefs=["/light/1"]),
    ]
    for version, message in enumerate(links):
        message.event_metadata.version = version
        message.event_metadata.timestamp = version * 10 + (10 if version == 2 else 0)
    pending = events.ResourceUpdatePending(
        resource_id=events.ResourceId(device_id=DEVICE, href="/light/1")
    )
    pending.event_metadata.timestamp = time_ns
    source = One(kept(*links, history=history), kept(pending, *light("/light/1", 1)))
    sightings = seen_of(1)
    for version, message in enumerate(links):
        sightings.event(links_id(DEVICE), DEVICE, "o", version, message.event_metadata.timestamp)
    report = compare(source, sightings, Policy(), NOW_NS)
    [finding] = [each for each in report.findings if each.href == "/light/1"]
    assert (finding.cause, finding.first) == (cause, 0)


def test_what_is_young_or_in_the_outbox_or_has_no_owner_is_not_repaired() -> None:
    whole = light("/light/1", 0, 1, 2, 3)
    sightings = seen_of(0)
    at = 1 + 63 * 10**9
    assert found(compare(One(kept(*whole)), sightings, Policy(), at)) == [
        (aggregate_id(DEVICE, "/light/1"), version) for version in (1, 2, 3)
    ]
    assert len(found(compare(One(kept(*whole)), sightings, Policy(), at - 1))) == 2
    waiting = kept(*whole, waiting=frozenset({2}))
    assert [v for _, v in found(compare(One(waiting), sightings, Policy(), at))] == [1, 3]
    for message in whole:
        message.audit_context.owner = ""
    nobody = Sightings()
    report = compare(One(kept(*whole, owner="")), nobody, Policy(), NOW_NS)
    assert report.repairs() == []
    assert set(report.findings[0].unrepaired.values()) == {"nobody knows the owner of the device"}
    assert report.summary()["reasons"] == {"nobody knows the owner of the device": 4}


def test_what_the_stream_has_deleted_is_filled_only_when_asked() -> None:
    whole = light("/light/1", *range(6))
    sightings = seen_of(3, 5)
    sightings.begin_ns = 3 * 10**9
    report = compare(One(kept(*whole)), sightings, Policy(), NOW_NS)
    assert [(f.cause, f.first, f.last, len(f.repairs)) for f in report.findings] == [
        (Cause.RETENTION, 0, 2, 0),
        (Cause.LOST, 4, 4, 1),
    ]
    report = compare(One(kept(*whole)), sightings, Policy(refill=True), NOW_NS)
    assert report.summary()["repairable"] == 4
    states = compare(One(kept(*whole, history=False)), sightings, Policy(), NOW_NS)
    assert [f.cause for f in states.findings] == [Cause.RETENTION, Cause.LOST]


def test_a_table_of_versions_is_enough() -> None:
    fleet = Fleet(delete_interval_s=1e12)
    sightings = sighted(rows_of(fleet.deliveries))
    rows = [
        Row(
            seen.aggregate_id,
            seen.device_id,
            set(seen.versions),
            max(seen.versions),
            max(seen.times),
        )
        for seen in sightings.aggregates.values()
        if seen.versions
    ]
    table = Sightings.of_rows(rows)
    table.taken_ns = None
    report = compare(fleet, table, EVERYTHING, NOW_NS)
    assert Counter(found(report)) == Counter(fleet.lost)
    assert report.summary()["unrepaired"] == 0


@pytest.mark.parametrize("hub", ["v2.25", "v2.7"])
def test_the_tables_of_a_pipeline_are_enough(tmp_path: Path, hub: str) -> None:
    """As they are after a run: events once, dead letters, and nothing else that is needed."""
    fleet = Fleet(hub=hub)
    deliveries = list({(d.message_id, d.payload): d for d in fleet.deliveries}.values())
    table = decode_batch([d.subject for d in deliveries], [d.payload for d in deliveries])
    received = pa.array([d.time_ns // 1000 for d in deliveries], pa.timestamp("us", "UTC"))
    table = table.append_column("received", received)
    subjects = pa.table({"subject": [d.subject for d in deliveries]})
    good = table.filter(pc.is_null(table["error"])).select(lake.COLUMNS)
    for name in ("version", "timestamp_ns"):
        place = good.schema.get_field_index(name)
        good = good.set_column(place, name, good[name].cast(pa.int64()))
    with pytest.raises(lake.NoTablesError, match="no table 'events'"):
        lake.sightings_of_tables(tmp_path)
    write_deltalake(tmp_path / "events", good)
    write_deltalake(tmp_path / "raw", subjects)
    sightings = lake.sightings_of_tables(tmp_path)
    assert sightings.taken_ns is not None
    assert sightings.by_aggregate_id is (hub == "v2.7")
    report = compare(fleet, sightings, EVERYTHING, NOW_NS)
    assert Counter(found(report)) == Counter(fleet.lost)
    of_stream = compare(fleet, sighted(rows_of(fleet.deliveries)), EVERYTHING, NOW_NS)
    made = [
        [encoded_repair(r, each.owners[f.device_id], "s", seen)[0] for f, r in each.repairs()]
        for each, seen in ((report, sightings), (of_stream, sighted(rows_of(fleet.deliveries))))
    ]
    assert made[0] == made[1]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=4),
    st.randoms(),
)
def test_a_lineage_is_what_a_restored_store_has(ways: list[tuple[int, int]], rng: Any) -> None:
    """A store goes on from a version again and again; its history is the lineage of all that was seen."""
    clock, history, seen = 0, {}, Seen("a", "d")
    for back, forward in ways:
        start = min(back, max(history, default=-1) + 1)
        history = {v: t for v, t in history.items() if v < start}
        for version in range(start, start + forward):
            clock += 10**10
            history[version] = clock
            for _ in range(rng.randrange(1, 3)):
                seen.add(version, clock)
    line = seen.lineage()
    assert line.times == history
    assert not set(line.others) & set(history.items())


def test_services_are_never_missing() -> None:
    state = events.ServiceMetadataSnapshotTaken()
    state.event_metadata.version = 3
    report = compare(One(Kept("s", "hub", "", state)), Sightings(), Policy(), NOW_NS)
    assert report.findings == []
    assert type_of(state).name == "ServiceMetadataSnapshotTaken"
