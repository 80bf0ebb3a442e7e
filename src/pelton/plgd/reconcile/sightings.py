"""The versions of each aggregate in the stream, with their times; pure.

Versions of an aggregate begin at 0 again when its device was deleted, and go back when the hub's
store was restored. So one version may be seen twice, as two events with two times. `Seen.lineage`
tells which events belong to the history that leads to a state::

    time ─►   0 1 2 3 4 5         3 4       the store went back to 2, and used 3 and 4 again
    lineage   0 1 2               3 4       read from the end: each version below the later one
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SKEW_NS = 1_000_000_000
"""By how much the clocks of a hub's pods may differ."""
DELETED_SKEW_NS = 200_000_000
"""The same between an event and the deletion of its device, which may come back at once."""
SILENCE_NS = 5_000_000_000
END_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Row:
    """An aggregate in a table: its newest versions, without their times.

    ``versions`` are those of its last incarnation, in any order; ``state_version`` is that of the last snapshot.
    """

    aggregate_id: str
    device_id: str
    versions: Iterable[int]
    max_version: int = -1
    max_timestamp_ns: int = 0
    state_version: int = -1


@dataclass(slots=True)
class Lineage:
    """The versions of one history: ``times`` by version (0: unknown), and the rows that are of other histories."""

    times: dict[int, int]
    others: list[tuple[int, int]]

    @property
    def last(self) -> int:
        """The greatest version; -1 if there is none."""
        return max(self.times, default=-1)


@dataclass(slots=True)
class Seen:
    """The events that were seen of one aggregate, in any order."""

    aggregate_id: str
    device_id: str
    owner_id: str | None = None
    suffix: str = ""
    versions: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))
    states: list[tuple[int, int]] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)

    def add(self, version: int, time_ns: int) -> None:
        """An event."""
        self.versions.append(version)
        self.times.append(time_ns)

    def identities(self) -> set[tuple[int, int]]:
        """Every event that was seen: version and time."""
        return set(zip(self.versions, self.times, strict=True))

    def lineage(self, until_ns: int = END_NS, since_ns: int = 0) -> Lineage:
        """The history that ends at a time and begins after one; events of other histories are the rest."""
        rows = sorted(
            ((t, v) for v, t in self.identities() if since_ns < t <= until_ns), reverse=True
        )
        times: dict[int, int] = {}
        others: list[tuple[int, int]] = []
        least, least_ns = 1 << 62, END_NS
        for time_ns, version in rows:
            if version < least:
                least, least_ns = version, time_ns
            elif version in times or least_ns - time_ns > SKEW_NS:
                others.append((version, time_ns))
                continue
            times[version] = time_ns
        return Lineage(times, others)

    def state_known(self, line: Lineage, since_ns: int = 0) -> int:
        """The greatest version of a history whose state the stream has as a snapshot; -1 if there is none."""

        def is_of_line(version: int, time_ns: int) -> bool:
            before = max((t for v, t in line.times.items() if v <= version), default=0)
            return not time_ns or (time_ns >= since_ns and before <= time_ns + SKEW_NS)

        return max((version for version, t in self.states if is_of_line(version, t)), default=-1)


class Registered(NamedTuple):
    """The last registration that was seen of a device: its time, and whether it joined or left the owner."""

    time_ns: int
    registered: bool
    owner_id: str | None


