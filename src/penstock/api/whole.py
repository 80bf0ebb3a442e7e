"""Requests that servers read as one JSON value: the words for what is wrong differ from those for
requests read from a stream (`api/codec`), and there are no offsets.
"""

import json
import re
from typing import TypeVar

import msgspec

from penstock.api.codec import JsonError, decode_request

T = TypeVar("T", bound=msgspec.Struct)

_OFFSET = re.compile(r" at offset [0-9]+$")
_PARSER = json.JSONDecoder()


def decode_whole(kind: type[T], body: bytes) -> T:
    """The body as a message; unknown fields are passed over. JsonError: it is not one."""
    text = body.decode("utf-8", "replace")
    rest = _behind_first(text)
    if rest:
        head = rest[0] if rest[0] not in "'\\" else "\\" + rest[0]
        raise JsonError(f"invalid character '{head}' after top-level value")
    if not text.strip(" \t\r\n"):
        raise JsonError("unexpected end of JSON input")
    try:
        return decode_request(kind, body, strict=False)
    except JsonError as error:
        words = _OFFSET.sub("", str(error))
        if words == "unexpected EOF":
            words = "unexpected end of JSON input"
        raise JsonError(words) from None


def _behind_first(text: str) -> str:
    """What stands behind the first value, if there is a first value."""
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        end = _PARSER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return ""
    return text[end:].lstrip(" \t\r\n")
