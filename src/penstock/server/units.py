"""Sizes, durations and addresses as people write them in options and configuration files.

Knows nothing of where the text came from; every function raises ValueError with a sentence that
names the text.
"""

import re

SECOND_NS = 1_000_000_000

_DURATION_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND_NS,
    "m": 60 * SECOND_NS,
    "h": 3600 * SECOND_NS,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> int:
    """A Go duration (``2m``, ``1h30m``, ``250ms``, ``0``) in nanoseconds."""
    body = text.strip()
    sign = 1
    if body[:1] in "+-" and body:
        sign = -1 if body[0] == "-" else 1
        body = body[1:]
    if body == "0":
        return 0
    at = 0
    total = 0.0
    whole = 0
    while at < len(body):
        part = _DURATION_PART.match(body, at)
        if part is None:
            break
        number, unit = part.groups()
        if "." in number:
            total += float(number) * _DURATION_UNITS_NS[unit]
        else:
            whole += int(number) * _DURATION_UNITS_NS[unit]
        at = part.end()
    if not body or at != len(body):
        raise ValueError(f'"{text}" is not a duration such as 250ms, 10s, 2m or 1h30m')
    return sign * (whole + round(total))


def format_duration(ns: int) -> str:
    """Nanoseconds as Go prints a duration: ``2m0s``, ``1.5s``, ``250ms``, ``0s``."""
    if ns == 0:
        return "0s"
    sign = "-" if ns < 0 else ""
    ns = abs(ns)
    if ns < SECOND_NS:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000)):
            if ns >= size:
                return f"{sign}{_trim(ns, size)}{unit}"
        return f"{sign}{ns}ns"
    minutes, rest = divmod(ns, 60 * SECOND_NS)
    hours, minutes = divmod(minutes, 60)
    text = f"{_trim(rest, SECOND_NS)}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def _trim(ns: int, unit: int) -> str:
    whole, rest = divmod(ns, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{str(rest).rjust(digits, '0').rstrip('0')}"


def parse_address(text: str, default_host: str, default_port: int) -> tuple[str, int]:
    """``host:port``, ``:port``, ``port`` or ``[v6]:port`` as (host, port); port -1 means any free
    one.
    """
    body = text.strip()
    host, colon, port = body.rpartition(":")
    if body.startswith("[") and body.endswith("]"):
        host, colon, port = body, ":", str(default_port)
    if not colon and not re.fullmatch(r"-?\d+", port):
        host, port = body, str(default_port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(
            f'"{text}" is not an address; write an IPv6 host in brackets, as [::1]:4222'
        )
    return host or default_host, parse_port(port)


def parse_port(text: str) -> int:
    """A TCP port; -1 means any free one."""
    if re.fullmatch(r"-?\d+", text.strip()):
        port = int(text)
        if port == -1 or 0 <= port <= 65535:
            return port
    raise ValueError(f'"{text}" is not a port: a number up to 65535, or -1 for any free one')


def format_size(size: int) -> str:
    """Bytes for people: ``512 B``, ``1.00 KB``, ``58.55 GB`` (1024s, as the start-up lines print
    them).
    """
    if size < 1024:
        return f"{size} B"
    units = ("KB", "MB", "GB", "TB", "PB", "EB")
    power = min((size.bit_length() - 1) // 10, len(units))
    return f"{size / 1024**power:.2f} {units[power - 1]}"
