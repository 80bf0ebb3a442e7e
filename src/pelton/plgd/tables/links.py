"""The links that each device publishes, by the last version that mentions each.

A row has two sources: the last event that says whether the link is published, and the last event
that describes it. Both are the same event until the link is unpublished. Decisions are made link by
link; the columns of all are put together at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..kinds import EVENT_TYPES
from .schemas import LINKS_CURRENT

if TYPE_CHECKING:
    from .rows import Row

SAID = ("incarnation", "version", "timestamp_ns", "time", "seq")
SHARED = ("device_id", "owner_id", "hub_id", "bucket")
DESCRIBED = (
    *("href", "resource_types", "interfaces", "anchor", "title", "content_types"),
    *("is_discoverable", "is_observable", "endpoints"),
)
DECISIVE = ["event_type", "device_id", "incarnation", "version", "hrefs", "data"]
ORDER = [(name, "ascending") for name in ("device_id", "incarnation", "version")]
DISCOVERABLE, OBSERVABLE = 1, 2


def events_of(events: pa.Table) -> pa.Table:
    """The events of links among others."""
    return events.filter(pc.equal(events["kind"], "resource-links"))


@dataclass(slots=True)
class Link:
    """A link: the last version that mentions it, whether it is published, and the rows of both sources."""

    at: tuple[int, int]
    is_published: bool
    said: int
    described: int


class Links:
    """The links of the devices that a batch touches; rows are those that were known, then those of the batch."""

    def __init__(
        self, current: pa.Table, events: pa.Table, gone: dict[str, tuple[int, int]]
    ) -> None:
        """``gone`` are the versions, by device, at which all links were taken back; changed by `apply`."""
        devices = events["device_id"].combine_chunks().unique()
        concerned = pc.is_in(current["device_id"], value_set=devices)
        self.rest = current.filter(pc.invert(concerned))
        self.known = current.filter(concerned)
        self.events = events
        self.gone = gone
        self.links: dict[str, dict[str, Link]] = {}
        self.new: list[tuple[Any, ...]] = []
        names = ["device_id", "href", "incarnation", "version", "is_published"]
        columns = [self.known[name].to_pylist() for name in names]
        for place, row in enumerate(zip(*columns, strict=True)):
            device, href, incarnation, version, is_published = row
            link = Link((incarnation, version), is_published, place, place)
            self.links.setdefault(device, {})[href] = link

    def run(self) -> None:
        """Take all events, which are in the order of their versions."""
        for place, row in enumerate(self.events.select(DECISIVE).to_pylist()):
            self.apply(place, row)

    def apply(self, place: int, row: Row) -> None:
        """An event of links."""
        device, at = row["device_id"], (row["incarnation"], row["version"])
        links = self.links.setdefault(device, {})
        message = EVENT_TYPES[row["event_type"]].message.FromString(row["data"])
        if row["event_type"] == "resourcelinksunpublished":
            for href in row["hrefs"] or []:
                self.take_back(links, href, place, at)
            if not row["hrefs"]:
                self.all_gone(device, place, at)
            return
        if row["event_type"] == "resourcelinkssnapshottaken":
            published = list(message.resources.values())  # type: ignore[attr-defined]  # of its class
            self.all_gone(device, place, at)
        else:
            published = list(message.resources)  # type: ignore[attr-defined]  # of its class
            if row["version"] == 0 and at > self.gone.get(device, (0, 0)):
                self.all_gone(device, place, at)
        is_published = at >= self.gone.get(device, (0, -1))
        said = len(self.known) + place
        for link in published:
            old = links.get(link.href)
            if old is None or at >= old.at:
                described = self.describe(place, link, device)
                links[link.href] = Link(at, is_published, said, described)

    def all_gone(self, device: str, place: int, at: tuple[int, int]) -> None:
        """No link of an older version is published any more."""
        links = self.links[device]
        self.gone[device] = max(self.gone.get(device, (0, -1)), at)
        for href in list(links):
            self.take_back(links, href, place, at)

    def take_back(self, links: dict[str, Link], href: str, place: int, at: tuple[int, int]) -> None:
        """A link is no longer published, unless a newer version mentions it."""
        old = links.get(href)
        if old is None:
            self.new.append((place, href, *[None] * (len(DESCRIBED) - 1)))
            described = len(self.known) + len(self.new) - 1
        elif at < old.at:
            return
        else:
            described = old.described
        links[href] = Link(at, False, len(self.known) + place, described)

    def describe(self, place: int, link: Any, device: str) -> int:
        """Note a published link of an event; returns its row."""
        flags = link.policy.bit_flags
        endpoints = link.endpoint_informations
        self.new.append(
            (
                place,
                link.href,
                list(link.resource_types),
                list(link.interfaces),
                link.anchor or f"ocf://{device}",
                link.title,
                list(link.supported_content_types),
                bool(flags & DISCOVERABLE),
                bool(flags & OBSERVABLE),
                [one.endpoint for one in endpoints] if endpoints else [],
            )
        )
        return len(self.known) + len(self.new) - 1

    def table(self) -> pa.Table:
        """All links of the bucket."""
        found = [link for links in self.links.values() for link in links.values()]
        said = pa.array([link.said for link in found], pa.int64())
        described = pa.array([link.described for link in found], pa.int64())
        columns = list(zip(*self.new, strict=True)) or [()] * (len(DESCRIBED) + 1)
        place = pa.array(columns[0], pa.int64())
        new = dict(zip(DESCRIBED, columns[1:], strict=True))
        arrays = []
        for field in LINKS_CURRENT.schema:
            name, known = field.name, self.known[field.name].combine_chunks()
            if name == "is_published":
                arrays.append(pa.array([link.is_published for link in found], field.type))
                continue
            if name in SAID:
                more, rows = self.said(name), said
            elif name in SHARED:
                more, rows = self.said(name).take(place), described
            else:
                more, rows = pa.array(new[name], field.type), described
            arrays.append(pa.concat_arrays([known, more.cast(field.type)]).take(rows))
        return pa.concat_tables([self.rest, pa.table(arrays, schema=LINKS_CURRENT.schema)])

    def said(self, name: str) -> pa.Array:
        """A column of the events; a time that they lack is null."""
        if name != "time":
            return self.events[name].combine_chunks()
        ns = self.events["timestamp_ns"].fill_null(0).to_numpy()
        return pa.array(ns // 1000, pa.timestamp("us", tz="UTC"), mask=ns == 0)


def current_links(
    current: pa.Table, events: pa.Table, gone: dict[str, tuple[int, int]]
) -> pa.Table | None:
    """The rows of `LINKS_CURRENT` after some events of links; None without any. ``gone`` is brought up to date."""
    if not len(events):
        return None
    links = Links(current, events.sort_by(ORDER), gone)
    links.run()
    return links.table()
