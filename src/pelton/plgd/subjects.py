"""The subjects of the hub's events: parsed, built, and as the patterns that consumers subscribe to.

::

    plgd.owners.{owner}.devices.{device}.resource-links.{type}
    plgd.owners.{owner}.devices.{device}.metadata.{type}
    plgd.owners.{owner}.devices.{device}.resources.{href}.{type}[.leadrt[.{resource type}]]
    plgd.owners.{owner}.registrations.{type}
    events.{device}. ...                              before October 2021: no owner, no registrations

Before hub v2.8 the token of a resource is its aggregate id, since then its href id. A lead resource type
has as many tokens as it has dots, so a pattern must end in ``.>`` to find it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from .ids import aggregate_id, href_id, owner_id, type_id
from .kinds import EVENT_TYPES, EventType, Kind
from .reasons import Reason, UndecodableEventError

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAD = "leadrt"


class Era(StrEnum):
    """The forms of subjects over time; the value is the first hub version with the form."""

    HREF = "v2.8"  # resources by href id
    RESOURCE = "v2.0"  # resources by aggregate id
    EVENTS = "2021-07"  # the same, without owner


@dataclass(frozen=True, slots=True)
class Subject:
    """The parts of a subject, unchanged; ``lead_type`` is "" for a bare ``leadrt``."""

    kind: Kind
    event_type: str
    owner_id: str | None
    device_id: str | None = None
    resource_token: str | None = None
    lead_type: str | None = None


@dataclass(frozen=True)
class LeadType:
    """The publisher's choice of a lead resource type: a regex first, then ``choice``.

    ``patterns`` are regular expressions that match anywhere in a resource type; ``choice`` takes the
    first or the last type if none matched; ``as_uuid`` puts its id into the subject.
    """

    patterns: tuple[str, ...] = ()
    choice: Literal["first", "last", ""] = ""
    as_uuid: bool = False

    def tokens(self, resource_types: Iterable[str]) -> str:
        """The end of a subject, from ``.leadrt`` on."""
        types = list(resource_types)
        chosen = next((t for t in types if any(re.search(p, t) for p in self.patterns)), "")
        if not chosen and types and self.choice:
            chosen = types[0 if self.choice == "first" else -1]
        if not chosen:
            return f".{LEAD}"
        return f".{LEAD}." + (type_id(chosen) if self.as_uuid else re.sub(r"[*>$]", "_", chosen))


def _refuse(subject: str, why: str) -> UndecodableEventError:
    return UndecodableEventError(Reason.SUBJECT, f"{why}: {subject[:200]!r}")


def _known(event_type: str, kind: Kind) -> None:
    """Refuse an event type that no hub publishes at this place."""
    known = EVENT_TYPES.get(event_type)
    if known is None:
        raise UndecodableEventError(Reason.EVENT_TYPE, f"no event type {event_type[:100]!r}")
    if known.kind is not kind:
        raise UndecodableEventError(
            Reason.EVENT_TYPE, f"{event_type} is no event of {kind.value} but of {known.kind.value}"
        )


@lru_cache(maxsize=65_536)
def parse_subject(subject: str) -> Subject:
    """The parts of an event's subject, of every era.

    :raises UndecodableEventError: ``subject`` if it is not that of an event, ``event_type`` if it names a
        type that no hub has there.
    """
    tokens = subject.split(".")
    if "" in tokens:
        raise _refuse(subject, "an empty token")
    owner: str | None
    if tokens[0] == "events" and len(tokens) > 2:
        owner, rest = None, ["devices", *tokens[1:]]
    elif tokens[:2] == ["plgd", "owners"] and len(tokens) > 4:
        owner, rest = tokens[2], tokens[3:]
    else:
        raise _refuse(subject, "not a subject of the hub")
    if rest[0] == Kind.REGISTRATIONS.value and len(rest) == 2:
        _known(rest[1], Kind.REGISTRATIONS)
        return Subject(Kind.REGISTRATIONS, rest[1], owner)
    if rest[0] != "devices":
        raise _refuse(subject, "neither of devices nor of registrations")
    if len(rest) == 4 and rest[2] in {Kind.LINKS.value, Kind.METADATA.value}:
        kind = Kind(rest[2])
        _known(rest[3], kind)
        return Subject(kind, rest[3], owner, rest[1])
    if len(rest) >= 5 and rest[2] == Kind.RESOURCES.value:
        lead = None
        if len(rest) > 5:
            if rest[5] != LEAD:
                raise _refuse(subject, f"tokens after the event type that are no {LEAD}")
            lead = ".".join(rest[6:])
        _known(rest[4], Kind.RESOURCES)
        return Subject(Kind.RESOURCES, rest[4], owner, rest[1], rest[3], lead)
    raise _refuse(subject, "not links, metadata or a resource of a device")


def device_subject(
    event_type: EventType,
    owner: str,
    device_id: str,
    *,
    href: str = "",
    era: Era = Era.HREF,
    lead: str = "",
) -> str:
    """The subject of an event of a device; ``owner`` is the owner id, ``lead`` starts with a dot."""
    start = (
        f"events.{device_id}" if era is Era.EVENTS else f"plgd.owners.{owner}.devices.{device_id}"
    )
    start = f"{start}.{event_type.kind.value}"
    if event_type.kind is not Kind.RESOURCES:
        return f"{start}.{event_type.name}"
    token = href_id(href) if era is Era.HREF else aggregate_id(device_id, href)
    return f"{start}.{token}.{event_type.name}{lead}"


def registration_subject(event_type: EventType, owner: str) -> str:
    """The subject of a registration; ``owner`` is the owner id."""
    return f"plgd.owners.{owner}.{Kind.REGISTRATIONS.value}.{event_type.name}"


_DEVICE = "plgd.owners.{owner}.devices.{device}"
FILTERS: dict[str, str] = {
    "all": "plgd.owners.>",
    "owner": "plgd.owners.{owner}.>",
    "device": f"{_DEVICE}.>",
    "links": f"{_DEVICE}.resource-links.>",
    "links-published": f"{_DEVICE}.resource-links.resourcelinkspublished",
    "links-unpublished": f"{_DEVICE}.resource-links.resourcelinksunpublished",
    "metadata": f"{_DEVICE}.metadata.>",
    "metadata-updated": f"{_DEVICE}.metadata.devicemetadataupdated",
    "metadata-pending": f"{_DEVICE}.metadata.devicemetadataupdatepending",
    "resources": f"{_DEVICE}.resources.>",
    "resource": f"{_DEVICE}.resources.{{href}}.>",
    **{
        name: f"{_DEVICE}.resources.{{href}}.{event_type}"
        for name, event_type in [
            ("changed", "resourcechanged"),
            ("create-pending", "resourcecreatepending"),
            ("created", "resourcecreated"),
            ("retrieve-pending", "resourceretrievepending"),
            ("retrieved", "resourceretrieved"),
            ("update-pending", "resourceupdatepending"),
            ("updated", "resourceupdated"),
            ("delete-pending", "resourcedeletepending"),
            ("deleted", "resourcedeleted"),
        ]
    },
    "registrations": "plgd.owners.{owner}.registrations.>",
}
"""Patterns by name; ``{owner}``, ``{device}`` and ``{href}`` stand for an id or ``*``."""


def named_filter(
    name: str,
    *,
    owner: str = "*",
    device: str = "*",
    href: str = "*",
    lead_type: bool = True,
) -> list[str]:
    """The patterns of a named filter.

    ``owner`` is the owner claim, ``device`` a device id, ``href`` a path such as ``/light/1``; ``*``
    stands for all. A filter for one event type of resources has a second pattern, for subjects with a lead
    resource type, unless ``lead_type`` is false. An unknown name is a ``ValueError``.
    """
    if name not in FILTERS:
        raise ValueError(f"no filter {name!r}; there are {', '.join(FILTERS)}")
    pattern = FILTERS[name].format(
        owner=owner_id(owner), device=device, href=href if href == "*" else href_id(href)
    )
    if lead_type and ".resources." in pattern and not pattern.endswith(".>"):
        return [pattern, f"{pattern}.{LEAD}.>", f"{pattern}.{LEAD}"]
    return [pattern]
