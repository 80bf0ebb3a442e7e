"""Counters: a message with `Nats-Incr` adds to the number that the last message of its subject
holds.

The stored body is `{"val":"<number>"}`; numbers have as many digits as they need, up to 30,000. A
counter that sums up other streams' counters keeps the last value of each of them in
`Nats-Counter-Sources`, and adds the difference; see `gathered`.
"""

import json
import re
from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any

from pelton.api import errors_generated as errors
from pelton.core.log import queries
from pelton.core.log.log import StoredMessage
from pelton.core.protocol.publish_headers import value
from pelton.core.stream.draft import Draft
from pelton.core.stream.refusals import STAGE_COUNT, STAGE_COUNTER, STAGED
from pelton.engine.rules import header_blocks
from pelton.engine.rules.base import Handler, Rule, Verdict, refusal

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

HEADER = b"Nats-Incr"
SOURCES = b"Nats-Counter-Sources"
ORIGIN = b"Nats-Stream-Source"
INVALID = refusal(errors.MessageIncrInvalidError())
PAYLOAD = refusal(errors.MessageIncrPayloadError())
MISSING = refusal(errors.MessageIncrMissingError())
BROKEN = refusal(errors.MessageCounterBrokenError())
TOO_LARGE = refusal(errors.StreamMessageExceedsMaximumError())
_INCOMPATIBLE = (
    b"Nats-Rollup",
    b"Nats-Expected-Stream",
    b"Nats-Expected-Last-Msg-Id",
    b"Nats-Expected-Last-Subject-Sequence-Subject",
    b"Nats-Expected-Last-Sequence",
    b"Nats-Expected-Last-Subject-Sequence",
)
_NUMBER = re.compile(r"[+-]?[0-9]+")
_ADDED_MOST = 25_000  # digits of the number in a header, at most
_DIGITS_MOST = 30_000  # digits of a counter, at most
# whole numbers, whose digits take linear time to read and to write
_EXACT = Context(prec=2 * _DIGITS_MOST, Emax=4 * _DIGITS_MOST, traps=[Inexact, InvalidOperation])
_ZERO = Decimal(0)

Sources = dict[str, dict[str, str]]


