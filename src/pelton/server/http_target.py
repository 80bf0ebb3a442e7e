"""The target of a monitoring request, as Go's HTTP server reads it.

    /varz?a=1               a path and a query
    http://host/varz        the same in absolute form; the host has no effect
    //varz  /./varz         a path that is not clean: the client is sent to the clean one

Pure: text in, values out.
"""

import posixpath
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE = "/%$&+,:;=@!*'()~"
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


class Target(NamedTuple):
    """A path and its query, or where the client has to ask instead."""

    path: str
    query: dict[str, str]
    elsewhere: str = ""


def parse_target(text: str) -> Target | None:
    """Parse a target; None: it is not valid."""
    whole, _, query = text.partition("?")
    if scheme := _SCHEME.match(whole):
        whole = whole[scheme.end() :]
        if whole.startswith("//"):
            _, slash, rest = whole[2:].partition("/")
            whole = slash + rest
    elif not whole.startswith("/"):
        return None
    if _BAD_ESCAPE.search(whole) or _CONTROL.search(text):
        return None
    clean = _clean(whole)  # escaped parts stay as they are
    if clean != whole:
        return Target(whole, {}, quote(clean, safe=_SAFE) + (f"?{query}" if query else ""))
    pairs = "&".join(pair for pair in query.split("&") if ";" not in pair)
    return Target(unquote(whole), dict(parse_qsl(pairs, keep_blank_values=True)))


def _clean(path: str) -> str:
    """The path without empty, `.` and `..` parts; a slash at its end stays."""
    clean = "/" + posixpath.normpath("/" + path).lstrip("/")
    return clean + "/" if path.endswith("/") and clean != "/" else clean
