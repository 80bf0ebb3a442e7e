"""The origins of pages whose scripts may connect; a browser sends the origin in a header. Pure."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": "80", "https": "443"}


class Origin(NamedTuple):
    """Scheme, host and port; origins are the same when all three are equal."""

    scheme: str
    host: str
    port: str


def parse_origin(text: str) -> Origin:
    """Parse an origin such as ``https://example.com``. ValueError when it is invalid."""
    parts = urlsplit(text)
    if parts.scheme not in _DEFAULT_PORTS or not parts.netloc:
        raise ValueError(f'"{text}" is not an origin such as https://example.com')
    host, port = split_host(parts.netloc, secure=parts.scheme == "https")
    if not host:
        raise ValueError(f'"{text}" has no host')
    return Origin(parts.scheme, host, port)


def split_host(host: str, *, secure: bool) -> tuple[str, str]:
    """(host, port) of a Host header or a similar text, with the scheme's default port."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]") or not port:
        name, port = host.rstrip(":"), _DEFAULT_PORTS["https" if secure else "http"]
    if not port.isdecimal():
        raise ValueError(f'the port of "{host}" is not a number')
    return name.strip("[]").lower(), port


def refusal(
    origin: str, host: str, *, secure: bool, same_origin: bool, allowed: Sequence[str]
) -> str:
    """Why a request with this Origin header is refused; "" when it is allowed.

    A request without one is allowed: it does not come from a browser. `host` is its Host header.
    """
    if not origin or not (same_origin or allowed):
        return ""
    try:
        asked = parse_origin(origin)
        if same_origin:
            scheme = "https" if secure else "http"
            if asked != Origin(scheme, *split_host(host, secure=secure)):
                return "not same origin"
    except ValueError as problem:
        return str(problem)
    if allowed and asked not in {parse_origin(each) for each in allowed}:
        return "not in the allowed list"
    return ""
