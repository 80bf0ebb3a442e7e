"""The headers of messages that are sent: the given ones, and those that a stream understands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pelton.api.times import format_duration
from pelton.core.protocol.wire import encode_headers

from .arguments import check_number, check_texts, refuse
from .durations import to_nanoseconds

if TYPE_CHECKING:
    from .durations import Duration

HeadersLike: TypeAlias = Mapping[str, str | Sequence[str]]
"""Headers of a message that is sent: each name with a value, or with several values in order."""


class Headers(Mapping[str, str]):
    """The headers of a received message: the first value of each name, as a mapping.

    ::

        message.headers["Kind"]             # the first value; KeyError
        message.headers.get("Kind", "")     # or another one
        message.headers.get_all("Kind")     # all values in order; an empty list without the header
        message.headers.lists()             # {"Kind": ["a", "b"]}

    Names keep their case, and are compared with it, as NATS does. As headers of another message they go with
    all their values.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Sequence[str]] | None = None) -> None:
        """Of names, each with its values in order."""
        self._values = {} if values is None else values

    def __getitem__(self, name: str) -> str:
        """The first value of a header; KeyError without it."""
        return self._values[name][0]

    def __iter__(self) -> Iterator[str]:
        """The names, in the order of their first values."""
        return iter(self._values)

    def __len__(self) -> int:
        """The number of names."""
        return len(self._values)

    def __repr__(self) -> str:
        """All values."""
        return f"Headers({self._values!r})"

    def get_all(self, name: str) -> list[str]:
        """All values of a header in order, an empty list when there is none."""
        return list(self._values.get(name, ()))

    def lists(self) -> dict[str, list[str]]:
        """Every name with all its values."""
        return {name: list(each) for name, each in self._values.items()}


MSG_ID = "Nats-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST_SEQ = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_MSG_ID = "Nats-Expected-Last-Msg-Id"
TTL = "Nats-TTL"


def encode_header_map(headers: HeadersLike | None) -> bytes:
    """The header block of a mapping from names to a value or to several; b"" for none.

    Raises ValueError for characters that a header cannot hold.
    """
    if headers is None:
        return b""
    if isinstance(headers, Headers):
        return encode_headers(headers._values) if headers else b""
    if not isinstance(headers, Mapping):
        refuse("headers", "a mapping from names to text, or to several texts", headers)
    for name, value in headers.items():
        if not isinstance(name, str):
            refuse("the name of a header", "text", name)
        if isinstance(value, str):
            continue
        if not isinstance(value, Sequence) or isinstance(value, bytes):
            refuse(f"header {name}", "text, or several texts", value)
    try:
        return encode_headers(headers) if headers else b""
    except TypeError as error:
        raise TypeError(f"headers are text, or several texts each: {error}") from None


def merged_headers(headers: HeadersLike | None, own: HeadersLike) -> HeadersLike:
    """The headers of a user, with those of the call itself; TypeError unless they are a mapping."""
    if headers is None:
        return own
    if not isinstance(headers, Mapping):
        refuse("headers", "a mapping from names to text, or to several texts", headers)
    given = headers.lists() if isinstance(headers, Headers) else headers
    return {**given, **own}


def publish_headers(
    headers: HeadersLike | None,
    *,
    msg_id: str | None = None,
    expected_stream: str | None = None,
    expected_last_seq: int | None = None,
    expected_last_subject_seq: int | None = None,
    expected_last_msg_id: str | None = None,
    ttl: Duration | None = None,
) -> bytes:
    """The header block of a publish into a stream; ValueError for characters that a header cannot
    hold.
    """
    extra: dict[str, str | Sequence[str]] = {}
    if msg_id is not None:
        if not isinstance(msg_id, str):
            refuse("msg_id", "text", msg_id)
        extra[MSG_ID] = msg_id
    if expected_stream is not None:
        check_texts(expected_stream=expected_stream)
        extra[EXPECTED_STREAM] = expected_stream
    if expected_last_seq is not None:
        check_number("expected_last_seq", expected_last_seq)
        extra[EXPECTED_LAST_SEQ] = str(expected_last_seq)
    if expected_last_subject_seq is not None:
        check_number("expected_last_subject_seq", expected_last_subject_seq)
        extra[EXPECTED_LAST_SUBJECT_SEQ] = str(expected_last_subject_seq)
    if expected_last_msg_id is not None:
        check_texts(expected_last_msg_id=expected_last_msg_id)
        extra[EXPECTED_LAST_MSG_ID] = expected_last_msg_id
    if ttl is not None:
        extra[TTL] = format_duration(to_nanoseconds(ttl, "ttl"))
    if not extra:
        return encode_header_map(headers)
    return encode_header_map(merged_headers(headers, extra))