class Sightings:
    """All events that were seen, and the time from which on the stream has its messages."""

    def __init__(self, *, begin_ns: int = 0, has_times: bool = True) -> None:
        """``begin_ns``: older events are not on the stream any more. ``has_times`` is false for tables."""
        self.begin_ns = begin_ns
        self.taken_ns: int | None = None
        """When this was true, if that is known: newer events may be there."""
        self.has_times = has_times
        self.aggregates: dict[str, Seen] = {}
        self.deleted: dict[str, list[int]] = {}
        self.registrations: dict[str, Registered] = {}
        self.takes_registrations = False
        """Whether registrations come there at all."""
        self.owners: dict[str, str] = {}
        self.messages = 0
        self.dead_letters = 0
        self.by_aggregate_id: bool | None = None
        """Whether subjects name aggregates, as before hub v2.8; None before a resource was seen."""
        self.leads: dict[tuple[str, ...], str] = {}
        """How subjects of resources with these types end, where lead resource types are in use."""
        self._times: array[int] = array("q")

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Sightings:
        """Sightings from a table of versions."""
        made = cls(has_times=False)
        for row in rows:
            seen = made.seen(row.aggregate_id, row.device_id)
            numbers = sorted(
                set(row.versions) | ({row.max_version} if row.max_version >= 0 else set())
            )
            for version in numbers:
                seen.add(version, row.max_timestamp_ns if version == row.max_version else 0)
            if row.state_version >= 0:
                seen.states.append((row.state_version, 0))
            made.taken_ns = max(made.taken_ns or 0, row.max_timestamp_ns)
        return made

    def seen(self, aggregate_id: str, device_id: str) -> Seen:
        """The entry of an aggregate."""
        found = self.aggregates.get(aggregate_id)
        if found is None:
            found = self.aggregates[aggregate_id] = Seen(aggregate_id, device_id)
        return found

    def event(
        self, aggregate_id: str, device_id: str, owner_id: str | None, version: int, time_ns: int
    ) -> Seen:
        """An event was seen."""
        seen = self.seen(aggregate_id, device_id)
        seen.add(version, time_ns)
        seen.owner_id = owner_id
        if owner_id is not None:
            self.owners[device_id] = owner_id
        self._times.append(time_ns)
        return seen

    def suffix(self, aggregate_id: str, resource_types: tuple[str, ...]) -> str:
        """How a subject of a resource ends: as those of the same resource, else of the same types, were seen."""
        seen = self.aggregates.get(aggregate_id)
        if seen is not None and seen.suffix:
            return seen.suffix
        return self.leads.get(resource_types, ".leadrt" if self.leads else "")

    def registration(
        self, device_id: str, owner_id: str | None, time_ns: int, *, registered: bool
    ) -> None:
        """A device joined its owner, or left it: its versions begin again afterwards."""
        self.takes_registrations = True
        if not registered:
            self.deleted.setdefault(device_id, []).append(time_ns)
        last = self.registrations.get(device_id)
        if last is None or (last.time_ns, last.registered) <= (time_ns, registered):
            self.registrations[device_id] = Registered(time_ns, registered, owner_id)

    def began_ns(self, device_id: str, until_ns: int = END_NS) -> int:
        """When the device was deleted last before a time, and a clock's difference later; 0: never."""
        times = [t for t in self.deleted.get(device_id, ()) if t < until_ns]
        return max(times) + DELETED_SKEW_NS if times else 0

    def silences(self) -> Silences:
        """When nothing came."""
        return Silences(self._times)


class Silences:
    """The times in which the stream got nothing from any device: an outage, if events of such a time are missing."""

    def __init__(self, times: Iterable[int]) -> None:
        """Of the times of all events."""
        ordered = sorted(times)
        self.spans = [
            (before, after) for before, after in pairwise(ordered) if after - before >= SILENCE_NS
        ]
        self._begins = [begin for begin, _ in self.spans]

    def around(self, time_ns: int) -> tuple[int, int] | None:
        """The silence that a time lies in."""
        place = bisect_right(self._begins, time_ns) - 1
        if place >= 0 and time_ns < self.spans[place][1]:
            return self.spans[place]
        return None

    def within(self, before_ns: int, after_ns: int) -> Iterator[tuple[int, int]]:
        """The silences that lie between two times."""
        place = bisect_right(self._begins, before_ns - 1)
        while place < len(self.spans) and self.spans[place][1] <= after_ns:
            yield self.spans[place]
            place += 1
