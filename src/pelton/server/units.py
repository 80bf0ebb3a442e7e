"""Sizes, durations and addresses as written in options and configuration files.

Every function raises ValueError with a sentence that quotes the text.
"""

SECOND_NS = 1_000_000_000


def is_whole(text: str) -> bool:
    """Whether a text is a whole number: digits, optionally after a minus."""
    return text.removeprefix("-").isdecimal()


def parse_duration(text: str) -> int:
    """A Go duration (``2m``, ``1h30m``, ``250ms``, ``0``) in nanoseconds."""
    from pelton.api import times  # not needed for --help and --version

    try:
        return times.parse_duration(text.strip())
    except times.DurationTooLongError:
        raise
    except ValueError:
        raise ValueError(f'"{text}" is not a duration such as 250ms, 10s, 2m or 1h30m') from None


def parse_address(text: str, default_host: str, default_port: int) -> tuple[str, int]:
    """(host, port) of ``host:port``, ``:port``, ``port`` or ``[v6]:port``; port -1 means any free
    port.
    """
    body = text.strip()
    host, colon, port = body.rpartition(":")
    if body.startswith("[") and body.endswith("]"):
        host, colon, port = body, ":", str(default_port)
    if not colon and not is_whole(port):
        host, port = body, str(default_port)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(
            f'"{text}" is not an address; write an IPv6 host in brackets, as [::1]:4222'
        )
    return host or default_host, parse_port(port)


def parse_port(text: str) -> int:
    """A TCP port; -1 means any free port."""
    if is_whole(text.strip()):
        port = int(text)
        if port == -1 or 0 <= port <= 65535:
            return port
    raise ValueError(f'"{text}" is not a port: a number up to 65535, or -1 for any free one')


def format_size(size: int) -> str:
    """Bytes in readable form: ``512 B``, ``1.00 KB``, ``58.55 GB`` (powers of 1024, as in the
    start-up lines).
    """
    if size < 1024:
        return f"{size} B"
    units = ("KB", "MB", "GB", "TB", "PB", "EB")
    power = min((size.bit_length() - 1) // 10, len(units))
    return f"{size / 1024**power:.2f} {units[power - 1]}"


def join_address(host: str, port: int) -> str:
    """host:port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """The address by which a client on this machine reaches a listener's host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
