"""Sightings from the tables of a hub's events, which also have events that the stream has removed
since.

`pelton plgd run` and `backfill` write the tables. The table of gaps has the versions of states
that were published in place of events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError

from ..tables.opening import dataset
from .sightings import Sightings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

EVENTS, DEAD_LETTERS, GAPS, RAW = "events", "dead_letters", "version_gaps", "raw"
COLUMNS = [
    "event_type",
    "is_snapshot",
    "owner_id",
    "device_id",
    "device_ids",
    "lead_type",
    "aggregate_id",
    "version",
    "timestamp_ns",
    "resource_types",
    "received",
]
SUBJECTS = 1000


class NoTablesError(PeltonError):
    """The folder has no table of events."""


def sightings_of_tables(
    folder: str | Path,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Sightings:
    """Every aggregate in the tables of a folder; raises NoTablesError.

    Events that are younger than the newest row of the table are not judged. ``progress`` gets the rows that are
    read, and all of them.
    """
    made = Sightings()
    events = dataset(folder, EVENTS)
    if events is None:
        raise NoTablesError(f"{folder} has no table {EVENTS!r}: not the tables of a hub's events")
    total, done = events.count_rows(), 0
    for batch in events.to_batches(columns=COLUMNS):
        for row in _rows(batch):
            _take(made, *row)
        done += batch.num_rows
        progress(done, total)
    made.messages = total
    letters = dataset(folder, DEAD_LETTERS)
    if letters is not None:
        for batch in letters.to_batches(columns=["device_id", "aggregate_id", "version"]):
            made.dead_letters += batch.num_rows
            for device, aggregate, version in _rows(batch):
                if device and aggregate and version is not None:
                    made.seen(aggregate, device).damaged.add(version)
    gaps = dataset(folder, GAPS)
    if gaps is not None:
        for batch in gaps.to_batches(columns=["device_id", "aggregate_id", "state_version"]):
            for device, aggregate, version in _rows(batch):
                if version is not None:
                    made.seen(aggregate, device).states.append((version, 0))
    made.by_aggregate_id = _names_aggregates(folder, made)
    return made


def _rows(batch: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _take(
    made: Sightings,
    name: str,
    snapshot: bool,
    owner: str | None,
    device: str | None,
    devices: list[str] | None,
    lead: str | None,
    aggregate: str | None,
    version: int | None,
    time_ns: int,
    types: list[str] | None,
    received: Any,
) -> None:
    """Note a row of the events."""
    made.taken_ns = max(made.taken_ns or 0, int(received.timestamp() * 1e9))
    if aggregate is None or device is None or version is None:
        for each in devices or ():
            made.registration(each, owner, time_ns, registered=name == "devicesregistered")
        return
    seen = made.event(aggregate, device, owner, version, time_ns)
    if snapshot:
        seen.states.append((version, time_ns))
    if lead is not None:
        seen.suffix = ".leadrt" + (f".{lead}" if lead else "")
        made.leads[tuple(types or ())] = seen.suffix


def _names_aggregates(folder: str | Path, made: Sightings) -> bool | None:
    """Whether subjects name aggregates, by the messages as they came; None if that cannot be told."""
    raw = dataset(folder, RAW)
    if raw is None:
        return None
    for subject in raw.head(SUBJECTS, columns=["subject"]).column("subject").to_pylist():
        _, found, rest = subject.partition(".resources.")
        if found:
            return rest.partition(".")[0] in made.aggregates
    return None
