"""Registrations that the stream lacks; pure.

A registration has no version, so no gap shows its loss. But who has a device at the hub has registered
it: a device of the source whose owner's last registration in the stream is none, or an unregistration, is one
whose registration was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ids import owner_id
from ..wire import registrations_pb2 as wire
from .sightings import DELETED_SKEW_NS

if TYPE_CHECKING:
    from .judging import Kept
    from .sightings import Sightings


@dataclass(frozen=True, slots=True)
class LostRegistration:
    """A device that the source has for an owner, and whose registration the stream lacks.

    ``since_ns`` is the time of the oldest event or state that the source has of it.
    """

    device_id: str
    owner: str
    hub_id: str
    since_ns: int

    def message(self) -> Any:
        """The registration; its time is that of the device's oldest event, as nobody knows its own."""
        return wire.DevicesRegistered(
            owner=self.owner,
            device_ids=[self.device_id],
            timestamp=self.since_ns,
            audit_context=wire.AuditContext(user_id=self.owner),
            event_metadata=wire.EventMetadata(hub_id=self.hub_id),
        )

    def as_data(self) -> dict[str, Any]:
        """The registration for JSON."""
        return {"device_id": self.device_id, "owner": self.owner, "since_ns": self.since_ns}


def lost_registration(
    device: list[Kept], owner: str, sightings: Sightings, young_ns: int
) -> LostRegistration | None:
    """The lost registration of a device that the source has for an owner claim, or None.

    Devices younger than ``young_ns`` are left out: their registration may be on its way.
    """
    if not owner or not device or not sightings.takes_registrations:
        return None
    times = [each.timestamp_ns for each in device]
    last_ns = max(times)
    times += [int(event.event_metadata.timestamp) for each in device for event in each.events]
    times = [each for each in times if each > 0]
    seen = sightings.registrations.get(device[0].device_id)
    if seen is not None and seen.registered and seen.owner_id == owner_id(owner):
        return None
    if seen is not None and seen.time_ns + DELETED_SKEW_NS >= last_ns:
        return None  # it has left, and the source is about to forget it
    after_ns = seen.time_ns if seen is not None else 0
    since_ns = min((each for each in times if each > after_ns), default=0)
    if not since_ns or since_ns > young_ns or since_ns < sightings.begin_ns:
        return None  # young, or the stream may have removed it by its limits
    hub_id = str(device[0].snapshot.event_metadata.hub_id)
    return LostRegistration(device[0].device_id, owner, hub_id, since_ns)
