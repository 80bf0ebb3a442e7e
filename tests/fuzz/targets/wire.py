"""The protocol parser in its three roles: any split of the bytes gives the same events, or the same refusal."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.protocol import wire
from pelton.core.protocol.wire import ROLE_CLIENT, ROLE_LEAF, ROLE_SERVER, Parser, WireError
from tests.fuzz.inputs import pieces

ROLES = (ROLE_SERVER, ROLE_CLIENT, ROLE_LEAF)
CODES = {wire.BAD_OP, wire.BAD_ARGS, wire.BAD_LINE, wire.BAD_PAYLOAD}
WORDS = (
    b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"CONNECT {", b"INFO {", b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b"-ERR '",
    b"MSG ", b"HMSG ", b"LS+ ", b"LS- ", b"LMSG ", b"\r\n", b" + ", b" | ", b"999999999", b"NATS/1.0\r\n",
)  # fmt: skip


def run(data: bytes) -> None:
    """Byte 0: role and limits; byte 1: where it is split; then what is received."""
    if len(data) < 2:
        return
    kind, seed, body = data[0], data[1], data[2:]
    small = bool(kind & 8)
    headers = not kind & 16

    def parser() -> Parser:
        limit = 64 if small else None
        return Parser(ROLES[kind % 3], limit, limit, headers)

    whole = read(parser(), [body])
    split = read(parser(), pieces(body, seed))
    bytewise = read(parser(), [body[i : i + 1] for i in range(len(body))])
    assert whole == split == bytewise, (whole, split, bytewise)


def read(parser: Parser, parts: list[bytes]) -> tuple[list[tuple[object, ...]], int | None]:
    """(events, refusal or None)."""
    events: list[tuple[object, ...]] = []
    for part in parts:
        try:
            events += parser.feed(part)
        except WireError as error:
            assert error.code in CODES
            assert parser.failed == error.code
            return events + error.events, error.code
    return events, None


def seeds() -> Iterable[bytes]:
    lines = [
        b"CONNECT {\"verbose\":false}\r\nPING\r\nSUB a.> q 1\r\nPUB a.b r 3\r\nabc\r\nUNSUB 1 5\r\n",
        b"HPUB a r 12 15\r\nNATS/1.0\r\n\r\nabc\r\nPONG\r\n+OK\r\n-ERR 'no'\r\n",
        b"INFO {\"max_payload\":64}\r\nMSG a 9 r 2\r\nhi\r\nHMSG a 9 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"LS+ a.b\r\nLS+ a.c q 3\r\nLS- a.b\r\nLMSG a.b r 2\r\nhi\r\nLMSG a.b + r q1 q2 2\r\nhi\r\nLMSG a | q 1\r\nx\r\n",
        b"HMSG a.b + r q 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    ]  # fmt: skip
    for at, line in enumerate(lines):
        for role in range(3):
            yield bytes([role + 3 * (role + at), at * 37]) + line
