"""Versions of one aggregate: which events are new, which came again, and which are missing.

::

    last seen 4    version 5                 next
                   version 8                 gap: 5 to 7 are missing
    5-7 missing    version 6                 late: 5 and 7 are missing still
                   version 8, the same time  a duplicate: left out
                   version 0, newer          restart: the device was deleted and came back
                   version 3, newer          restore: the hub went back, and uses versions again

An event is newer than another if the hub's time says so. A duplicate has the time of its original, which is
never above the latest one that was seen. So one event can be taken for another when a hub was restored: one with a
time before that of an older event, which two pods with different clocks, or two messages in the wrong order, can give.

A message that is no event, but whose envelope names a version, takes its place: the version is missing, and why
is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

DAMAGED_AHEAD = 1000
"""Versions by which a damaged message may be ahead; beyond, its version is taken for damaged too."""

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
        """Take a version out of what is missing."""
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
        """Nothing is missing any more, or nothing is waited for."""
        self.closed_seq, self.closed_at, self.closed_by = seen.seq, seen.received, by


@dataclass(slots=True)
class Track:
    """How far an aggregate was seen. `take` changes it by one message, in the order of the stream."""

    incarnation: int = 0
    started_ns: int | None = None
    last_version: int | None = None
    last_ns: int = 0
    last_version_ns: int | None = None
    before_ns: int = 0
    first_version: int | None = None
    gaps: list[Gap] = field(default_factory=list)
    changed: list[Gap] = field(default_factory=list)
    of: int = 0
    """The incarnation of the last event that was taken."""

    def take(self, seen: Seen, device_began_ns: int = 0) -> Arrival | None:
        """How a message came; None for a duplicate and for one that is no event.

        ``device_began_ns`` is when the metadata of the device began anew: if that is after all that was seen of
        this aggregate, it began anew too, whichever of its versions came first.
        """
        if seen.is_damaged:
            self.damaged(seen)
            return None
        if self.last_version is None:
            self.began(seen)
            return Arrival.FIRST
        if seen.version > self.last_version:
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
        is_newer = seen.time_ns > latest and not self.is_last(seen.version)
        is_other = seen.version == self.last_version and self.last_version_ns is not None
        if is_newer or (is_other and seen.time_ns != self.last_version_ns):
            return self.again(seen, device_began_ns)
        return self.late(seen)

    def is_last(self, version: int) -> bool:
        """Whether a version is missing, and all later ones came damaged: nothing says how late it is."""
        assert self.last_version is not None
        gaps = [gap for gap in self.gaps if gap.incarnation == self.incarnation]
        later = range(version, self.last_version + 1)
        return all(any(gap.has(one) for gap in gaps) for one in later)

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
        self.last_version = seen.version
        self.last_version_ns = seen.time_ns
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
        """An old version with a newer event: versions began anew, or went back."""
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
        self.advance(seen)
        return Arrival.RESTART if is_restart else Arrival.RESTORE

    def fits(self, gap: Gap, seen: Seen) -> bool:
        """Whether an event fills a gap: of this incarnation, or of an earlier one by its time."""
        same = gap.incarnation == self.incarnation
        return (same or seen.time_ns < (self.started_ns or 0)) and gap.has(seen.version)

    def late(self, seen: Seen) -> Arrival | None:
        """An old version: it was missing, or it is a duplicate."""
        for gap in reversed(self.gaps):
            if self.fits(gap, seen):
                gap.take(seen.version)
                self.of = gap.incarnation
                self.last_ns = max(self.last_ns, seen.time_ns)
                if not gap.remaining:
                    gap.close(seen, "repair" if seen.is_repair else "arrival")
                    if gap.cause is Cause.LOST and not seen.is_repair:
                        gap.cause = Cause.LATE
                    self.gaps.remove(gap)
                self.note(gap)
                return Arrival.LATE
        return self.earlier(seen)

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
        self.started_ns = min(self.started_ns or seen.time_ns, seen.time_ns)
        return Arrival.LATE

    def state_restored(self, seen: Seen) -> None:
        """A snapshot: the state of its version is known, whatever is missing before."""
        for gap in self.gaps:
            if gap.incarnation == self.incarnation and gap.last <= seen.version:
                gap.state_version = max(gap.state_version or 0, seen.version)
                self.note(gap)

    def damaged(self, seen: Seen) -> None:
        """A version came as a dead letter: it is missing, and that is why."""
        last = -1 if self.last_version is None else self.last_version
        if self.last_version is None and seen.version > 0:
            return
        if last < seen.version <= last + DAMAGED_AHEAD:
            if seen.version > last + 1:
                self.open(last + 1, seen.version - 1, Cause.LOST, seen)
            gap = self.open(seen.version, seen.version, Cause.DAMAGED, seen)
            gap.dead_letter_seq = seen.seq
            self.last_version, self.last_version_ns = seen.version, None
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
