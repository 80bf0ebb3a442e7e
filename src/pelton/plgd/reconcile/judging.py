"""The missing events of one device, their causes, and the repairs; pure.

A store that keeps events has each missing event, so all can be published. A newer hub keeps only
the state of each aggregate. From a state the last change and the pending commands can be published
as events with their own versions; the other missing events are lost, and the state is published
instead, unless the stream has one that is as new.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..kinds import Kind, type_of
from ..projection import PENDINGS, apply, new_snapshot
from .sightings import DELETED_SKEW_NS, END_NS, SKEW_NS, Lineage, Seen, Sightings, Silences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..kinds import EventType

SECOND_NS = 1_000_000_000
COMMANDS = {*PENDINGS, "devicemetadataupdatepending"}


class Cause(StrEnum):
    """Why the stream lacks versions."""

    LOST = "lost"  # the publish failed
    TAIL = "tail"  # the same, and nothing later of the aggregate is there
    OUTAGE = "outage"  # the same, while nothing from any device came
    HIDDEN = (
        "hidden"  # a forced command to a resource that is not published: the hub keeps it to itself
    )
    SNAPSHOT = "snapshot"  # a snapshot of an older hub, which has its own version
    DAMAGED = "damaged"  # a message that is no event came instead
    RETENTION = "retention"  # the stream has deleted it since
    DELETED = "deleted"  # of a device that was deleted: the store has nothing of it
    RESTORED = "restored"  # of a history that the store gave up when it was restored


REASONS = {
    Cause.DELETED: "the store does not have the device any more",
    Cause.RESTORED: "the store was restored, and went another way",
    Cause.RETENTION: "the stream has deleted it; publish it again with refill",
}
NOT_KEPT = "the store keeps only the state"
WOULD_ACT = "a hub would send the command to its device again; publish it with commands"
NO_OWNER = "nobody knows the owner of the device"


@dataclass(frozen=True)
class Policy:
    """Which events may be published.

    ``commands``: also pending commands. A hub that subscribes to the stream's subjects sends such a
    command to its device again, so set it only for streams without such a hub. ``refill``: also
    events that limits or a purge removed from the stream. Events younger than ``grace_s`` are left
    out, because they may be on their way.
    """

    commands: bool = False
    refill: bool = False
    grace_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Kept:
    """An aggregate in the store: its state, and the events that the store keeps."""

    aggregate_id: str
    device_id: str
    owner: str
    snapshot: Any
    events: tuple[Any, ...] = ()
    waiting: frozenset[int] = frozenset()
    """The versions that are in the store's outbox still."""

    @property
    def version(self) -> int:
        """The last version."""
        return int(self.snapshot.event_metadata.version)

    @property
    def timestamp_ns(self) -> int:
        """The time of the state."""
        return int(self.snapshot.event_metadata.timestamp)


@dataclass(slots=True)
class Repair:
    """An event or a state that is published in place of missing events."""

    message: Any
    is_state: bool
    missing: str
    cause: Cause


@dataclass(slots=True)
class Finding:
    """Versions of an aggregate that are missing for one reason, in one row."""

    aggregate_id: str
    device_id: str
    kind: str
    href: str | None
    cause: Cause
    first: int
    last: int
    before_ns: int = 0
    after_ns: int = END_NS
    repairs: list[Repair] = field(default_factory=list)
    unrepaired: dict[int, str] = field(default_factory=dict)
    state_version: int | None = None

    @property
    def count(self) -> int:
        """How many versions are missing."""
        return self.last - self.first + 1

    @property
    def repaired(self) -> int:
        """How many of them are published unchanged."""
        return sum(not repair.is_state for repair in self.repairs)

    def as_data(self) -> dict[str, Any]:
        """The finding for JSON."""
        reasons: dict[str, list[int]] = {}
        for version, reason in self.unrepaired.items():
            reasons.setdefault(reason, []).append(version)
        return {
            "device_id": self.device_id,
            "aggregate_id": self.aggregate_id,
            "kind": self.kind,
            "href": self.href,
            "cause": self.cause.value,
            "first_version": self.first,
            "last_version": self.last,
            "missing": self.count,
            "repaired": self.repaired,
            "state_version": self.state_version,
            "unrepaired": [
                {"reason": reason, "versions": spans(versions)}
                for reason, versions in sorted(reasons.items())
            ],
        }


