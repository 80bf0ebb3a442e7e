"""Compares a record with the expectations of a test; the error text says what the record has instead. No I/O."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pelton.core.protocol.subjects import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pelton.core.consumer.consumer import ConsumerState

    from .recording import Acked, Delivered, Published

SHOWN = 8  # messages in a failure
SHOWN_BYTES = 80  # of a payload
OWN = ("$JS.", "_INBOX.", "$SYS.")  # subjects that are shown only when they are asked for

Data: TypeAlias = "bytes | str | Callable[[bytes], bool] | None"
"""The expected payload: bytes, text, a function of the payload, or None for any."""


class Expected(NamedTuple):
    """An expected message."""

    subject: str
    data: Data = None
    headers: Mapping[str, str] | None = None

    def problem_of(self, message: Published) -> str:
        """The difference of a message from the expected one; "" without a difference."""
        found = []
        if not _same_data(self.data, message.data):
            found.append(f"data {shown(message.data)}")
        for name, value in (self.headers or {}).items():
            values = message.headers.get(name)
            if values is None:
                found.append(f"no header {name}")
            elif value not in values:
                found.append(f"{name}: {', '.join(values)}")
        return "; ".join(found)

    def __str__(self) -> str:
        """The message in words."""
        text = repr(self.subject)
        if callable(self.data):
            text += f" with data for which {getattr(self.data, '__name__', 'the function')} holds"
        elif self.data is not None:
            text += f" with data {shown(as_bytes(self.data))}"
        if self.headers:
            text += f" with headers {dict(self.headers)}"
        return text


def as_bytes(data: bytes | str) -> bytes:
    """A payload; text as UTF-8."""
    return data.encode() if isinstance(data, str) else data


def _same_data(wanted: Data, data: bytes) -> bool:
    if wanted is None:
        return True
    if callable(wanted):
        return bool(wanted(data))
    return as_bytes(wanted) == data


def shown(data: bytes) -> str:
    """A payload in a failure: its beginning, and its size when it is long."""
    if len(data) <= SHOWN_BYTES:
        return repr(data)
    return f"{data[:SHOWN_BYTES]!r}... ({len(data)} bytes)"


def find(expected: Expected, published: Collection[Published]) -> list[Published]:
    """The messages that are as expected."""
    return [
        message
        for message in published
        if matches(message.subject, expected.subject) and not expected.problem_of(message)
    ]


def times_of(number: int) -> str:
    """A number of times in words."""
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def missing(
    expected: Expected, found: int, times: int | None, published: Sequence[Published], lost: int
) -> str:
    """The failure of ``assert_published``."""
    wanted = "at least once" if times is None else times_of(times)
    lines = [f"expected {expected} {wanted}, it was published {times_of(found)}"]
    same = [each for each in published if matches(each.subject, expected.subject)]
    if found and times is not None:
        lines += _listed("as expected", [_line(each) for each in find(expected, published)])
    if wrong := [each for each in same if expected.problem_of(each)]:
        rows = [f"{_line(each)} — {expected.problem_of(each)}" for each in wrong]
        lines += _listed("with this subject, but different", rows)
    if not same:
        lines += _candidates(expected.subject, published)
    if lost:
        lines.append(f"{lost} older messages are not kept any more")
    return "\n".join(lines)


def unwanted(expected: Expected, found: Sequence[Published]) -> str:
    """The failure of ``assert_not_published``."""
    lines = [f"expected that {expected} is not published, it was published {times_of(len(found))}"]
    return "\n".join(lines + _listed("published", [_line(each) for each in found]))


def _candidates(subject: str, published: Sequence[Published]) -> list[str]:
    others = [
        each for each in published if subject.startswith(OWN) or not each.subject.startswith(OWN)
    ]
    if not others:
        return ["nothing was published"]
    subjects = list(dict.fromkeys(each.subject for each in others))
    near = difflib.get_close_matches(subject, subjects, n=SHOWN, cutoff=0.5)
    if near:
        rows = [_line(each) for each in others if each.subject in near]
        return _listed("nearest subjects", rows)
    return _listed("published were", [_line(each) for each in others])


def _line(message: Published) -> str:
    headers = f" {message.headers}" if message.headers else ""
    return f"{message.subject} {shown(message.data)}{headers} by {message.client}"


def _listed(title: str, rows: Sequence[str]) -> list[str]:
    more = len(rows) - SHOWN
    first = [f"  ... {more} more before"] if more > 0 else []
    return [f"{title}:", *first, *(f"  {row}" for row in rows[-SHOWN:])]


# -- consumers ----------------------------------------------------------------------------------------


class Facts(NamedTuple):
    """The deliveries and acks of one message of a consumer."""

    stream: str
    consumer: str
    seq: int
    state: ConsumerState
    delivered: list[Delivered]  # of this sequence
    acked: list[Acked]  # of this sequence

    @property
    def last_ack(self) -> str:
        """The last ack that ended the message: "+ACK", "-NAK", "+TERM", or ""."""
        ends = [kind_of(each.body) for each in self.acked if kind_of(each.body) != "+WPI"]
        return ends[-1] if ends else ""

    @property
    def is_acked(self) -> bool:
        """Whether the message is acknowledged: by its own ack, or by one of a later message."""
        if self.last_ack:
            return self.last_ack == "+ACK"
        return bool(self.delivered) and self.state.floor_stream_seq >= self.seq

    def __str__(self) -> str:
        """The facts in words."""
        lines = [
            f"  consumer: ack floor {self.state.floor_stream_seq}, "
            f"delivered up to {self.state.delivered_stream_seq}, "
            f"{self.state.num_ack_pending} unacknowledged, {self.state.num_pending} not delivered yet",
            f"  message {self.seq}: delivered {times_of(len(self.delivered))}"
            + "".join(f"\n    to {each.client}" for each in self.delivered[-SHOWN:]),
        ]
        if self.acked:
            answers = ", ".join(f"{kind_of(each.body)} by {each.client}" for each in self.acked)
            lines.append(f"  answers of clients: {answers}")
        else:
            lines.append("  no client has answered it")
        return "\n".join(lines)


def kind_of(body: bytes) -> str:
    """The kind of an ack; an empty body is an ack."""
    word = body.split(b" ", 1)[0].split(b"{", 1)[0].decode("utf-8", "replace")
    if word.startswith("+NXT"):
        return "+ACK"
    return word or "+ACK"


def not_acked(facts: Facts) -> str:
    """The failure of ``assert_acked``."""
    return (
        f"expected message {facts.seq} of stream {facts.stream} to be acknowledged by "
        f"{facts.consumer}, it is not\n{facts}"
    )


def not_redelivered(facts: Facts, times: int | None) -> str:
    """The failure of ``assert_redelivered``."""
    wanted = "redelivered" if times is None else f"redelivered {times_of(times)}"
    again = max(len(facts.delivered) - 1, 0)
    return (
        f"expected message {facts.seq} of stream {facts.stream} to be {wanted} by "
        f"{facts.consumer}, it was redelivered {times_of(again)}\n{facts}"
    )
