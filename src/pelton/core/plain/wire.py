"""The NATS protocol as bytes, in plain Python: the twin of core/protocol/wire, which draws the lines.

`Parser.next_operation` takes the next complete operation from the received bytes; `feed` makes tuples of them, and
the columns of core/bulk rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

from pelton.core.plain.headers import decode_headers as decode_headers
from pelton.core.plain.headers import encode_headers as encode_headers

if TYPE_CHECKING:
    from typing_extensions import Buffer

OP_PUB, OP_SUB, OP_UNSUB, OP_CONNECT, OP_PING, OP_PONG, OP_INFO, OP_OK, OP_ERR, OP_MSG = range(
    1, 11
)
BAD_OP, BAD_ARGS, BAD_LINE, BAD_PAYLOAD = -1, -2, -3, -4
ROLE_SERVER, ROLE_CLIENT, ROLE_LEAF = range(3)

_LINE_BYTES = {ROLE_SERVER: 4096, ROLE_CLIENT: 1 << 20, ROLE_LEAF: 4096}
_PAYLOAD_BYTES = {ROLE_SERVER: 1 << 20, ROLE_CLIENT: 1 << 27, ROLE_LEAF: 1 << 20}
_LF, _CR = b"\n\r"
_BLANKS = b" \t"


class _Form(Enum):
    ARGS = "a blank must follow the name"
    TEXT = "text follows the name, with or without a blank"
    REST = "what follows means nothing"
    BLANK_TEXT = "a blank must follow, then text"


@dataclass(frozen=True, slots=True)
class _Name:
    text: bytes  # in lower case
    kind: int
    form: _Form


_ALL = [
    _Name(b"ping", OP_PING, _Form.REST),
    _Name(b"pong", OP_PONG, _Form.REST),
    _Name(b"+ok", OP_OK, _Form.REST),
    _Name(b"-err", OP_ERR, _Form.BLANK_TEXT),
    _Name(b"info", OP_INFO, _Form.TEXT),
]
_CONNECT = _Name(b"connect", OP_CONNECT, _Form.TEXT)
_NAMES = {
    ROLE_SERVER: [
        _Name(b"pub", OP_PUB, _Form.ARGS),
        _Name(b"hpub", OP_PUB, _Form.ARGS),
        _Name(b"sub", OP_SUB, _Form.ARGS),
        _Name(b"unsub", OP_UNSUB, _Form.ARGS),
        _CONNECT,
        *_ALL,
    ],
    ROLE_CLIENT: [
        _Name(b"msg", OP_MSG, _Form.ARGS),
        _Name(b"hmsg", OP_MSG, _Form.ARGS),
        *_ALL,
    ],
    ROLE_LEAF: [
        _Name(b"lmsg", OP_MSG, _Form.ARGS),
        _Name(b"hmsg", OP_MSG, _Form.ARGS),
        _Name(b"ls+", OP_SUB, _Form.ARGS),
        _Name(b"ls-", OP_UNSUB, _Form.ARGS),
        _CONNECT,
        *_ALL,
    ],
}
_LONGEST_NAME = 7

_MEANINGS = {
    BAD_OP: "unknown operation, missing arguments or a payload without its CR LF",
    BAD_ARGS: "arguments that cannot be",
    BAD_LINE: "a line longer than allowed",
    BAD_PAYLOAD: "a payload larger than allowed",
}


class WireError(ValueError):
    """The peer broke the protocol; ``code`` is one of the BAD_* constants, ``events`` what was read before it."""

    def __init__(self, code: int, events: list[tuple[object, ...]]) -> None:
        """With the text of the code."""
        super().__init__(_MEANINGS[code])
        self.code = code
        self.events = events


class _Broken(Exception):
    """The code of what is wrong with the next operation."""


@dataclass(slots=True)
class Operation:
    """One complete operation, as bytes."""

    kind: int
    subject: bytes = b""
    reply: bytes = b""
    sid: bytes = b""
    queue: bytes = b""
    body: bytes = b""  # headers, then payload; or the text of CONNECT, INFO, -ERR
    header_bytes: int = 0
    max: int = 0  # of UNSUB; the weight of LS+

    @property
    def headers(self) -> bytes:
        """The header block of a message, b"" when it has none."""
        return self.body[: self.header_bytes]

    @property
    def payload(self) -> bytes:
        """The payload of a message."""
        return self.body[self.header_bytes :]


def parse_u63(digits: bytes) -> int:
    """A number of 1 to 19 decimal digits, at most 2**63 - 1; -1 for anything else."""
    if not 1 <= len(digits) <= 19 or not digits.isdigit():
        return -1
    value = int(digits)
    return value if value < 1 << 63 else -1


def _number(digits: bytes) -> int:
    return parse_u63(digits) if len(digits) <= 9 else -1


def _split(line: bytes, cr_parts: bool) -> list[bytes]:
    """The tokens between blanks; nats-server takes a stray CR of SUB and UNSUB as a blank, too."""
    if cr_parts:
        line = line.replace(b"\r", b" ")
    return [token for token in line.replace(b"\t", b" ").split(b" ") if token]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


class Parser:
    """Incremental parser: feed bytes in any split, get the complete operations back; see wire.pyi."""

    def __init__(
        self,
        role: int,
        max_control_line: int | None = None,
        max_payload: int | None = None,
        headers: bool = True,
    ) -> None:
        """Limits in bytes; None is the role's own. Without headers HPUB is BAD_ARGS."""
        if role not in _NAMES:
            raise ValueError(f"no such role: {role}")
        self._role = role
        self._max_line = _LINE_BYTES[role] if max_control_line is None else max_control_line
        self._max_payload = _PAYLOAD_BYTES[role] if max_payload is None else max_payload
        self._headers = headers
        self._data = bytearray()
        self._at = 0  # parsed up to here
        self._need = 0  # bytes that must be there before another look makes sense
        self.failed: int | None = None

    @property
    def waiting(self) -> int:
        """Bytes held of an operation not complete yet."""
        return len(self._data) - self._at

    def feed(self, data: Buffer) -> list[tuple[object, ...]]:
        """Take bytes, return the operations they complete; WireError once the peer broke the protocol."""
        self.take_in(data)
        events: list[tuple[object, ...]] = []
        while (operation := self.next_operation(events)) is not None:
            events.append(self.event_of(operation, events))
        return events

    # --- also for core/bulk: `events` are what a WireError has to hand over

    def take_in(self, data: Buffer) -> None:
        """Append received bytes; WireError when the peer broke the protocol before."""
        if self.failed is not None:
            raise WireError(self.failed, [])
        if self._at:
            del self._data[: self._at]
            self._at = 0
        self._data += memoryview(data).cast("B")

    def next_operation(self, events: list[tuple[object, ...]]) -> Operation | None:
        """The next complete operation, or None: more bytes are needed."""
        held = len(self._data) - self._at
        if not held or held < self._need:
            return None
        try:
            return self._parse()
        except _Broken as broken:
            self._fail(broken.args[0], events)

    def event_of(self, op: Operation, events: list[tuple[object, ...]]) -> tuple[object, ...]:
        """The operation as callers of `feed` get it."""
        subject, reply = _text(op.subject), _text(op.reply)
        if self._role == ROLE_LEAF and op.kind in (OP_MSG, OP_SUB, OP_UNSUB):
            queues = tuple(_text(op.queue).split())
            if op.kind == OP_MSG:
                return OP_MSG, subject, reply, queues, op.headers, op.payload
            return (OP_SUB, subject, *queues, op.max) if op.kind == OP_SUB else (OP_UNSUB, op.sid)
        if op.kind == OP_MSG:
            sid = parse_u63(op.sid)
            if sid < 0:
                self._fail(BAD_ARGS, events)
            return OP_MSG, subject, sid, reply, op.headers, op.payload
        if op.kind == OP_PUB:
            return OP_PUB, subject, reply, op.headers, op.payload
        if op.kind == OP_SUB:
            return OP_SUB, subject, _text(op.queue), op.sid
        if op.kind == OP_UNSUB:
            return OP_UNSUB, op.sid, op.max
        if op.kind == OP_ERR:
            return OP_ERR, op.body.strip(b" \t'")
        if op.kind in (OP_INFO, OP_CONNECT):
            return op.kind, op.body
        return (op.kind,)

    # --- one operation

    def _fail(self, code: int, events: list[tuple[object, ...]]) -> NoReturn:
        self.failed = code
        raise WireError(code, events)

    def _parse(self) -> Operation | None:
        data, start = self._data, self._at
        name = self._name()
        if name is None:
            return None
        args = start + len(name.text)
        if name.form in (_Form.ARGS, _Form.BLANK_TEXT):
            if args == len(data):
                return None
            if data[args] not in _BLANKS:
                raise _Broken(BAD_OP)
        lf = data.find(b"\n", args)
        if lf < 0:
            self._wait_for_line(name, self._past_blanks(args, len(data)))
            return None
        if name.form is _Form.REST:
            return self._taken(lf + 1, Operation(name.kind))
        stop = lf - 1 if lf > args and data[lf - 1] == _CR else lf
        args = self._past_blanks(args, stop)
        if stop - args > self._max_line:
            raise _Broken(BAD_LINE)
        line = bytes(data[args:stop])
        if name.form is _Form.ARGS:
            return self._with_args(name, line, lf + 1)
        if name.kind == OP_ERR and self._role == ROLE_SERVER:
            raise _Broken(BAD_ARGS)
        return self._taken(lf + 1, Operation(name.kind, body=line))

    def _name(self) -> _Name | None:
        """The name that the bytes start with, or None: more bytes may still make one."""
        begin = bytes(self._data[self._at : self._at + _LONGEST_NAME]).lower()
        for name in _NAMES[self._role]:
            if begin.startswith(name.text):
                return name
        if any(name.text.startswith(begin) for name in _NAMES[self._role]):
            return None
        raise _Broken(BAD_OP)

    def _past_blanks(self, at: int, stop: int) -> int:
        while at < stop and self._data[at] in _BLANKS:
            at += 1
        return at

    def _taken(self, end: int, operation: Operation) -> Operation:
        self._at = end
        self._need = 0
        return operation

    def _wait_for_line(self, name: _Name, args: int) -> None:
        """The line has no end yet: refuse it when it is too long already, and keep memory bounded."""
        data, end = self._data, len(self._data)
        if name.form is not _Form.REST and args < end:
            stop = end - 1 if data[-1] == _CR else end
            if stop - args > self._max_line:
                raise _Broken(BAD_LINE)
        else:
            # Nothing but the name counts so far (and one blank, where it must follow): drop the rest.
            blanks = 0 if name.form is _Form.REST else 1
            del data[self._at + len(name.text) + blanks :]
        self._need = len(data) - self._at + 1

    def _with_args(self, name: _Name, line: bytes, after: int) -> Operation | None:
        """PUB, SUB, UNSUB, MSG and their kin, from a whole line; `after` is behind it."""
        tokens = _split(line, name.kind in (OP_SUB, OP_UNSUB))
        sizes = 2 if name.text.startswith(b"h") else 1
        if self._role == ROLE_LEAF:
            return self._leaf_args(name.kind, line, tokens, sizes, after)
        count = len(tokens)
        if name.kind == OP_PUB:
            if (sizes == 2 and not self._headers) or not 1 + sizes <= count <= 2 + sizes:
                raise _Broken(BAD_ARGS)
            reply = tokens[1] if count == 2 + sizes else b""
            operation = Operation(OP_PUB, tokens[0], reply)
            return self._with_body(operation, tokens[-sizes:], after)
        if name.kind == OP_MSG:
            if not 2 + sizes <= count <= 3 + sizes:
                raise _Broken(BAD_ARGS)
            reply = tokens[2] if count == 3 + sizes else b""
            operation = Operation(OP_MSG, tokens[0], reply, tokens[1])
            return self._with_body(operation, tokens[-sizes:], after)
        if name.kind == OP_SUB:
            if not 2 <= count <= 3:
                raise _Broken(BAD_ARGS)
            queue = tokens[1] if count == 3 else b""
            return self._taken(after, Operation(OP_SUB, tokens[0], sid=tokens[-1], queue=queue))
        if not 1 <= count <= 2:
            raise _Broken(BAD_ARGS)
        most = (
            max(_number(tokens[1]), 0) if count == 2 else 0
        )  # not a number: as if it were not there
        return self._taken(after, Operation(OP_UNSUB, sid=tokens[0], max=most))

    def _leaf_args(
        self, kind: int, line: bytes, tokens: list[bytes], sizes: int, after: int
    ) -> Operation | None:
        """LS+, LS-, LMSG and HMSG between servers."""
        count = len(tokens)
        if not tokens:
            raise _Broken(BAD_ARGS)
        if kind == OP_UNSUB:
            return self._taken(after, Operation(OP_UNSUB, sid=line.rstrip(_BLANKS)))
        operation = Operation(kind, tokens[0])
        if kind == OP_SUB:
            if count == 3:
                operation.queue, operation.max = tokens[1], _number(tokens[2])
            if count not in (1, 3) or operation.max < 0:
                raise _Broken(BAD_ARGS)
            return self._taken(after, operation)
        if count < 1 + sizes:
            raise _Broken(BAD_ARGS)
        if count == 2 + sizes:
            operation.reply = tokens[1]
        elif count > 2 + sizes:
            if tokens[1] not in (b"+", b"|"):
                raise _Broken(BAD_ARGS)
            names = tokens[2:-sizes]
            if tokens[1] == b"+":
                operation.reply, *names = names
            operation.queue = b" ".join(names)
        return self._with_body(operation, tokens[-sizes:], after)

    def _with_body(self, op: Operation, sizes: list[bytes], body: int) -> Operation | None:
        """The operation whose line ends before `body`, with its payload."""
        data = self._data
        total = _number(sizes[-1])
        if total < 0:
            raise _Broken(BAD_ARGS)
        op.header_bytes = _number(sizes[0]) if len(sizes) == 2 else 0
        if not 0 <= op.header_bytes <= total:
            raise _Broken(BAD_ARGS)
        if total > self._max_payload:
            raise _Broken(BAD_PAYLOAD)
        end = body + total
        missing = end + 2 - len(data)
        if missing < 2 and data[end] != _CR:
            raise _Broken(BAD_OP)  # said as soon as the first byte behind the payload is there
        if missing > 0:
            self._need = end + (2 if missing == 1 else 1) - self._at
            return None
        if data[end + 1] != _LF:
            raise _Broken(BAD_OP)
        op.body = bytes(data[body:end])
        return self._taken(end + 2, op)


def pub(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """The bytes of a PUB, or of an HPUB when headers is not empty; ValueError on a subject that cannot be written."""
    to, back = _encoded(subject, "subject"), _encoded(reply, "reply")
    if not to:
        raise ValueError("an empty subject")
    total = len(headers) + len(payload)
    name, sizes = (
        (b"HPUB", b"%d %d" % (len(headers), total)) if headers else (b"PUB", b"%d" % total)
    )
    line = b" ".join([name, to, back, sizes] if back else [name, to, sizes])
    return b"".join([line, b"\r\n", headers, payload, b"\r\n"])


def _encoded(subject: str, what: str) -> bytes:
    if any(blank in subject for blank in " \t\r\n"):
        raise ValueError(f"a blank or a line end in the {what} {subject!r}")
    return subject.encode("utf-8", "surrogateescape")
