"""Versions of one aggregate: which events are new, which are duplicates, and which are missing.

::

    last seen 4    version 5                 next
                   version 8                 gap: 5 to 7 are missing
    5-7 missing    version 6                 late: 5 and 7 are missing still
                   version 8, the same time  a duplicate: left out
                   version 0, newer          restart: the device was deleted and came back
                   version 3, newer          restore: the hub went back, and uses versions again
                   version 3, another time   restore: the same, but version 4 came first

A version and a time identify an event. The times of the last versions are kept; they show whether a
message with one of these versions is the event that was seen, or another one, whatever the clocks
and the order of messages. For older versions an event is new if its time is later than all times
that were seen, because a duplicate has the time of its original.

If a message is no event, but its envelope names a version, that version is missing with the cause
`damaged`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

DAMAGED_AHEAD = 1000
"""Versions by which a damaged message may be ahead; beyond, its version is taken for damaged too."""

TIMES = 4
"""Of so many versions, up to the last one, the times are kept."""

SKEW_NS = 1_000_000_000
"""By how much the clocks of two pods of a hub may differ: a missing event may be newer than a later version."""


class Arrival(StrEnum):
    """How an event came; the value is in the column `arrival`."""

    FIRST = "first"
    NEXT = "next"
    GAP = "gap"
    LATE = "late"
    RESTART = "restart"
    RESTORE = "restore"


class Cause(StrEnum):
    """Why a version was missing; the value is in the column `cause`."""

    LOST = "lost"
    LATE = "late"
    DAMAGED = "damaged"
    PREFIX = "prefix"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class Seen:
    """One message of an aggregate, as far as versions are concerned."""

    version: int
    time_ns: int
    seq: int
    received: Any
    is_snapshot: bool = False
    is_damaged: bool = False
    is_repair: bool = False


@dataclass(slots=True)
class Gap:
    """A range of versions that was missing; ``remaining`` is what still is."""

    incarnation: int
    first: int
    last: int
    cause: Cause
    found_seq: int
    found_at: Any
    before_ns: int | None = None
    after_ns: int | None = None
    remaining: list[tuple[int, int]] = field(default_factory=list)
    closed_seq: int | None = None
    closed_at: Any = None
    closed_by: str | None = None
    dead_letter_seq: int | None = None
    state_version: int | None = None

    @property
    def missing(self) -> int:
        """How many versions are missing still."""
        return sum(last - first + 1 for first, last in self.remaining)

    @property
    def is_open(self) -> bool:
        """Whether any is."""
        return self.closed_by is None

    def has(self, version: int) -> bool:
        """Whether a version is missing still."""
        return any(first <= version <= last for first, last in self.remaining)

    def take(self, version: int) -> None:
        """Remove a version from the missing ones."""
        left: list[tuple[int, int]] = []
        for first, last in self.remaining:
            if not first <= version <= last:
                left.append((first, last))
                continue
            if first < version:
                left.append((first, version - 1))
            if version < last:
                left.append((version + 1, last))
        self.remaining = left

    def close(self, seen: Seen, by: str) -> None:
        """Close the gap: nothing is missing, or it is no longer waited for."""
        self.closed_seq, self.closed_at, self.closed_by = seen.seq, seen.received, by


@dataclass(slots=True)
class Track:
    """How far an aggregate was seen. `take` changes it by one message, in the order of the stream."""

    incarnation: int = 0
    started_ns: int | None = None
    last_version: int | None = None
    last_ns: int = 0
    times: list[int | None] = field(default_factory=list)
    """The times of the last version and of those before it, None for one that was not seen; `TIMES` at most."""
    before_ns: int = 0
    first_version: int | None = None
    gaps: list[Gap] = field(default_factory=list)
    changed: list[Gap] = field(default_factory=list)
    of: int = 0
    """The incarnation of the last event that was taken."""

    def take(self, seen: Seen, device_began_ns: int = 0) -> Arrival | None:
        """How a message came; None for a duplicate and for one that is no event.

        ``device_began_ns`` is when the metadata of the device began again. If that is after all
        events of this aggregate, the aggregate began again too, whichever of its versions came
        first.
        """
        if seen.is_damaged:
            self.damaged(seen)
            return None
        if self.last_version is None:
            self.began(seen)
            return Arrival.FIRST
        if seen.version > self.last_version:
            if self.incarnation and seen.time_ns <= self.before_ns:
                return self.late(seen)  # of the versions that were used before
            is_next = seen.version == self.last_version + 1
            if not is_next:
                self.open(self.last_version + 1, seen.version - 1, Cause.LOST, seen)
            self.advance(seen)
            return Arrival.NEXT if is_next else Arrival.GAP
        if seen.is_snapshot:
            self.state_restored(seen)
            if not any(self.fits(gap, seen) for gap in self.gaps):
                return None
        fits = any(self.fits(gap, seen) for gap in self.gaps)
        latest = self.last_ns + (SKEW_NS if fits else 0)
        known = self.time_of(seen.version)
        if known == seen.time_ns:
            return None
        if not fits and self.is_earlier(seen):
            return self.earlier(seen)
        if known is not None and not fits and seen.time_ns > self.before_ns:
            return self.other(seen, known, device_began_ns)
        if seen.time_ns > latest and not self.is_last(seen.version):
            return self.again(seen, device_began_ns)
        return self.late(seen)

    def time_of(self, version: int) -> int | None:
        """The time of a version that was seen, if it is still known."""
        assert self.last_version is not None
        behind = self.last_version - version
        return self.times[behind] if 0 <= behind < len(self.times) else None

    def timed(self, version: int, time_ns: int | None) -> None:
        """Keep the time of a version; with a new last version, or one that went back, the others move."""
        last = -1 if self.last_version is None else self.last_version
        if version > last:
            unknown = [None] * min(version - last - 1, TIMES)
            self.times = [time_ns, *unknown, *self.times][:TIMES]
            self.last_version = version
        elif last - version < len(self.times):
            self.times[last - version] = time_ns

    def back_to(self, version: int) -> None:
        """Versions from one on are used again."""
        assert self.last_version is not None
        self.times = self.times[self.last_version - version + 1 :]
        self.last_version = version - 1

    def other(self, seen: Seen, known_ns: int, device_began_ns: int) -> Arrival:
        """An event with a version that another event has: the hub went back to before it.

        If the next version is newer, it came too early, and was taken for the successor of the old
        event.
        """
        behind = self.time_of(seen.version + 1) if seen.version != self.last_version else None
        if behind is None or behind + SKEW_NS < seen.time_ns:
            return self.again(seen, device_began_ns)
        self.before_ns = max(self.before_ns, known_ns)
        self.timed(seen.version, seen.time_ns)
        self.of = self.incarnation
        return Arrival.RESTORE

    def is_last(self, version: int) -> bool:
        """Whether a version is missing and all later ones are damaged, so that its delay is unknown."""
        assert self.last_version is not None
        missing = (
            part
            for gap in self.gaps
            if gap.incarnation == self.incarnation
            for part in gap.remaining
        )
        due = version
        for first, last in sorted(missing):
            if first <= due <= last:
                due = last + 1
        return due > self.last_version

    def began(self, seen: Seen) -> None:
        """The first event that was seen; versions before it are unknown."""
        self.started_ns = seen.time_ns
        self.last_version = -1
        if seen.version > 0:
            self.open(0, seen.version - 1, Cause.PREFIX, seen)
        self.advance(seen)

    def advance(self, seen: Seen) -> None:
        """An event with the greatest version."""
        self.of = self.incarnation
        self.timed(seen.version, seen.time_ns)
        self.last_ns = max(self.last_ns, seen.time_ns)
        if self.started_ns is None:
            self.started_ns = seen.time_ns
        if self.first_version is None:
            self.first_version = seen.version
        if seen.is_snapshot:
            self.state_restored(seen)

    def open(self, first: int, last: int, cause: Cause, seen: Seen) -> Gap:
        """A range of versions is missing."""
        gap = Gap(
            self.incarnation,
            first,
            last,
            cause,
            seen.seq,
            seen.received,
            before_ns=self.last_ns or None,
            after_ns=None if seen.is_damaged else seen.time_ns,
            remaining=[(first, last)],
        )
        self.gaps.append(gap)
        self.note(gap)
        return gap

    def note(self, gap: Gap) -> None:
        """A gap is new or has changed."""
        if not any(gap is one for one in self.changed):
            self.changed.append(gap)

    def again(self, seen: Seen, device_began_ns: int) -> Arrival:
        """An old version with a newer event: versions began again, or went back."""
        assert self.last_version is not None
        if seen.is_repair and any(self.fits(gap, seen) for gap in self.gaps):
            return self.late(seen) or Arrival.LATE
        is_restart = seen.version == 0 or self.last_ns < device_began_ns
        if not is_restart:
            gap = self.open(seen.version, self.last_version, Cause.RESTORE, seen)
            gap.incarnation = self.incarnation + 1
            gap.remaining = []
            gap.close(seen, "restore")
            self.gaps.remove(gap)
        self.incarnation += 1
        self.started_ns = seen.time_ns
        self.before_ns, self.first_version = self.last_ns, None
        if is_restart and seen.version > 0:
            self.open(0, seen.version - 1, Cause.LOST, seen)
        self.back_to(0 if is_restart else seen.version)
        self.advance(seen)
        return Arrival.RESTART if is_restart else Arrival.RESTORE

    def fits(self, gap: Gap, seen: Seen) -> bool:
        """Whether an event fills a gap: of this incarnation, or of an earlier one by its time."""
        if not gap.has(seen.version):
            return False
        if gap.incarnation == self.incarnation:
            return True
        behind = self.before_ns if gap.after_ns is None else gap.after_ns
        return seen.time_ns < (self.started_ns or 0) and seen.time_ns <= behind + SKEW_NS

    def late(self, seen: Seen) -> Arrival | None:
        """An old version: it was missing, or it is a duplicate."""
        for gap in reversed(self.gaps):
            if self.fits(gap, seen):
                gap.take(seen.version)
                self.of = gap.incarnation
                if gap.incarnation == self.incarnation:
                    self.timed(seen.version, seen.time_ns)
                self.last_ns = max(self.last_ns, seen.time_ns)
                if not gap.remaining:
                    gap.close(seen, "repair" if seen.is_repair else "arrival")
                    if gap.cause is Cause.LOST and not seen.is_repair:
                        gap.cause = Cause.LATE
                    self.gaps.remove(gap)
                self.note(gap)
                return Arrival.LATE
        return self.earlier(seen)

    def is_earlier(self, seen: Seen) -> bool:
        """Whether an event is of this incarnation, which began behind another, but from before its first one."""
        first, began = self.first_version, self.started_ns or 0
        is_before = bool(self.incarnation) and first is not None and seen.version < first
        return is_before and self.before_ns < seen.time_ns <= began + SKEW_NS

    def earlier(self, seen: Seen) -> Arrival | None:
        """A version before the first one of an incarnation that began behind another: newer than all of that one."""
        first = self.first_version
        if not self.incarnation or first is None or seen.version >= first:
            return None
        if seen.time_ns <= self.before_ns:
            return None
        if seen.version + 1 < first:
            self.open(seen.version + 1, first - 1, Cause.LOST, seen)
        self.of, self.first_version = self.incarnation, seen.version
        self.timed(seen.version, seen.time_ns)
        self.started_ns = min(self.started_ns or seen.time_ns, seen.time_ns)
        return Arrival.LATE

    def state_restored(self, seen: Seen) -> None:
        """A snapshot has the state of its version, even if earlier versions are missing."""
        for gap in self.gaps:
            if gap.incarnation == self.incarnation and gap.last <= seen.version:
                gap.state_version = max(gap.state_version or 0, seen.version)
                self.note(gap)

    def damaged(self, seen: Seen) -> None:
        """A version that arrived as a dead letter is missing, with the cause `damaged`."""
        last = -1 if self.last_version is None else self.last_version
        if self.last_version is None and seen.version > 0:
            return
        if last < seen.version <= last + DAMAGED_AHEAD:
            if seen.version > last + 1:
                self.open(last + 1, seen.version - 1, Cause.LOST, seen)
            gap = self.open(seen.version, seen.version, Cause.DAMAGED, seen)
            gap.dead_letter_seq = seen.seq
            self.timed(seen.version, None)
            return
        for gap in self.gaps:
            if gap.incarnation == self.incarnation and gap.has(seen.version):
                self.split(gap, seen)
                return

    def split(self, gap: Gap, seen: Seen) -> None:
        """A version of a gap turns out to be damaged; a gap of this version alone says so."""
        if gap.dead_letter_seq is None:
            gap.dead_letter_seq = seen.seq
        if gap.first == gap.last:
            gap.cause = Cause.DAMAGED
        self.note(gap)
