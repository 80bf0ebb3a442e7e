"""Versions of one aggregate, against a plain account of sets; and many at once against one at a time."""

from datetime import UTC, datetime

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pelton.plgd.tables.rows import OpenRows
from pelton.plgd.tables.schemas import AGGREGATES, VERSION_GAPS
from pelton.plgd.tables.tracking import ARRIVALS, LEFT_OUT, track
from pelton.plgd.tables.versions import Arrival, Seen, Track

T = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000_000


def seen(version: int, at_s: float | None = None, seq: int = 1, **flags: bool) -> Seen:
    """An event at a time; without one, that of its version."""
    at = (100 + version if at_s is None else at_s) * SECOND
    return Seen(version, int(at), seq, T, **flags)


def missing(one: Track) -> set[int]:
    return {v for gap in one.gaps for a, b in gap.remaining for v in range(a, b + 1)}


@given(st.lists(st.integers(0, 12), max_size=40))
def test_each_version_is_taken_once_in_any_order(versions: list[int]) -> None:
    one = Track()
    taken = [v for v in versions if one.take(seen(v)) is not None]
    assert sorted(taken) == sorted(set(versions))
    top = max(versions, default=-1)
    assert missing(one) == set(range(top)) - set(versions)
    assert one.incarnation == 0


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=40))
def test_a_damaged_message_shows_what_is_missing(messages: list[tuple[int, bool]]) -> None:
    one = Track()
    good = set()
    for version, is_damaged in messages:
        arrival = one.take(seen(version, is_damaged=is_damaged))
        assert not (is_damaged and arrival)
        good |= set() if is_damaged else {version}
    top = -1 if one.last_version is None else one.last_version
    assert missing(one) == set(range(top + 1)) - good
    assert one.incarnation == 0


def test_a_device_that_comes_back_begins_anew() -> None:
    one = Track()
    for version in range(4):
        one.take(seen(version))
    assert one.take(seen(0, 900)) is Arrival.RESTART
    assert one.take(seen(1, 901)) is Arrival.NEXT
    assert one.take(seen(0, 900)) is None
    assert (one.incarnation, one.last_version, missing(one)) == (1, 1, set())


def test_a_first_event_that_is_lost_shows_by_the_device() -> None:
    one = Track()
    for version in range(4):
        one.take(seen(version))
    assert one.take(seen(2, 902), 900 * SECOND) is Arrival.RESTART
    assert (one.incarnation, missing(one)) == (1, {0, 1})


def test_a_restored_hub_uses_versions_again() -> None:
    one = Track()
    for version in range(9):
        one.take(seen(version))
    assert one.take(seen(5, 900)) is Arrival.RESTORE
    gap = one.changed[-1]
    assert (gap.first, gap.last, gap.cause, gap.closed_by) == (5, 8, "restore", "restore")
    assert [one.take(seen(5, 900)), one.take(seen(6, 901))] == [None, Arrival.NEXT]


def test_the_same_version_with_another_time_is_another_event() -> None:
    one = Track()
    one.take(seen(0))
    one.take(seen(1, 500))
    assert one.take(seen(1, 499)) is Arrival.RESTORE


