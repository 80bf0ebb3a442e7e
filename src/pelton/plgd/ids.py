"""The ids of the hub, all UUIDs of version 5 in the namespace URL.

::

    owner      the owner claim; a UUID other than the nil UUID is used verbatim (hub v2.4.8 and newer)
    href       href, with its slash: the same for all devices
    aggregate  device id + href; links and metadata have hrefs of their own
"""

from __future__ import annotations

import re
import uuid
from functools import lru_cache

LINKS_HREF = "/plgd/res"
METADATA_HREF = "/plgd/s"
SERVICES_HREF = "/plgd/services"
NIL_UUID = "00000000-0000-0000-0000-000000000000"
_DASHED = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
# the forms that the hub's parser (google/uuid) accepts: it does not look at the two bytes around a UUID
_UUID = re.compile(
    rf"{_DASHED}|[uU][rR][nN]:[uU][uU][iI][dD]:{_DASHED}|[\0-\x7f]{_DASHED}[\0-\x7f]|[0-9a-fA-F]{{32}}",
    re.DOTALL,
)
_NIL = re.compile(rf"{NIL_UUID}|^0{{32}}$")


@lru_cache(maxsize=65_536)
def name_id(name: str) -> str:
    """The UUID of version 5 of a name in the namespace URL, as lower-case text."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


@lru_cache(maxsize=65_536)
def owner_id(claim: str, *, uuid_as_is: bool = True) -> str:
    """The owner id in subjects for the value of the owner claim; ``*`` stays ``*``.

    A UUID stays exactly as it is, also with upper-case letters, braces or ``urn:uuid:``: the hub parses
    it only to see that it is one. ``uuid_as_is=False`` is the rule of hubs before v2.4.8, which hashed
    UUIDs too.
    """
    if claim == "*":
        return claim
    if uuid_as_is and _UUID.fullmatch(claim) and not _NIL.search(claim):
        return claim
    return name_id(claim)


def href_id(href: str) -> str:
    """The id of a resource in subjects of hub v2.8 and newer."""
    return name_id(href)


def type_id(resource_type: str) -> str:
    """The id of a lead resource type, where the hub is configured to use UUIDs."""
    return name_id(resource_type)


def aggregate_id(device_id: str, href: str) -> str:
    """The id of a resource's aggregate; also its token in subjects before hub v2.8."""
    return name_id(device_id + href)


def links_id(device_id: str) -> str:
    """The id of the aggregate of a device's links."""
    return name_id(device_id + LINKS_HREF)


def metadata_id(device_id: str) -> str:
    """The id of the aggregate of a device's metadata."""
    return name_id(device_id + METADATA_HREF)


def services_id(hub_id: str) -> str:
    """The id of the aggregate of a hub's service heartbeats, which are only in the store."""
    return name_id(hub_id + SERVICES_HREF)
