"""Source networks and times of day for which a user JWT is valid. Pure; the caller gives the time."""

import ipaddress
from datetime import UTC, datetime, time, timedelta, tzinfo

from pelton.server.auth.claims import UserPart, parse_network
from pelton.server.units import SECOND_NS


def from_allowed_network(nats: UserPart, host: str) -> bool:
    """Whether the user may come from this address."""
    if not nats.sources:
        return True
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    for text in nats.sources:
        network = parse_network(text)
        if network is None:
            return False
        if address in network:
            return True
    return False


def allowed_until_ns(nats: UserPart, now_ns: int) -> int | None:
    """The end of the current allowed time of day, in nanoseconds since the epoch; 0: no limit. None
    when the user may not connect now.
    """
    if not nats.times:
        return 0
    now = datetime.fromtimestamp(now_ns / SECOND_NS, _zone(nats.times_location))
    left: timedelta | None = None
    for each in nats.times:
        start, end = _at(now, each.start), _at(now, each.end)
        rest = None
        if start < now < end:
            rest = end - now
        elif start > end:  # across midnight
            if now < end:
                rest = end - now
            elif start < now:
                rest = end + timedelta(days=1) - now
        if rest is not None and (left is None or rest > left):
            left = rest
    return None if left is None else now_ns + round(left.total_seconds() * SECOND_NS)


def _zone(name: str) -> tzinfo:
    if not name:
        return datetime.now(UTC).astimezone().tzinfo or UTC
    import zoneinfo

    return zoneinfo.ZoneInfo(name)


def _at(day: datetime, text: str) -> datetime:
    hours, minutes, seconds = (int(part) for part in text.split(":"))
    return datetime.combine(day.date(), time(hours, minutes, seconds), day.tzinfo)
