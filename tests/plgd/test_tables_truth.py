"""The tables of a made-up fleet are what its hub stored, less what its bus lost, however the stream is cut."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pelton.plgd import EVENT_TYPES, encode
from pelton.plgd.fleet import Faults, FleetConfig
from pelton.plgd.fleet.delivery import Delivery
from pelton.plgd.tables import TABLES
from pelton.plgd.tables.settings import Settings
from pelton.plgd.wire import events_pb2
from tests.plgd.tables_help import Memory, as_messages, cut
from tests.plgd.truth import Expected, Told
from tests.ways import length

FAULTS = Faults(
    drop=0.003,
    tail_drop=0.02,
    reorder=0.02,
    duplicate=0.02,
    corrupt=0.001,
    wrong_envelope=0.001,
    unknown_type=0.001,
    hidden=0.05,
    outages=((1000.0, 1010.0),),
)
BUSY: dict[str, Any] = {
    "devices": length(15, 25),
    "duration_s": 2400.0,
    "command_interval_s": 60.0,
    "session_s": 400.0,
    "sensor_interval_s": 30.0,
    "unpublish_interval_s": 1200.0,
}


def run_of(**options: Any) -> tuple[Told, pa.Table]:
    run = Told(FleetConfig(**(BUSY | options)))
    return run, as_messages(run.deliveries())


def tables_of(messages: pa.Table, rows: int, **options: Any) -> Memory:
    memory = Memory(Settings(buckets=2, **options))
    for part in cut(messages, rows):
        memory.run(part)
    return memory


def check_events(memory: Memory, run: Told, expected: Expected) -> None:
    columns = [memory.table("events")[name] for name in ("aggregate_id", "version", "timestamp_ns")]
    every = zip(*(column.to_pylist() for column in columns), strict=True)
    found = Counter(one for one in every if one[0] is not None)
    assert set(found) == expected.events()
    assert max(found.values()) == 1
    assert len(memory.table("raw")) == run.truth.delivered
    letters = {(row["subject"], row["data"]) for row in memory.rows("dead_letters")}
    assert len(letters) == run.truth.summary()["dead_letters"]


def check_gaps(memory: Memory, expected: Expected) -> None:
    """Still missing = lost; and a gap that was damaged says so."""
    missing: Counter[tuple[str, int]] = Counter()
    for row in memory.rows("version_gaps"):
        for part in row["remaining"]:
            for version in range(part["first"], part["last"] + 1):
                missing[row["aggregate_id"], version] += 1
    must, may = (Counter((a, v) for a, _, v in gaps) for gaps in expected.gaps())
    assert not must - missing
    assert not missing - may
    causes = {
        (r["aggregate_id"], r["incarnation"], r["first_version"]): r["cause"]
        for r in memory.rows("version_gaps")
    }
    damages = {"corrupt", "wrong_envelope", "unknown_type"}
    seen_at_first = {e.aggregate_id for e in expected.seen if e.incarnation == 0}
    for key, loss in expected.losses.items():  # later incarnations may be counted otherwise
        cause = causes.get(key) if key[1] == 0 and key[0] in seen_at_first else None
        if cause is not None and cause != "prefix":
            assert (cause == "damaged") == (loss["loss"] in damages), loss


def check_twins(memory: Memory, expected: Expected) -> None:
    rows = memory.rows("twin_latest")
    found = {
        (r["device_id"], r["href"]): (r["version"], r["timestamp_ns"], r["content"]) for r in rows
    }
    assert len(found) == len(rows)
    assert found == expected.twins()


def check_commands(memory: Memory, expected: Expected) -> None:
    clocks: dict[int, int] = {}
    for row in memory.rows("aggregates"):
        clocks[row["bucket"]] = max(clocks.get(row["bucket"], 0), row["last_ns"])
    rows = memory.rows("commands")
    found = {(r["aggregate_id"], r["correlation_id"]): r for r in rows}
    assert len(found) == len(rows)
    by_clock = {bucket: expected.commands(clock) for bucket, clock in clocks.items()}
    assert set(found) == set(next(iter(by_clock.values())))
    for place, row in found.items():
        wanted = by_clock[row["bucket"]][place]
        assert (row["outcome"], row["issued_ns"], row["finished_ns"]) == wanted, row


def check_sessions(memory: Memory, expected: Expected) -> None:
    found = {}
    for row in memory.rows("sessions"):
        connected = round(row["connected_at"].timestamp() * 1e6)
        place = (row["device_id"], connected, row["connection_id"])
        assert place not in found
        found[place] = row["ended_at"] is None
    assert found == expected.sessions()


def check(memory: Memory, run: Told) -> None:
    expected = Expected(run)
    check_events(memory, run, expected)
    check_gaps(memory, expected)
    check_twins(memory, expected)
    check_commands(memory, expected)
    check_sessions(memory, expected)


@pytest.mark.parametrize("seed", range(length(1, 4)))
def test_tables_are_the_truth_without_faults(seed: int) -> None:
    run, messages = run_of(seed=seed)
    memory = tables_of(messages, 1500)
    check(memory, run)
    assert not memory.rows("version_gaps")
    assert memory.duplicates == 0


@pytest.mark.parametrize("seed", range(length(1, 4)))
def test_tables_are_the_truth_with_faults(seed: int) -> None:
    run, messages = run_of(seed=seed, faults=FAULTS)
    memory = tables_of(messages, 700, late_s=30.0)
    check(memory, run)
    assert memory.duplicates > 0


@pytest.mark.parametrize("hub", ["v2.4", "v2.9", "v2.15"])
def test_tables_are_the_truth_behind_older_hubs(hub: str) -> None:
    faults = Faults(reorder=0.02, duplicate=0.02)
    run, messages = run_of(seed=1, hub=hub, faults=faults, duration_s=length(1000.0, 2400.0))
    check(tables_of(messages, 700), run)


def test_devices_that_were_deleted_come_back() -> None:
    run, messages = run_of(seed=3, delete_interval_s=600.0, faults=Faults(duplicate=0.02))
    memory = tables_of(messages, 700)
    assert max(row["incarnation"] for row in memory.rows("aggregates")) > 0
    check(memory, run)


def test_the_query_of_the_page_leaves_out_devices_that_were_deleted() -> None:
    page = Path("docs/howto/keep-plgd-events-as-tables.md").read_text()
    [sql] = re.findall(r"\| resources that are there, .+ \| `(.+)` \|", page)
    run, messages = run_of(seed=3, delete_interval_s=600.0, faults=Faults(reorder=0.02))
    memory = tables_of(messages, 700)
    with duckdb.connect() as connection:
        for name in ("twin_latest", "registrations"):
            connection.register(name, memory.table(name))
        asked = f"SELECT device_id, href FROM ({sql})"
        found = set(connection.execute(asked).fetchall())
    resources = [
        state.latest_resource_change
        for state in run.truth.states.values()
        if isinstance(state, events_pb2.ResourceStateSnapshotTaken)
    ]
    there = [change.resource_id for change in resources if change.status == events_pb2.OK]
    assert found == {(one.device_id, one.href) for one in there}
    everything = {(row["device_id"], row["href"]) for row in memory.rows("twin_latest")}
    assert len(found) < len(everything)


@pytest.mark.parametrize("seed", [0, 1, 2, 4][: length(1, 4)])
def test_every_fault_at_once(seed: int) -> None:
    faults = replace(FAULTS, restore_at_s=1500.0, restore_back_s=100.0)
    options = {"delete_interval_s": 1500.0, "gateway_crash_s": (700.0,), "flood_s": (300.0,)}
    run, messages = run_of(seed=seed, faults=faults, **options)
    memory = tables_of(messages, 900, late_s=30.0)
    causes = {row["cause"] for row in memory.rows("version_gaps")}
    assert causes >= {"lost", "damaged", "late", "restore"}
    check(memory, run)


def test_a_clock_that_jumps_ahead_for_a_moment_harms_no_other_device() -> None:
    busy = BUSY | {"devices": 8, "duration_s": 1200.0}
    run = Told(FleetConfig(**busy, seed=3, faults=Faults(reorder=0.02, duplicate=0.02)))
    deliveries = list(run.deliveries())
    message: Any = EVENT_TYPES["resourcechanged"].message()
    message.resource_id.href = "/light/1"
    message.event_metadata.timestamp = deliveries[0].time_ns + 365 * 86_400 * 10**9
    ahead = []
    for number in range(6):  # of both buckets
        message.resource_id.device_id = f"00000000-0000-4000-8000-00000000000{number}"
        out = encode(message, owner="a")
        ahead.append(Delivery(deliveries[100].time_ns, out.subject, out.payload, ""))
    memory = tables_of(as_messages([*deliveries[:100], *ahead, *deliveries[100:]]), 300)
    expected = Expected(run)
    check_gaps(memory, expected)
    check_sessions(memory, expected)
    check_commands(memory, expected)
    theirs = {row.pop("device_id") for row in memory.rows("twin_latest")} - {
        e.device_id for e in run.stored
    }
    assert len(theirs) == len(ahead)


def cut_free(memory: Memory) -> dict[str, list[str]]:
    """All rows, in an order of their own."""
    return {name: sorted(map(repr, memory.rows(name))) for name in TABLES}


@given(st.integers(length(4, 1), 400), st.integers(0, 3))
@settings(max_examples=length(3, 8), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_it_makes_no_difference_how_the_stream_is_cut(rows: int, seed: int) -> None:
    short = {"devices": 4, "duration_s": length(250.0, 500.0)}
    short |= {"session_s": 100.0, "command_interval_s": 20.0}
    run = Told(FleetConfig(**(BUSY | short), seed=seed, faults=FAULTS))
    messages = as_messages(run.deliveries())
    once = cut_free(tables_of(messages, len(messages), late_s=20.0))
    assert cut_free(tables_of(messages, rows, late_s=20.0)) == once