def spans(versions: Iterable[int]) -> str:
    """Versions as text: ``3-5 9``."""
    return " ".join(f"{a}-{b}" if a != b else str(a) for a, b in runs(versions))


def runs(versions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of each row of versions without a hole."""
    ordered = sorted(versions)
    for _, group in groupby(enumerate(ordered), key=lambda each: each[1] - each[0]):
        numbers = [number for _, number in group]
        yield numbers[0], numbers[-1]


def recoverable(kept: Kept) -> dict[int, Any]:
    """The events that a store has, by version: those that it keeps, and those within the state."""
    snapshot = kept.snapshot
    inside: list[Any] = []
    if hasattr(snapshot, "latest_resource_change"):
        if snapshot.HasField("latest_resource_change"):
            inside.append(snapshot.latest_resource_change)
        for name in PENDINGS.values():
            inside += getattr(snapshot, name)
    elif hasattr(snapshot, "device_metadata_updated"):
        if snapshot.HasField("device_metadata_updated"):
            inside.append(snapshot.device_metadata_updated)
        inside += snapshot.update_pendings
    found = {int(message.event_metadata.version): message for message in inside}
    found.update({int(message.event_metadata.version): message for message in kept.events})
    return found


class Publications:
    """Which hrefs a device had published at a time, as far as the store keeps the events of its links.

    A store that keeps only the state knows the links of today.
    """

    def __init__(self, links: Iterable[Kept]) -> None:
        """``links``: the aggregate of the device's links, if there is one."""
        self._times: list[int] = []
        self._sets: list[frozenset[str]] = []
        for kept in links:
            messages = sorted(kept.events, key=lambda each: int(each.event_metadata.version))
            snapshot = new_snapshot(messages[0]) if messages else kept.snapshot
            for message in messages:
                apply(snapshot, message)
                self._times.append(int(message.event_metadata.timestamp))
                self._sets.append(frozenset(snapshot.resources))
            if not messages:
                self._sets.append(frozenset(snapshot.resources))

    def has(self, href: str, time_ns: int) -> bool:
        """Whether the href was published then."""
        if not self._times:
            return any(href in each for each in self._sets)
        place = bisect_right(self._times, time_ns) - 1
        return href in self._sets[max(place, 0)]


@dataclass
class Case:
    """Compares one aggregate in the stream and in the store; it knows the device's published hrefs."""

    sightings: Sightings
    silences: Silences
    policy: Policy
    now_ns: int
    kept: Kept
    published: Publications

    def __post_init__(self) -> None:
        """Compare."""
        kept = self.kept
        self.seen = self.sightings.aggregates.get(kept.aggregate_id) or Seen(
            kept.aggregate_id, kept.device_id
        )
        self.known = recoverable(kept)
        self.young_ns = self.now_ns - int(self.policy.grace_s * SECOND_NS)
        self.began_ns = self.sightings.began_ns(kept.device_id, kept.timestamp_ns)
        if self.sightings.has_times:
            self.line = self.seen.lineage(kept.timestamp_ns + SKEW_NS, self.began_ns)
        else:
            self.line = Lineage(dict(zip(self.seen.versions, self.seen.times, strict=True)), [])
        if self.sightings.has_times:
            self._correct()
        self.order = sorted(self.line.times)

    def _correct(self) -> None:
        """Use the times of the store's events, which are certain."""
        identities = self.seen.identities()
        for version, message in self.known.items():
            time_ns = int(message.event_metadata.timestamp)
            if (version, time_ns) in identities:
                self.line.times[version] = time_ns
            elif version in self.line.times:
                self.line.others.append((version, self.line.times.pop(version)))

    def missing(self) -> list[int]:
        """The missing versions, without those that are too young."""
        there = self.line.times.keys() | self.kept.waiting
        found = [v for v in range(self.kept.version + 1) if v not in there]
        return [version for version in found if self.time_of(version) <= self.young_ns]

    def time_of(self, version: int) -> int:
        """The earliest time that a missing event can have."""
        message = self.known.get(version)
        if message is not None:
            return int(message.event_metadata.timestamp)
        return self.around(version, version)[1]

    def is_deleted(self, version: int) -> bool:
        """Whether a version may have been in the stream before the stream's first message."""
        begin, message = self.sightings.begin_ns, self.known.get(version)
        if not begin or (self.order and version > self.order[0]):
            return False
        if message is None:
            return bool(self.order) or self.kept.timestamp_ns < begin
        return int(message.event_metadata.timestamp) < begin

    def around(self, first: int, last: int) -> tuple[int, int]:
        """The times of the events before and after missing ones."""
        below, above = bisect_left(self.order, first), bisect_right(self.order, last)
        before = self.line.times[self.order[below - 1]] if below else self.began_ns
        after = self.line.times[self.order[above]] if above < len(self.order) else 0
        return before, after or self.kept.timestamp_ns

    def cause(self, version: int) -> Cause:
        """Why a version is missing; whether it is an outage is not known yet."""
        message = self.known.get(version)
        if version in self.seen.damaged:
            return Cause.DAMAGED
        if self.is_deleted(version):
            return Cause.RETENTION
        if message is not None:
            event_type = type_of(message)
            if event_type.is_snapshot:
                return Cause.SNAPSHOT
            time_ns = int(message.event_metadata.timestamp)
            if event_type.name in PENDINGS and not self.published.has(
                message.resource_id.href, time_ns
            ):
                return Cause.HIDDEN
        return Cause.TAIL if version > self.line.last else Cause.LOST

    def findings(self) -> Iterator[Finding]:
        """The findings of the aggregate, with repairs."""
        kept, event_type = self.kept, type_of(self.kept.snapshot)
        missing = self.missing()
        if not missing:
            return
        href = kept.snapshot.resource_id.href if event_type.kind is Kind.RESOURCES else None
        for cause, group in groupby(missing, key=self.cause):
            for first, last in runs(group):
                before, after = self.around(first, last)
                times = [
                    int(self.known[v].event_metadata.timestamp)
                    for v in range(first, last + 1)
                    if v in self.known
                ]
                finding = Finding(
                    kept.aggregate_id,
                    kept.device_id,
                    event_type.kind.value,
                    href,
                    cause,
                    first,
                    last,
                    max([before, *times[:1]]),
                    min([after, *times[-1:]]),
                )
                self.repair(finding, event_type)
                yield finding

    def repair(self, finding: Finding, event_type: EventType) -> None:
        """Choose the repairs of a finding."""
        if finding.cause is Cause.RETENTION and not self.policy.refill:
            versions = range(finding.first, finding.last + 1)
            finding.unrepaired = dict.fromkeys(versions, REASONS[Cause.RETENTION])
            return
        for version in range(finding.first, finding.last + 1):
            message = self.known.get(version)
            if message is None:
                finding.unrepaired[version] = NOT_KEPT
            elif type_of(message).name in COMMANDS and not self.policy.commands:
                finding.unrepaired[version] = WOULD_ACT
            else:
                finding.repairs.append(Repair(message, False, str(version), finding.cause))
        lost = [v for v, reason in finding.unrepaired.items() if reason is NOT_KEPT]
        if lost and self.seen.state_known(self.line, self.began_ns) < lost[-1]:
            finding.state_version = self.kept.version
            missing = spans(finding.unrepaired)
            finding.repairs.append(Repair(self.kept.snapshot, True, missing, finding.cause))


def judge(
    device: Iterable[Kept], sightings: Sightings, silences: Silences, policy: Policy, now_ns: int
) -> list[Finding]:
    """The findings of one device: for histories that the store has, and for those that it no longer has."""
    all_kept = list(device)
    published = Publications(k for k in all_kept if type_of(k.snapshot).kind is Kind.LINKS)
    found: list[Finding] = []
    for kept in all_kept:
        if type_of(kept.snapshot).kind is Kind.SERVICES:
            continue  # they are never published
        case = Case(sightings, silences, policy, now_ns, kept, published)
        one_state(findings := list(case.findings()))
        found += findings
        seen = sightings.aggregates.get(kept.aggregate_id)
        if seen is not None and sightings.has_times:
            found += given_up(seen, sightings, case.line.others, case.began_ns)
    return found


def one_state(findings: list[Finding]) -> None:
    """An aggregate has one state: the last finding that needs it publishes it."""
    wanting = [f for f in findings if f.state_version is not None]
    for finding in wanting[:-1]:
        finding.repairs = [repair for repair in finding.repairs if not repair.is_state]


def given_up(
    seen: Seen, sightings: Sightings, rows: list[tuple[int, int]], began_ns: int
) -> Iterator[Finding]:
    """Holes in histories that the store does not have: before a deletion, and beside a restore."""
    if rows:
        yield from holes(seen, rows, Cause.RESTORED, whole=False)
    ends = [end for end in deletions(seen, sightings) if end <= began_ns]
    yield from of_deleted(seen, ends)


def deletions(seen: Seen, sightings: Sightings) -> list[int]:
    """When the histories of an aggregate ended because its device was deleted."""
    return sorted(t + DELETED_SKEW_NS for t in sightings.deleted.get(seen.device_id, ()))


def of_deleted(seen: Seen, ends: list[int]) -> Iterator[Finding]:
    """Holes in the histories of a device that were deleted at these times."""
    since = 0
    for end in ends:
        line = seen.lineage(end, since)
        if line.others:
            yield from holes(seen, line.others, Cause.RESTORED, whole=False)
        yield from holes(seen, list(line.times.items()), Cause.DELETED, whole=True)
        since = end


def forgotten(seen: Seen, sightings: Sightings) -> list[Finding]:
    """Holes of an aggregate that the store does not have at all."""
    return list(of_deleted(seen, [*deletions(seen, sightings), END_NS]))


def holes(
    seen: Seen, rows: list[tuple[int, int]], cause: Cause, *, whole: bool
) -> Iterator[Finding]:
    """The versions that are missing among some; with ``whole`` also those before them."""
    times = dict(rows)
    if not times:
        return
    start = 0 if whole else min(times)
    missing = [v for v in range(start, max(times)) if v not in times]
    for first, last in runs(missing):
        reason = REASONS[cause]
        yield Finding(
            seen.aggregate_id,
            seen.device_id,
            "",
            None,
            cause,
            first,
            last,
            max((t for v, t in rows if v < first), default=0),
            min((t for v, t in rows if v > last), default=END_NS),
            unrepaired=dict.fromkeys(range(first, last + 1), reason),
        )


OUTAGE_AGGREGATES = 3


def name_outages(findings: list[Finding], silences: Silences) -> None:
    """Call losses an outage if at least three aggregates lost events while nothing came from any device."""
    touched: dict[tuple[int, int], list[Finding]] = {}
    for finding in findings:
        if finding.cause not in {Cause.LOST, Cause.TAIL}:
            continue
        inside = silences.around(finding.before_ns)
        if inside is not None and finding.after_ns <= inside[1]:
            touched.setdefault(inside, []).append(finding)
            continue
        for span in silences.within(finding.before_ns, finding.after_ns):
            touched.setdefault(span, []).append(finding)
    for found in touched.values():
        if len({finding.aggregate_id for finding in found}) >= OUTAGE_AGGREGATES:
            for finding in found:
                finding.cause = Cause.OUTAGE
                for repair in finding.repairs:
                    repair.cause = Cause.OUTAGE
