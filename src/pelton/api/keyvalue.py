"""A key-value bucket on the wire: the names of its stream, subjects and headers.

::

    bucket devices     stream    KV_devices, which stores $KV.devices.>
    key a.b            subject   $KV.devices.a.b
    revision           sequence of the message in the stream
    put                a message whose payload is the value
    delete             an empty message with KV-Operation: DEL
    purge              an empty message with KV-Operation: PURGE and Nats-Rollup: sub
    expired            an empty message of the server with Nats-Marker-Reason: MaxAge
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

Operation: TypeAlias = Literal["PUT", "DEL", "PURGE"]

STREAM_PREFIX = "KV_"
SUBJECT_PREFIX = "$KV."
HISTORY_MAX = 64
"""How many revisions of a key a bucket can keep."""
DUPLICATE_WINDOW_NS = 120 * 1_000_000_000
"""How long a bucket remembers message ids, if its values live as long."""

OPERATION = "KV-Operation"
PUT: Literal["PUT"] = "PUT"
DELETE: Literal["DEL"] = "DEL"
PURGE: Literal["PURGE"] = "PURGE"
ROLLUP = "Nats-Rollup"
ROLLUP_SUBJECT = "sub"
"""The message replaces all earlier ones of its subject."""
MARKER_REASON = "Nats-Marker-Reason"
MARKER_OPERATIONS: dict[str, Operation] = {"MaxAge": PURGE, "Purge": PURGE, "Remove": DELETE}
"""What a marker of the server means, by its reason."""

_BUCKET = re.compile(r"[-_a-zA-Z0-9]+")
KEY_PATTERN = r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*"
"""What a key is, as a regular expression for the whole of it."""
_KEY = re.compile(KEY_PATTERN)
_FILTER = re.compile(r"(?:(?:[-/_=a-zA-Z0-9]+|\*)\.)*(?:[-/_=a-zA-Z0-9]+|\*|>)")


def valid_bucket(name: str) -> bool:
    """Whether a bucket may have this name."""
    return _BUCKET.fullmatch(name) is not None


def valid_key(key: str) -> bool:
    """Whether a bucket can hold this key: tokens of letters, digits and -/_= between single dots."""
    return _KEY.fullmatch(key) is not None


def valid_filter(pattern: str) -> bool:
    """Whether this is a key, or a pattern of keys: a token may be ``*``, and the last one ``>``."""
    return _FILTER.fullmatch(pattern) is not None


def removal_headers(operation: Operation) -> dict[str, str]:
    """The headers of a marker; none for a value."""
    if operation == PURGE:
        return {OPERATION: PURGE, ROLLUP: ROLLUP_SUBJECT}
    return {OPERATION: DELETE} if operation == DELETE else {}


def stream_of(bucket: str) -> str:
    """The name of the stream behind a bucket."""
    return STREAM_PREFIX + bucket


def prefix_of(bucket: str) -> str:
    """The beginning of the subjects of a bucket's keys, with its dot."""
    return f"{SUBJECT_PREFIX}{bucket}."


def operation_of(headers: Mapping[str, Sequence[str]]) -> Operation:
    """The operation of a stored message on its key."""
    said = headers.get(OPERATION)
    if said:
        if said[0] == DELETE:
            return DELETE
        return PURGE if said[0] == PURGE else PUT
    reason = headers.get(MARKER_REASON)
    return MARKER_OPERATIONS.get(reason[0], PUT) if reason else PUT
