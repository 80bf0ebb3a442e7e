"""A message: its headers, those to send and those received, and the payloads of its acks (ack, nak ...).

Both halves add the methods that send something, in a subclass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from pelton.api.subjects import parse_ack
from pelton.api.times import format_duration
from pelton.core.protocol.wire import decode_headers, encode_headers
from pelton.errors import CallbackFailedError, NotJetStreamMessageError

from .arguments import check_number, check_texts, refuse
from .durations import Duration, to_nanoseconds

if TYPE_CHECKING:
    from .mailbox import Interest
    from .models import Metadata

ACK = b"+ACK"
NAK = b"-NAK"
IN_PROGRESS = b"+WPI"
TERM = b"+TERM"


def nak_body(delay: Duration | None, name: str = "delay") -> bytes:
    """The payload of a negative ack, with the delay in nanoseconds when there is one; the argument's ``name``."""
    if delay is None:
        return NAK
    return b'-NAK {"delay":%d}' % to_nanoseconds(delay, name)


def callback_failed(message: BaseMessage, cause: Exception) -> CallbackFailedError:
    """The error of a callback that raised ``cause`` for a message."""
    subject = message._interest.subject
    error = CallbackFailedError(
        f"the callback of {subject!r} failed on {message!r}: {type(cause).__name__}: {cause}",
        subject,
        message,
    )
    error.__cause__ = cause
    return error


class BaseMessage:
    """A received message.

    ``data`` is the payload; headers are decoded at first use.
    """

    __slots__ = ("_decoded", "_interest", "acked", "data", "raw_headers", "reply", "subject")

    def __init__(
        self, subject: str, reply: str, raw_headers: bytes, data: bytes, interest: Interest
    ) -> None:
        """Made by the connection."""
        self.subject = subject
        """Where it was published."""
        self.reply = reply
        """The subject for an answer or an ack; "" when none is expected."""
        self.raw_headers = raw_headers
        """The header block as received; b"" when there is none."""
        self.data = data
        """The payload."""
        self._interest = interest
        self.acked = False
        """Whether an ack that ends the message was sent."""
        self._decoded: Headers | None = None

    def __repr__(self) -> str:
        """Subject and size; of a message of a consumer also which one of the stream it is."""
        found = parse_ack(self.reply)
        place = ""
        if found is not None:
            place = f", #{found.stream_seq} of {found.stream}, delivery {found.delivered}"
        return f"<{type(self).__name__} {self.subject!r} {len(self.data)} bytes{place}>"

    @property
    def headers(self) -> Headers:
        """The headers: ``headers["Kind"]`` is the first value, ``headers.get_all("Kind")`` has all.

        Raises ValueError when the sender wrote invalid headers: servers do not check them.
        """
        if self._decoded is None:
            self._decoded = Headers(
                decode_headers(self.raw_headers)[2] if self.raw_headers else None
            )
        return self._decoded

    def header(self, name: str) -> str | None:
        """The first value of a header, or None."""
        return self.headers.get(name)

    @property
    def status(self) -> int:
        """The status of a server's message without content (100, 404, 408, 409, 503 ...), otherwise
        0.
        """
        digits = self.raw_headers[9:12]  # "NATS/1.0 503" has one, "NATS/1.0\r\n" has none
        return int(digits) if self.raw_headers[8:9] == b" " and digits.isdigit() else 0

    @property
    def description(self) -> str:
        """The text after the status."""
        line = self.raw_headers.partition(b"\r\n")[0]
        return line[12:].strip().decode("utf-8", "replace")

    @property
    def metadata(self) -> Metadata:
        """The position of the message in its stream and its consumer.

        Raises NotJetStreamMessageError when no consumer delivered it.
        """
        metadata = parse_ack(self.reply)
        if metadata is None:
            raise NotJetStreamMessageError(
                f"no consumer delivered this: reply subject {self.reply!r}"
            )
        return metadata

    def _check_acknowledgeable(self) -> None:
        """Raise NotJetStreamMessageError unless a consumer delivered the message."""
        # Only the prefix: newer servers may add a domain and an account hash after it.
        if not self.reply.startswith("$JS.ACK."):
            raise NotJetStreamMessageError(
                f"no consumer delivered this, so it needs no ack: it came on {self.subject!r}, "
                f"reply subject {self.reply!r}"
            )


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
        # bytes are a sequence, too, but of numbers.
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
        # Text as Go parses it, such as 1h30m (ADR-43).
        extra[TTL] = format_duration(to_nanoseconds(ttl, "ttl"))
    if not extra:
        return encode_header_map(headers)
    return encode_header_map(merged_headers(headers, extra))