class BrokenCounterError(ValueError):
    """A message of a counter stream does not hold a counter."""


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for counter streams."""
    return Counters(account, entry) if entry.config.allow_msg_counter else None


def gathered(
    entry: "StreamEntry", subject: str, headers: bytes, payload: bytes
) -> tuple[bytes, bytes]:
    """Return headers and payload for a message from another counter stream. Its headers have
    Nats-Stream-Source already.

    BrokenCounterError: the message, or the last one on the subject, does not hold a counter; the
    message is not stored then.
    """
    total, sources = _last(entry, subject)
    fields = (value(headers, ORIGIN) or b"").decode("utf-8", "surrogateescape").split(" ")
    told = _number_in(payload)
    known = sources.setdefault(fields[0], {})
    origin = fields[4] if len(fields) >= 5 else subject
    added = _EXACT.subtract(told, _parse(known.get(origin, "")) or _ZERO)
    known[origin] = _text(told)
    headers = _replaced(headers, HEADER, _text(added).encode())
    return _with_sources(headers, sources), _body(_EXACT.add(total, added))


class Counters(Rule):
    """The counters of one stream."""

    every = True

    def __init__(self, account: "JetStreamAccount", entry: "StreamEntry") -> None:
        """The rule keeps no state: the last message of a subject has the value of its counter."""
        self._reactor = account.reactor
        self._entry = entry

    def handlers(self) -> Mapping[int, Handler]:
        """Check the header before all other headers; add the numbers after all other checks."""
        return {STAGE_COUNTER: self._check, STAGE_COUNT: self._add}

    def _check(self, draft: Draft) -> Verdict:
        text = value(draft.headers, HEADER) or b""
        if len(text) > _ADDED_MOST or not _NUMBER.fullmatch(text.decode("latin-1")):
            return INVALID
        if draft.payload:
            return PAYLOAD
        if any(value(draft.headers, name) for name in _INCOMPATIBLE):
            return INVALID
        return None

    def _gather(self, draft: Draft) -> Verdict:
        try:
            headers, payload = gathered(self._entry, draft.subject, draft.headers, draft.payload)
        except BrokenCounterError:
            return BROKEN if value(draft.headers, HEADER) else MISSING
        draft.change(headers=headers, payload=payload)
        return None

    def _add(self, draft: Draft) -> Verdict:
        if draft.sourced:
            return self._gather(draft)
        text = value(draft.headers, HEADER)
        if not text:
            return MISSING
        try:
            staged = draft.notes.get(STAGED, {}).get(draft.subject)
            total, sources = _held(staged) if staged else _last(self._entry, draft.subject)
        except BrokenCounterError:
            return BROKEN
        total = _EXACT.add(total, _parse(text.decode("latin-1")) or _ZERO)
        payload = _body(total)
        headers = _with_sources(draft.headers, sources)
        if len(headers) + len(payload) > self._reactor.max_payload:
            return TOO_LARGE
        draft.change(headers=headers, payload=payload)
        draft.extra = b',"val":"%s"' % _text(total).encode()
        return None


# --- numbers and what holds them


def _last(entry: "StreamEntry", subject: str) -> tuple[Decimal, Sources]:
    message = queries.last_of(entry.core.log, subject)
    return (_ZERO, {}) if message is None else _held(message)


def _held(message: StoredMessage | Draft) -> tuple[Decimal, Sources]:
    told = value(message.headers, SOURCES)
    return _number_in(message.payload), _sources_in(told) if told else {}


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BrokenCounterError(BROKEN[2]) from None


def _number_in(payload: bytes) -> Decimal:
    found = _decoded(payload)
    if found is None:
        return _ZERO
    if not isinstance(found, dict):
        raise BrokenCounterError(BROKEN[2])
    texts = [text for name, text in found.items() if name.lower() == "val" and text is not None]
    if not all(isinstance(text, str) for text in texts):
        raise BrokenCounterError(BROKEN[2])
    return (_parse(texts[-1]) or _ZERO) if texts else _ZERO


def _sources_in(text: bytes) -> Sources:
    found = _decoded(text) or {}
    if not isinstance(found, dict):
        raise BrokenCounterError(BROKEN[2])
    sources: Sources = {}
    for stream, counters in found.items():
        if not isinstance(counters, dict | None) or not all(
            isinstance(number, str) for number in (counters or {}).values()
        ):
            raise BrokenCounterError(BROKEN[2])
        sources[stream] = dict(counters or {})
    return sources


def _body(total: Decimal) -> bytes:
    return b'{"val":"%s"}' % _text(total).encode()


def _with_sources(headers: bytes, sources: Sources) -> bytes:
    if not sources:
        return headers
    text = json.dumps(sources, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return _replaced(headers, SOURCES, text.encode("utf-8", "surrogateescape"))


def _replaced(headers: bytes, name: bytes, text: bytes) -> bytes:
    """Return the block with a header's value replaced, or with the header added."""
    lines = headers.split(b"\r\n")
    start = name + b":"
    for number, line in enumerate(lines):
        if line.startswith(start):
            lines[number] = b"%s: %s" % (name, text)
            return b"\r\n".join(lines)
    return header_blocks.added(headers, name, text)


def _parse(text: str) -> Decimal | None:
    """Return a decimal number of any length; None when the text is not one."""
    if len(text) > _DIGITS_MOST:
        raise BrokenCounterError(BROKEN[2])
    if not _NUMBER.fullmatch(text):
        return None
    return _EXACT.create_decimal(text)


def _text(number: Decimal) -> str:
    return format(number, "f")
