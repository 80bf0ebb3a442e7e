"""Links: what each device publishes, by the version that last spoke of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..kinds import EVENT_TYPES
from .rows import time_of
from .schemas import LINKS_CURRENT

if TYPE_CHECKING:
    from .rows import Row

COLUMNS = [
    *("event_type", "device_id", "owner_id", "hub_id", "incarnation", "version", "timestamp_ns"),
    *("time", "seq", "hrefs", "data", "bucket"),
]
DISCOVERABLE, OBSERVABLE = 1, 2


def events_of(events: pa.Table) -> pa.Table:
    """The events of links among others."""
    return events.filter(pc.equal(events["kind"], "resource-links"))


def of_links(events: pa.Table) -> list[Row]:
    """The events of links, in the order of their versions."""
    rows: list[Row] = events_of(events).select(COLUMNS).to_pylist()
    rows.sort(key=lambda row: (row["device_id"], row["incarnation"], row["version"]))
    return rows


class Links:
    """The links of the devices that a batch touches."""

    def __init__(
        self, current: pa.Table, rows: list[Row], gone: dict[str, tuple[int, int]]
    ) -> None:
        """``gone`` are the versions, by device, at which all links were taken back; changed by `apply`."""
        devices = pa.array(sorted({row["device_id"] for row in rows}), pa.string())
        concerned = pc.is_in(current["device_id"], value_set=devices)
        self.rest = current.filter(pc.invert(concerned))
        self.links: dict[str, dict[str, Row]] = {}
        for row in current.filter(concerned).to_pylist():
            self.links.setdefault(row["device_id"], {})[row["href"]] = row
        self.gone = gone
        self.shared_of: Row | None = None
        self.shared: Row = {}

    def apply(self, row: Row) -> None:
        """An event of links."""
        links = self.links.setdefault(row["device_id"], {})
        at = (row["incarnation"], row["version"])
        message = EVENT_TYPES[row["event_type"]].message.FromString(row["data"])
        if row["event_type"] == "resourcelinksunpublished":
            for href in row["hrefs"] or []:
                self.put(links, self.gone_link(row, href))
            if not row["hrefs"]:
                self.all_gone(links, row)
            return
        if row["event_type"] == "resourcelinkssnapshottaken":
            published = list(message.resources.values())  # type: ignore[attr-defined]  # of its class
            self.all_gone(links, row)
        else:
            published = list(message.resources)  # type: ignore[attr-defined]  # of its class
            if row["version"] == 0 and at > self.gone.get(row["device_id"], (0, 0)):
                self.all_gone(links, row)
        for link in published:
            self.put(links, self.link(row, link))

    def all_gone(self, links: dict[str, Row], row: Row) -> None:
        """No link of an older version is published any more."""
        at = (row["incarnation"], row["version"])
        self.gone[row["device_id"]] = max(self.gone.get(row["device_id"], (0, -1)), at)
        for href in list(links):
            self.put(links, self.gone_link(row, href))

    def put(self, links: dict[str, Row], new: Row) -> None:
        """Take a link, unless a newer version spoke of it."""
        at = (new["incarnation"], new["version"])
        old = links.get(new["href"])
        same_version = old is not None and at == (old["incarnation"], old["version"])
        if old is not None and not same_version and at < (old["incarnation"], old["version"]):
            return
        if at < self.gone.get(new["device_id"], (0, -1)):
            new = new | {"is_published": False}
        links[new["href"]] = (
            new
            if new["anchor"] or old is None
            else old
            | {
                name: new[name]
                for name in (
                    "is_published",
                    "incarnation",
                    "version",
                    "time",
                    "timestamp_ns",
                    "seq",
                )
            }
        )

    def said(self, row: Row) -> Row:
        """What an event says of every link; it is shared, not to be changed."""
        if self.shared_of is not row:
            names = ("device_id", "owner_id", "hub_id", "incarnation", "version", "timestamp_ns")
            self.shared = dict.fromkeys(LINKS_CURRENT.schema.names)
            self.shared |= {name: row[name] for name in (*names, "seq", "bucket")}
            self.shared["time"] = time_of(row["timestamp_ns"])
            self.shared_of = row
        return self.shared

    def gone_link(self, row: Row, href: str) -> Row:
        """A link that was taken back."""
        return {**self.said(row), "href": href, "is_published": False}

    def link(self, row: Row, link: Any) -> Row:
        """A link that was published."""
        flags = link.policy.bit_flags
        return {
            **self.said(row),
            "href": link.href,
            "is_published": True,
            "resource_types": list(link.resource_types),
            "interfaces": list(link.interfaces),
            "anchor": link.anchor or f"ocf://{row['device_id']}",
            "title": link.title,
            "content_types": list(link.supported_content_types),
            "is_discoverable": bool(flags & DISCOVERABLE),
            "is_observable": bool(flags & OBSERVABLE),
            "endpoints": [one.endpoint for one in link.endpoint_informations],
        }

    def table(self) -> pa.Table:
        """All links of the bucket."""
        rows = [row for links in self.links.values() for row in links.values()]
        return pa.concat_tables([self.rest, pa.Table.from_pylist(rows, LINKS_CURRENT.schema)])


def current_links(
    current: pa.Table, events: pa.Table, gone: dict[str, tuple[int, int]]
) -> pa.Table | None:
    """The rows of `LINKS_CURRENT` after some events; None if these change nothing."""
    rows = of_links(events)
    if not rows:
        return None
    links = Links(current, rows, gone)
    for row in rows:
        links.apply(row)
    return links.table()
