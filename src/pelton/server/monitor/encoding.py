"""Encoding of reports: JSON as Go writes it, uptimes, numbers without a superfluous fraction."""

import json
from typing import Any

from pelton.server.monitor.slices import Slices, encoded
from pelton.server.units import SECOND_NS

_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def to_json(body: object, indent: int | None = 2) -> str:
    """JSON text; indent None: on one line without blanks."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(body, indent=indent, separators=separators, ensure_ascii=False)
    return text.translate(_ESCAPES)  # these characters occur in strings only


def json_in_slices(body: object, indent: int | None = 2) -> Slices[bytes]:
    """As to_json, as bytes and in slices."""
    return encoded(body, indent, _ESCAPES)


def number(value: float) -> float:
    """2.0 becomes 2."""
    return int(value) if value == int(value) else value


def uptime(ns: int) -> str:
    """A time span in whole seconds: 1y2d3h4m5s."""
    seconds = max(ns, 0) // SECOND_NS
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    years, day = divmod(days, 365)
    if years:
        return f"{years}y{day}d{hour}h{minute}m{second}s"
    if days:
        return f"{days}d{hour}h{minute}m{second}s"
    if hours:
        return f"{hours}h{minute}m{second}s"
    return f"{minutes}m{second}s" if minutes else f"{second}s"


def present(**fields: Any) -> dict[str, Any]:
    """The fields that are not empty, 0, false or None, in order."""
    return {name: value for name, value in fields.items() if value}


def text(raw: bytes) -> str:
    """Protocol bytes in readable form."""
    return raw.decode("utf-8", "replace")
