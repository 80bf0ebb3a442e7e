"""A received message, and the payloads of its acks (ack, nak ...).

Both halves add the methods that send something, in a subclass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.api.subjects import parse_ack
from pelton.core.protocol.wire import decode_headers
from pelton.errors import CallbackFailedError, NotJetStreamMessageError

from .durations import Duration, to_nanoseconds
from .headers import Headers

if TYPE_CHECKING:
    from .interest import Interest
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
        if not self.reply.startswith("$JS.ACK."):
            raise NotJetStreamMessageError(
                f"no consumer delivered this, so it needs no ack: it came on {self.subject!r}, "
                f"reply subject {self.reply!r}"
            )
