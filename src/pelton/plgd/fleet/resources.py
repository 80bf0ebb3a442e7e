"""The resources of simulated devices: their links and bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from random import Random

BASELINE = "oic.if.baseline"
KINDS = ("light", "thermostat", "plug", "cloudDevice")


class Link(NamedTuple):
    """A resource that a device has: its href, types, interfaces and policy bits."""

    href: str
    types: tuple[str, ...]
    interfaces: tuple[str, ...]
    bits: int = 3


COMMON = (
    Link("/oic/p", ("oic.wk.p",), ("oic.if.r", BASELINE)),
    Link("/oc/con", ("oic.wk.con",), ("oic.if.rw", BASELINE)),
    Link("/light/1", ("core.light",), ("oic.if.rw", BASELINE)),
    Link("/switches", ("oic.wk.col",), ("oic.if.ll", "oic.if.create", "oic.if.b", BASELINE)),
    Link("/x.plgd.dev/time", ("x.plgd.dev.time",), ("oic.if.rw", BASELINE)),
    Link("/temperature/1", ("oic.r.temperature",), ("oic.if.s", BASELINE)),
    Link("/humidity/1", ("oic.r.humidity",), ("oic.if.s", BASELINE)),
)
SOMETIMES = (
    Link("/oic/mnt", ("oic.wk.mnt",), ("oic.if.rw", BASELINE), 1),
    Link("/oc/swu", ("oic.r.softwareupdate",), ("oic.if.rw", BASELINE)),
    Link("/energy/1", ("oic.r.energy.consumption",), ("oic.if.s", BASELINE)),
)
SENSORS = ("/temperature/1", "/humidity/1", "/energy/1")
LARGE = 250


def links_of(kind: str, rng: Random, *, large: bool) -> list[Link]:
    """The links of a device: 8 to 11, or 250 of a large one."""
    links = [Link("/oic/d", (f"oic.d.{kind}", "oic.wk.d"), ("oic.if.r", BASELINE)), *COMMON]
    links += [link for link in SOMETIMES if rng.random() < 0.5]
    if large:
        links += [switch(number) for number in range(1, LARGE - len(links) + 1)]
    return links


def switch(number: int) -> Link:
    """A switch of the collection."""
    return Link(f"/switches/{number}", ("oic.r.switch.binary",), ("oic.if.a", BASELINE))


def first_body(href: str, device_id: str, kind: str, rng: Random) -> Any:
    """The body of a resource when its device is new."""
    fixed: dict[str, Any] = {
        "/oic/p": {"pi": device_id, "mnmn": "ocfcloud.com"},
        "/oc/con": {"n": f"{kind} {device_id[:4]}"},
        "/oic/mnt": {"fr": False},
        "/light/1": {"state": False, "power": rng.randrange(101), "name": "Light"},
        "/switches": [],
        "/x.plgd.dev/time": {"time": "", "lastSyncedTime": "", "status": "syncing"},
        "/oc/swu": {
            "nv": "",
            "purl": "",
            "signed": "vendor",
            "swupdateaction": "idle",
            "swupdatestate": "idle",
            "swupdateresult": 0,
            "updatetime": "",
        },
        "/temperature/1": {"temperature": round(rng.uniform(15, 28), 1), "units": "C"},
        "/humidity/1": {"humidity": rng.randrange(20, 80)},
        "/energy/1": {"power": round(rng.uniform(0, 2000), 1), "energy": 0.0},
    }
    if href in fixed:
        return fixed[href]
    if href == "/oic/d":
        return {
            "n": f"{kind} {device_id[:4]}",
            "di": device_id,
            "piid": device_id[::-1],
            "icv": "ocf.2.0.5",
            "dmv": "ocf.res.1.3.0",
            "dmn": [{"language": "en", "value": "ocfcloud.com"}],
            "dmno": "CS-0",
            "sv": f"1.{rng.randrange(10)}",
        }
    return {"value": False}


def next_reading(href: str, body: Any, rng: Random) -> Any:
    """The next body of a sensor; the same object if it moved less than it reports."""
    if href == "/temperature/1":
        moved = round(rng.gauss(0, 0.2), 1)
        return body | {"temperature": round(body["temperature"] + moved, 1)} if moved else body
    if href == "/humidity/1":
        moved = round(rng.gauss(0, 1))
        return {"humidity": min(100, max(0, body["humidity"] + moved))} if moved else body
    power = round(max(0.0, body["power"] + rng.gauss(0, 40)), 1)
    return {"power": power, "energy": round(body["energy"] + power / 360_000, 4)}
