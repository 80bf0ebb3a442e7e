"""Requests that servers read as one JSON value.

Their error texts differ from those for requests that are read from a stream (`api/codec`), and have
no offsets.
"""

import re
from typing import TypeVar

import msgspec

from pelton.api.codec import JsonError, decode_request
from pelton.api.scan import first_end

T = TypeVar("T", bound=msgspec.Struct)

_OFFSET = re.compile(r" at offset [0-9]+$")
_LETTER_MOST = 4  # bytes of a character


def decode_whole(kind: type[T], body: bytes) -> T:
    """The body as a message; ignores unknown fields. JsonError if it is invalid."""
    end = first_end(body)
    rest = body[end:].lstrip(b" \t\r\n")[:_LETTER_MOST] if end >= 0 else b""
    if rest:
        letter = rest.decode("utf-8", "replace")[0]
        head = letter if letter not in "'\\" else "\\" + letter
        raise JsonError(f"invalid character '{head}' after top-level value")
    if not body.strip(b" \t\r\n"):
        raise JsonError("unexpected end of JSON input")
    try:
        return decode_request(kind, body, strict=False, bounded=True)
    except JsonError as error:
        words = _OFFSET.sub("", str(error))
        if words == "unexpected EOF":
            words = "unexpected end of JSON input"
        raise JsonError(words) from None
