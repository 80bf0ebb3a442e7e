"""From a stream to sightings: every event of the hub that it holds, in bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.client.sync.columns import read_range
from pelton.client.sync.gets import read_stored
from pelton.core.protocol.subjects import collide

from ..codec import decode_version
from ..columns import decode_batch
from ..ids import owner_id
from ..tables.settings import REPAIR_HEADER
from .sightings import END_NS, Sightings

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.sync.jetstream import JetStream

STATE = "state"
_REPAIR_STATE = f"{REPAIR_HEADER}: {STATE}".encode()
COLUMNS = [
    "error",
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
]


def scan(
    js: JetStream,
    stream: str,
    *,
    owner: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Sightings:
    """The events of all devices, or of an owner's devices, in a stream; raises StreamNotFoundError and
    errors of reading.

    ``progress`` gets the sequence that was read and the last one.
    """
    info = js.stream_info(stream)
    state = info.state
    sightings = Sightings(begin_ns=_begin_ns(js, stream, state))
    of_owner = "*" if owner is None else owner_id(owner)
    registered = f"plgd.owners.{of_owner}.registrations.devicesregistered"
    sightings.takes_registrations = any(
        collide(registered, subject) for subject in info.config.subjects or ()
    )
    if not state.messages:
        return sightings
    subjects = [f"plgd.owners.{of_owner}.>"]
    if owner is None and any(
        s.split(".")[0] in {"events", ">", "*"} for s in info.config.subjects or []
    ):
        subjects.append("events.>")
    read = read_range if info.config.retention == "limits" else read_stored
    for columns in read(js, stream, state.first_seq, state.last_seq + 1, filter_subjects=subjects):
        take(sightings, columns.rows())
        progress(columns.last_seq, state.last_seq)
    return sightings


def _begin_ns(js: JetStream, stream: str, state: Any) -> int:
    """The time before which the stream has lost its messages by its limits or a purge; 0: it has all."""
    if state.first_seq <= 1:
        return 0
    if not state.messages:
        return END_NS
    return int(js.get_message(stream, state.first_seq).timestamp_ns)


def take(sightings: Sightings, rows: list[tuple[int, int, str, bytes, bytes]]) -> None:
    """Note messages of a stream: sequence, time, subject, headers, payload."""
    if not rows:
        return
    sightings.messages += len(rows)
    table = decode_batch([row[2] for row in rows], [row[4] for row in rows]).select(COLUMNS)
    decoded = zip(*(column.to_pylist() for column in table.columns), strict=True)
    for row, values in zip(rows, decoded, strict=True):
        _, _, subject, headers, payload = row
        error, name, snapshot, owner, device, devices, lead, aggregate, version, time_ns, types = (
            values
        )
        if error is not None:
            _damaged(sightings, payload)
        elif aggregate is None:
            for each in devices or ():
                joined = name == "devicesregistered"
                sightings.registration(each, owner, time_ns, registered=joined)
        elif snapshot and _REPAIR_STATE in headers:
            sightings.seen(aggregate, device).states.append((version, time_ns))
        else:
            seen = sightings.event(aggregate, device, owner, version, time_ns)
            if snapshot:
                seen.states.append((version, time_ns))
            if sightings.by_aggregate_id is None and ".resources." in subject:
                tokens = subject.split(".")
                sightings.by_aggregate_id = tokens[tokens.index("resources") + 1] == aggregate
            if lead is not None:
                seen.suffix = ".leadrt" + (f".{lead}" if lead else "")
                sightings.leads[tuple(types or ())] = seen.suffix


def _damaged(sightings: Sightings, payload: bytes) -> None:
    """Note a message that is no event; its envelope may say which version it was to be."""
    sightings.dead_letters += 1
    found = decode_version(payload)
    if found is not None:
        device, aggregate, version = found
        sightings.seen(aggregate, device).damaged.add(version)
