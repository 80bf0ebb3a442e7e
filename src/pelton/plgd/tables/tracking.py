"""Versions of many aggregates at once: most are the expected ones, and only the others are
processed one by one.

Messages are grouped by aggregate, each group in the order of the stream. All groups whose versions
increase by one from the expected version together take a few operations on arrays. `versions.Track`
processes all other groups, and would give the same result for these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .schemas import AGGREGATES, VERSION_GAPS
from .versions import TIMES, Arrival, Cause, Gap, Seen, Track

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .rows import OpenRows

Numbers = np.ndarray[Any, Any]
ARRIVALS = pa.array([arrival.value for arrival in Arrival])
CODE_OF = {arrival: code for code, arrival in enumerate(Arrival)}
LEFT_OUT = -1
NONE = np.iinfo(np.int64).min
"""Stands for a time that is not known."""
METADATA = "metadata"


@dataclass(frozen=True)
class Tracked:
    """The arrival of each message (-1 if it is left out) and its incarnation; and the new state."""

    arrival: Numbers
    incarnation: Numbers
    aggregates: pa.Table


@dataclass(frozen=True)
class Messages:
    """Columns of the messages that carry versions, in the order of the stream."""

    table: pa.Table
    version: Numbers
    time_ns: Numbers
    seq: Numbers
    is_snapshot: Numbers
    is_damaged: Numbers
    is_repair: Numbers

    @classmethod
    def of(cls, table: pa.Table) -> Messages:
        """From a table with columns of these names."""

        def numbers(name: str) -> Numbers:
            array = table[name]
            found: Numbers = pc.fill_null(array, pa.scalar(0).cast(array.type)).to_numpy()
            return found

        names = ("version", "timestamp_ns", "seq", "is_snapshot", "is_damaged", "is_repair")
        return cls(table, *map(numbers, names))

    def seen(self, row: int) -> Seen:
        """One of them."""
        return Seen(
            int(self.version[row]),
            int(self.time_ns[row]),
            int(self.seq[row]),
            self.table["received"][row].as_py(),
            bool(self.is_snapshot[row]),
            bool(self.is_damaged[row]),
            bool(self.is_repair[row]),
        )


def track(messages: pa.Table, state: pa.Table, gaps: OpenRows) -> Tracked:
    """Decide about messages that have an aggregate and a version, by the state of a bucket; update its gaps.

    ``messages`` are in the order of the stream, ``state`` is `AGGREGATES` of the bucket.
    """
    if not len(messages):
        nothing = np.zeros(0, np.int64)
        return Tracked(nothing, nothing, AGGREGATES.schema.empty_table())
    m = Messages.of(messages)
    encoded = messages["aggregate_id"].combine_chunks().dictionary_encode()
    ids = encoded.dictionary
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) != 0])
    sizes = np.diff(np.r_[starts, len(order)])
    group_codes = codes[order[starts]]
    known = pc.index_in(ids, value_set=state["aggregate_id"].combine_chunks())
    at = pc.fill_null(known, -1).to_numpy(zero_copy_only=False)[group_codes]
    last = np.full(len(starts), -1, np.int64)
    incarnation = np.zeros(len(starts), np.int64)
    there = at >= 0
    last[there] = _numbers(state, "last_version", -1)[at[there]]
    incarnation[there] = _numbers(state, "incarnation", 0)[at[there]]

    version = m.version[order]
    expected = np.repeat(last + 1 - starts, sizes) + np.arange(len(order))
    before = np.zeros(len(starts), np.int64)
    before[there] = _numbers(state, "before_ns", 0)[at[there]]
    bad = (version != expected) | m.is_damaged[order]
    bad |= m.time_ns[order] <= np.repeat(before, sizes)
    with_gaps = pc.is_in(ids, value_set=gaps.keys()).to_numpy(zero_copy_only=False)[group_codes]
    bad |= m.is_snapshot[order] & np.repeat(with_gaps, sizes)
    slow = np.logical_or.reduceat(bad, starts)

    arrival = np.full(len(order), CODE_OF[Arrival.NEXT], np.int8)
    arrival[starts[~there]] = CODE_OF[Arrival.FIRST]
    in_group = np.repeat(incarnation, sizes)
    work = _Slow(m, state, gaps, order, arrival, in_group)
    work.groups(ids.take(pa.array(group_codes)), starts, sizes, at, np.flatnonzero(slow))

    out_arrival, out_incarnation = np.empty_like(arrival), np.empty_like(in_group)
    out_arrival[order], out_incarnation[order] = arrival, in_group
    aggregates = _advanced(m, state, work, ids, group_codes, order, starts, sizes, at)
    return Tracked(out_arrival, out_incarnation, aggregates)


def _numbers(table: pa.Table, name: str, default: int) -> Numbers:
    found: Numbers = pc.fill_null(table[name], default).to_numpy()
    return found


class _Slow:
    """The groups that are looked at message by message."""

    def __init__(
        self,
        messages: Messages,
        state: pa.Table,
        gaps: OpenRows,
        order: Numbers,
        arrival: Numbers,
        incarnation: Numbers,
    ) -> None:
        """``arrival`` and ``incarnation`` are changed, in the order of the groups."""
        self.messages = messages
        self.state = state
        self.gaps = gaps
        self.order = order
        self.arrival = arrival
        self.incarnation = incarnation
        self.tracks: dict[int, Track] = {}

    def groups(
        self, ids: pa.Array, starts: Numbers, sizes: Numbers, at: Numbers, slow: Numbers
    ) -> None:
        """Look at the messages of the slow groups, in the order of the stream over all of them."""
        if not len(slow):
            return
        m, table = self.messages, self.messages.table
        device_of: dict[int, str | None] = {}
        places: list[tuple[int, int]] = []
        for group in slow.tolist():
            aggregate = ids[group].as_py()
            self.tracks[group] = self.track_of(aggregate, int(at[group]))
            first = int(starts[group])
            device_of[group] = table["device_id"][int(self.order[first])].as_py()
            places += [(place, group) for place in range(first, first + int(sizes[group]))]
        began = self.devices_began({one for one in device_of.values() if one is not None})
        places.sort(key=lambda pair: m.seq[self.order[pair[0]]])
        for place, group in places:
            track, device = self.tracks[group], device_of[group]
            row = int(self.order[place])
            seen = m.seen(row)
            found = track.take(seen, 0 if device is None else began.get(device, 0))
            is_device = table["kind"][row].as_py() == METADATA
            if found is Arrival.RESTART and device is not None and is_device and not seen.version:
                began[device] = max(began.get(device, 0), seen.time_ns)
            self.arrival[place] = LEFT_OUT if found is None else CODE_OF[found]
            self.incarnation[place] = track.of
        for group, track in self.tracks.items():
            if not track.changed:
                continue
            aggregate = ids[group].as_py()
            rows = self.order[starts[group] : starts[group] + sizes[group]]
            known = self.state.slice(max(int(at[group]), 0), int(at[group] >= 0)).to_pylist()
            told = [row for row in rows.tolist() if not m.is_damaged[row]][:1]
            for gap in track.changed:
                one = table.slice(int(rows[0]), 1).to_pylist()[0]
                if known and known[0]["kind"] is not None:
                    one |= {name: known[0][name] for name in ("kind", "href", "owner_id")}
                elif told and m.seq[told[0]] <= gap.found_seq:
                    one = table.slice(told[0], 1).to_pylist()[0]
                self.gaps.put(gap_row(gap, aggregate, one))

    def track_of(self, aggregate: str, at: int) -> Track:
        """An aggregate as it was left."""
        if at < 0:
            return Track()
        row = self.state.slice(at, 1).to_pylist()[0]
        track = Track(
            row["incarnation"],
            row["started_ns"],
            row["last_version"],
            row["last_ns"] or 0,
            list(row["recent"] or ()),
            row["before_ns"] or 0,
            row["first_version"],
        )
        track.gaps = [gap_of(one) for one in self.gaps.of(aggregate) if one["is_open"]]
        return track

    def devices_began(self, devices: set[str]) -> dict[str, int]:
        """The times at which devices were last registered again: their metadata began again with version 0."""
        is_one = pc.and_(
            pc.greater(self.state["incarnation"], 0), pc.equal(self.state["first_version"], 0)
        )
        again = pc.and_(
            pc.and_(is_one, pc.equal(self.state["kind"], METADATA)),
            pc.is_in(self.state["device_id"], value_set=pa.array(sorted(devices), pa.string())),
        )
        found: dict[str, int] = {}
        for row in self.state.filter(again).select(["device_id", "started_ns"]).to_pylist():
            found[row["device_id"]] = max(found.get(row["device_id"], 0), row["started_ns"] or 0)
        return found


def _advanced(
    m: Messages,
    state: pa.Table,
    work: _Slow,
    ids: pa.Array,
    group_codes: Numbers,
    order: Numbers,
    starts: Numbers,
    sizes: Numbers,
    at: Numbers,
) -> pa.Table:
    """The rows of the state of all groups, as they are now."""
    ends = starts + sizes - 1
    there = at >= 0
    columns: dict[str, Any] = {}

    def before(name: str, default: int) -> Numbers:
        values = np.full(len(starts), default, np.int64)
        values[there] = _numbers(state, name, default)[at[there]]
        return values

    taken = work.arrival != LEFT_OUT
    is_event = ~m.is_damaged[order]
    times = m.time_ns[order]
    counts = np.add.reduceat(taken.astype(np.int64), starts)
    dups = np.add.reduceat((~taken & is_event).astype(np.int64), starts) if len(starts) else starts
    top = np.maximum.reduceat(times, starts)
    columns["incarnation"] = work.incarnation[ends]
    columns["last_version"] = m.version[order[ends]].copy()
    columns["last_ns"] = np.maximum(before("last_ns", 0), top)
    columns["last_seq"] = np.maximum(before("last_seq", 0), m.seq[order[ends]])
    columns["events"] = before("events", 0) + counts
    columns["duplicates"] = before("duplicates", 0) + dups
    started = before("started_ns", 0)
    started[~there] = times[starts[~there]]
    columns["before_ns"], columns["first_version"] = (
        before("before_ns", 0),
        before("first_version", 0),
    )
    columns["first_version"][~there] = m.version[order[starts[~there]]]
    recent = _recent(state, times, starts, ends, at)
    no_version = np.zeros(len(starts), bool)
    for group, track in work.tracks.items():
        no_version[group] = track.last_version is None
        columns["incarnation"][group] = track.incarnation
        columns["last_version"][group] = -1 if track.last_version is None else track.last_version
        columns["last_ns"][group] = track.last_ns
        started[group] = track.started_ns or 0
        columns["before_ns"][group] = track.before_ns
        columns["first_version"][group] = track.first_version or 0
        kept = [NONE if one is None else one for one in track.times]
        recent[group] = [*kept, *([NONE] * (TIMES - len(kept)))]
    columns["started_ns"] = started
    groups = ids.take(pa.array(group_codes))
    table = _as_state(m, state, groups, order, starts, ends, at, columns, recent)
    return table.filter(pa.array(~no_version))


def _recent(
    state: pa.Table, times: Numbers, starts: Numbers, ends: Numbers, at: Numbers
) -> Numbers:
    """The times of the last versions of groups that go up by one: theirs, and behind these what was known."""
    old = np.full((len(starts), TIMES), NONE, np.int64)
    if (at >= 0).any():
        there = np.flatnonzero(at >= 0)
        lists = state["recent"].take(pa.array(at[there])).combine_chunks()
        sizes = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        row, place = np.repeat(there, sizes), _places(sizes)
        near = place < TIMES
        values = pc.fill_null(lists.flatten(), NONE).to_numpy(zero_copy_only=False)
        old[row[near], place[near]] = values[near]
    recent: Numbers = np.full_like(old, NONE)
    sizes = ends - starts + 1
    for behind in range(TIMES):
        is_new = sizes > behind
        recent[is_new, behind] = times[ends[is_new] - behind]
        recent[~is_new, behind] = old[~is_new, behind - sizes[~is_new]]
    return recent


def _places(sizes: Numbers) -> Numbers:
    """The place of each item in its list, for lists of these sizes."""
    before: Numbers = np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.arange(len(before)) - before


def _as_state(
    m: Messages,
    state: pa.Table,
    groups: pa.Array,
    order: Numbers,
    starts: Numbers,
    ends: Numbers,
    at: Numbers,
    columns: dict[str, Numbers],
    recent: Numbers,
) -> pa.Table:
    """Rows of `AGGREGATES`: numbers that are known, and texts from the messages or the old rows."""
    firsts = m.table.take(pa.array(order[starts]))
    lasts = m.table.take(pa.array(order[ends]))
    there = at >= 0
    places = pa.array(np.where(there, at, 0), mask=~there)

    def known(name: str) -> Any:
        """The value of the first message, or of another one if the first is damaged."""
        before = state[name].take(places) if len(state) else firsts[name]
        return pc.coalesce(firsts[name], before, lasts[name])

    arrays: dict[str, Any] = {
        "aggregate_id": groups,
        "bucket": firsts["bucket"],
        **{name: known(name) for name in ("kind", "device_id", "href", "owner_id")},
        **{name: pa.array(values, pa.int64()) for name, values in columns.items()},
        "gone_version": state["gone_version"].take(places) if len(state) else None,
        "recent": pa.ListArray.from_arrays(
            np.arange(0, recent.size + 1, TIMES, dtype=np.int32),
            pa.array(recent.ravel(), mask=recent.ravel() == NONE),
        ),
    }
    count = len(starts)
    return pa.table(
        [
            pa.nulls(count, field.type) if arrays[field.name] is None else arrays[field.name]
            for field in AGGREGATES.schema
        ],
        schema=AGGREGATES.schema,
    )


def gap_row(gap: Gap, aggregate: str, first: dict[str, Any]) -> dict[str, Any]:
    """A gap as a row; ``first`` is a message of its aggregate."""
    return {
        "aggregate_id": aggregate,
        **{name: first[name] for name in ("device_id", "href", "kind", "owner_id", "bucket")},
        "incarnation": gap.incarnation,
        "first_version": gap.first,
        "last_version": gap.last,
        "cause": gap.cause.value,
        "missing": gap.missing,
        "remaining": [{"first": a, "last": b} for a, b in gap.remaining],
        "found_at": gap.found_at,
        "found_seq": gap.found_seq,
        "before_ns": gap.before_ns,
        "after_ns": gap.after_ns,
        "closed_at": gap.closed_at,
        "closed_seq": gap.closed_seq,
        "closed_by": gap.closed_by,
        "dead_letter_seq": gap.dead_letter_seq,
        "state_version": gap.state_version,
        "is_open": gap.is_open,
    }


def gap_of(row: dict[str, Any]) -> Gap:
    """The gap of a row."""
    return Gap(
        row["incarnation"],
        row["first_version"],
        row["last_version"],
        Cause(row["cause"]),
        row["found_seq"],
        row["found_at"],
        row["before_ns"],
        row["after_ns"],
        [(one["first"], one["last"]) for one in row["remaining"]],
        dead_letter_seq=row["dead_letter_seq"],
        state_version=row["state_version"],
    )


def gap_key(row: dict[str, Any]) -> Iterable[Any]:
    """The key of a gap."""
    return tuple(row[name] for name in VERSION_GAPS.key)