@st.composite
def restored(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Messages of a hub that is restored: each event once, some again or a place later than the next one.

    A restore takes a while, so no event comes later than the first one behind it; one that comes again may.
    """
    version, place, since = -1, 0.0, 0
    places: list[tuple[float, tuple[int, int]]] = []
    for at in range(draw(st.integers(1, 24))):
        back = draw(st.sampled_from([0, 0, 0, 1, 2, 3, 5])) if since > 3 else 0
        since = 0 if back else since + 1
        version = max(-1, version - back) + 1
        place += 1.6 if back else 1
        late = draw(st.sampled_from([0, 0, 0, 1.5]))
        places.append((place + late, (version, at)))
        if draw(st.booleans()):
            places.append((place + late + 0.2 + draw(st.sampled_from([0, 1, 2])), (version, at)))
    return [one for _, one in sorted(places)]


@given(restored())
def test_a_restored_hub_loses_no_event_and_doubles_none(messages: list[tuple[int, int]]) -> None:
    one = Track()
    taken = [m for m in messages if one.take(seen(m[0], 100 + 5 * m[1])) is not None]
    assert sorted(taken) == sorted(set(messages))


def test_a_damaged_version_far_ahead_is_not_believed() -> None:
    one = Track()
    one.take(seen(0))
    one.take(seen(10**12, is_damaged=True))
    assert one.last_version == 0


def test_a_repair_fills_a_gap_whatever_its_time() -> None:
    one = Track()
    for version in (0, 1, 5):
        one.take(seen(version))
    for version in (2, 3, 4):
        assert one.take(seen(version, 9000, is_repair=True)) is Arrival.LATE
    assert (one.changed[0].closed_by, one.changed[0].cause) == ("repair", "lost")


MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 6),
        st.sampled_from(["event", "event", "snapshot", "damaged"]),
    ),
    max_size=30,
)


@given(MESSAGES, st.integers(1, 30))
def test_many_at_once_are_as_one_at_a_time(messages: list[tuple[int, int, str]], rows: int) -> None:
    tracks: dict[int, Track] = {}
    wanted = []
    for seq, (name, version, kind) in enumerate(messages, 1):
        one = tracks.setdefault(name, Track())
        flags = {"is_snapshot": kind == "snapshot", "is_damaged": kind == "damaged"}
        wanted.append(one.take(seen(version, seq=seq, **flags)))
    state = AGGREGATES.schema.empty_table()
    gaps = OpenRows(VERSION_GAPS, VERSION_GAPS.schema.empty_table(), "aggregate_id")
    got: list[str | None] = []
    for start in range(0, len(messages), rows):
        part = table(messages[start : start + rows], start + 1)
        tracked = track(part, state, gaps)
        got += [None if a == LEFT_OUT else ARRIVALS[int(a)].as_py() for a in tracked.arrival]
        new = set(tracked.aggregates["aggregate_id"].to_pylist())
        old = [row for row in state.to_pylist() if row["aggregate_id"] not in new]
        kept = pa.Table.from_pylist(old, AGGREGATES.schema)
        state = pa.concat_tables([kept, tracked.aggregates])
        gaps = OpenRows(VERSION_GAPS, gaps.finish().open, "aggregate_id")
    assert got == [None if one is None else one.value for one in wanted]
    for row in state.to_pylist():
        one = tracks[int(row["aggregate_id"])]
        assert (row["incarnation"], row["last_version"]) == (one.incarnation, one.last_version)
        left = {
            v
            for gap in gaps.of(row["aggregate_id"])
            for part in gap["remaining"]
            for v in range(part["first"], part["last"] + 1)
        }
        assert left == missing(one)


def table(messages: list[tuple[int, int, str]], first: int) -> pa.Table:
    rows = [
        {
            "aggregate_id": str(name),
            "kind": "resources",
            "device_id": "d",
            "href": "/a",
            "owner_id": "o",
            "version": version,
            "timestamp_ns": seen(version).time_ns,
            "seq": first + place,
            "received": T,
            "is_snapshot": kind == "snapshot",
            "bucket": 0,
            "is_damaged": kind == "damaged",
            "is_repair": False,
        }
        for place, (name, version, kind) in enumerate(messages)
    ]
    types = {"version": pa.int64(), "timestamp_ns": pa.int64(), "seq": pa.int64()}
    types |= dict.fromkeys(("is_snapshot", "is_damaged", "is_repair"), pa.bool_())
    types |= {"received": pa.timestamp("us", tz="UTC"), "bucket": pa.int32()}
    return pa.Table.from_pylist(
        rows, pa.schema([(name, types.get(name, pa.string())) for name in rows[0]])
    )


def test_a_version_far_away_takes_no_time_for_each_version_between() -> None:
    one = Track()
    assert one.take(seen(0, 100)) is Arrival.FIRST
    assert one.take(seen(2**63 - 1, 200)) is Arrival.GAP
    assert [gap.missing for gap in one.gaps] == [2**63 - 2]
    assert one.take(seen(7, 300)) is Arrival.RESTORE
