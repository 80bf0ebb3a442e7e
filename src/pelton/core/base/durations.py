"""Durations as Go writes and reads them (`1h2m3.5s`): the protocol has them in its texts."""

from __future__ import annotations

import re

UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_LETTERS_MOST = 1000  # nothing that long is meant
_MAX_NS = (1 << 63) - 1


def parse_duration(text: str) -> int | None:
    """Nanoseconds of a Go duration text (`5s`, `1h30m`, `-1.5ms`, `0`); None when it is none."""
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, at = 0, 0
    if len(rest) > _LETTERS_MOST:
        return None
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            return None
        number, unit = part.groups()
        whole, _, fraction = number.partition(".")
        scale = UNITS_NS[unit]
        total += int(whole or "0") * scale
        if fraction:
            total += int(fraction) * scale // 10 ** len(fraction)
        at = part.end()
    if at == 0 or total > _MAX_NS:
        return None
    return sign * total


def format_duration(ns: int) -> str:
    """The text Go prints for a duration: `0s`, `1.5ms`, `2m0s`, `1h0m0s`."""
    if ns == 0:
        return "0s"
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    for unit, scale in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if ns < scale * 1_000:
            return f"{sign}{_decimal(ns, scale)}{unit}"
    hours, ns = divmod(ns, 3_600_000_000_000)
    minutes, ns = divmod(ns, 60_000_000_000)
    seconds = _decimal(ns, 1_000_000_000) + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(value: int, scale: int) -> str:
    whole, rest = divmod(value, scale)
    if not rest:
        return str(whole)
    return f"{whole}.{rest:0{len(str(scale)) - 1}d}".rstrip("0")
