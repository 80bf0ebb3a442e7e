"""The content of resources: CBOR, JSON and text, as values and as JSON text.

::

    content type                      format   value
    application/vnd.ocf+cbor           10000    CBOR
    application/cbor                      60    CBOR
    application/json                      50    JSON
    text/plain                             0    str
    (empty, no data)                      -1    None
    other                                       bytes

The content type decides; where it is empty, the format does.
"""

from __future__ import annotations

import base64
import io
import math
from typing import Any

import cbor2
import msgspec

from .reasons import Reason, UndecodableEventError

OCF_CBOR, CBOR, JSON, TEXT, NONE = 10_000, 60, 50, 0, -1
FORMAT_OF_TYPE = {
    "application/vnd.ocf+cbor": OCF_CBOR,
    "application/cbor": CBOR,
    "application/json": JSON,
    "text/plain": TEXT,
}


def format_of(content_type: str) -> int | None:
    """The format that a content type says; None if it is empty, `NONE` for one that is not known."""
    media = content_type.partition(";")[0].strip().lower()
    return FORMAT_OF_TYPE.get(media, NONE) if media else None


def decode_content(data: bytes, content_type: str, content_format: int = NONE) -> Any:
    """The value of a content; None if it is empty.

    :raises UndecodableEventError: ``content`` if the data is not of its type.
    """
    if not data:
        return None
    said = format_of(content_type)
    kind = content_format if said is None else said
    try:
        if kind in {OCF_CBOR, CBOR}:
            stream = io.BytesIO(data)
            value = cbor2.load(stream)
            if stream.tell() != len(data):
                raise ValueError(f"{len(data) - stream.tell()} bytes after the value")
            return value
        if kind == JSON:
            return msgspec.json.decode(data)
        if kind == TEXT:
            return data.decode()
    except (
        cbor2.CBORDecodeError,
        ValueError,
        TypeError,
        RecursionError,
        EOFError,
        ArithmeticError,
    ) as error:
        name = content_type or f"format {content_format}"
        raise UndecodableEventError(Reason.CONTENT, f"no {name}: {error}") from error
    return data


PLAIN = {str, int, float, bool, type(None)}


def is_plain(value: Any) -> bool:
    """Whether a value is JSON unchanged; False also for a value that would take long to check."""
    if type(value) is dict:
        return all(type(key) is str and type(one) in PLAIN for key, one in value.items())
    return type(value) in PLAIN


def plain(value: Any) -> Any:
    """A value that JSON has: bytes as base64, numbers that JSON lacks as null, keys as text."""
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(plain(key)): plain(v) for key, v in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return None if value is cbor2.undefined else str(value)


def content_json(data: bytes, content_type: str, content_format: int = NONE) -> str | None:
    """A content as JSON text; None if it is empty.

    :raises UndecodableEventError: ``content`` if the data is not of its type.
    """
    value = decode_content(data, content_type, content_format)
    if value is None and not data:
        return None
    try:
        if not is_plain(value):
            value = plain(value)
        return msgspec.json.encode(value).decode()
    except (ValueError, RecursionError, OverflowError) as error:
        raise UndecodableEventError(Reason.CONTENT, f"cannot be JSON: {error}") from error
