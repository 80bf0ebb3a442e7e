"""What nats-server 2.15.1 refuses, how it says so, what it lets pass: the parser against the table.

The test against a real server runs when one is found, by PELTON_NATS_SERVER or on the PATH.
"""

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pelton.core.protocol.wire import (
    BAD_ARGS,
    BAD_LINE,
    BAD_OP,
    BAD_PAYLOAD,
    OP_PING,
    ROLE_SERVER,
    Parser,
    WireError,
)
from tests.peers import available_servers, command_of
from tests.ports import free_port

OPEN = None
SAID = {
    b"-ERR 'Unknown Protocol Operation'\r\n": BAD_OP,
    b"-ERR 'maximum control line exceeded'\r\n": BAD_LINE,
    b"-ERR 'Maximum Payload Violation'\r\n": BAD_PAYLOAD,
    b"": BAD_ARGS,
}
GREETING = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
B = b"b"

# What a client sends, in pieces, and what becomes of it.
# OPEN: the connection goes on, each PING is answered.
TABLE: list[tuple[tuple[bytes, ...], int | None]] = [
    # names
    ((b"FOO\r\n",), BAD_OP),
    ((b"PX",), BAD_OP),
    ((b"\r\n",), BAD_OP),
    ((b"\n",), BAD_OP),
    ((b"\0",), BAD_OP),
    ((b" PING\r\n",), BAD_OP),
    ((b"P",), OPEN),
    ((b"H",), OPEN),
    ((b"HX",), BAD_OP),
    ((b"M",), BAD_OP),
    ((b"MSG a 1 2\r\nok\r\n",), BAD_OP),
    ((b"HMSG a 1 12 12\r\n",), BAD_OP),
    ((b"RMSG a 1\r\n",), BAD_OP),
    ((b"PI\r\n",), BAD_OP),
    ((b"pInG\r\nPING\r\n",), OPEN),
    ((b"PING garbage\r\nPINGX\nPING\r\n",), OPEN),
    ((b"PONGxx yy\r\nPING\r\n",), OPEN),
    ((b"+OKfoo\n+ok\r\nPING\r\n",), OPEN),
    ((b"+O\r\n",), BAD_OP),
    ((b"-E\r\n",), BAD_OP),
    ((b"-ERR\r\n",), BAD_OP),
    ((b"-ERRX\r\n",), BAD_OP),
    ((b"-ERR 'x'\r\n",), BAD_ARGS),
    ((b"-err \r\n",), BAD_ARGS),
    ((b"INFO{}\r\ninfo {}\r\nPING\r\n",), OPEN),
    ((b"CONNECT\t{}  \r\nCONNECT {}\nPING\r\n",), OPEN),
    # PUB
    ((b"PUB\r\n",), BAD_OP),
    ((b"PUB\n",), BAD_OP),
    ((b"PUBa 2\r\n",), BAD_OP),
    ((b"PUB\ra 2\r\n",), BAD_OP),
    ((b"PUB \r\n",), BAD_ARGS),
    ((b"PUB a\r\n",), BAD_ARGS),
    ((b"PUB a 1 2 3 4\r\n",), BAD_ARGS),
    ((b"PUB a b c 2\r\nok\r\n",), BAD_ARGS),
    ((b"PUB a -1\r\n",), BAD_ARGS),
    ((b"PUB a +2\r\n",), BAD_ARGS),
    ((b"PUB a 0x2\r\n",), BAD_ARGS),
    ((b"PUB a x\r\n",), BAD_ARGS),
    ((b"PUB a 2\r\r\nok\r\n",), BAD_ARGS),
    ((b"PUB a 0000000002\r\nok\r\n",), BAD_ARGS),
    ((b"PUB a 9999999999\r\n",), BAD_ARGS),
    ((b"PUB a 999999999\r\n",), BAD_PAYLOAD),
    ((b"PUB a 1048577\r\n",), BAD_PAYLOAD),
    ((b"PUB a 0\r\n\r\nPUB a 000000002\r\nok\r\nPING\r\n",), OPEN),
    ((b"PUB\ta\t2\r\nok\r\nPUB   a  \t r  2  \r\nok\r\nPING\r\n",), OPEN),
    ((b"pUb a 2\nok\r\nPUB a\rb 2\r\nok\r\nPUB a\0b 2\r\nok\r\nPING\r\n",), OPEN),
    ((b"PUB a 2\r\nokX",), BAD_OP),
    ((b"PUB a 2\r\nok\nPING\r\n",), BAD_OP),
    ((b"PUB a 2\r\nok\rX",), BAD_OP),
    ((b"PUB a 2\r\nok", b"X"), BAD_OP),
    ((b"PUB a 2\r\nok\r", b"X"), BAD_OP),
    ((b"PUB a 2\r\nok\r", b"\nPING\r\n"), OPEN),
    # HPUB
    ((b"HPUB\r\n",), BAD_OP),
    ((b"HPUB \r\n",), BAD_ARGS),
    ((b"HPUB a 2\r\n",), BAD_ARGS),
    ((b"HPUB a 3 2\r\n",), BAD_ARGS),
    ((b"HPUB a 9999999 1048577\r\n",), BAD_ARGS),
    ((b"HPUB a -1 2\r\n",), BAD_ARGS),
    ((b"HPUB a x 2\r\n",), BAD_ARGS),
    ((b"HPUB a r b 12 12\r\n",), BAD_ARGS),
    ((b"HPUB a r 12 -1\r\n",), BAD_ARGS),
    ((b"HPUB a r 12 1048577\r\n",), BAD_PAYLOAD),
    ((b"HPUB a 0 2\r\nok\r\nHPUB a 0 0\r\n\r\nPING\r\n",), OPEN),
    ((b"HPUB a r 12 12\r\nNATS/1.0\r\n\r\n\r\nPING\r\n",), OPEN),
    # SUB and UNSUB
    ((b"SUB\r\n",), BAD_OP),
    ((b"SUB \r\n",), BAD_ARGS),
    ((b"SUB zz\r\n",), BAD_ARGS),
    ((b"SUB zz q 1 2\r\n",), BAD_ARGS),
    ((b"SUB zz q 1 2 3 4\r\n",), BAD_ARGS),
    ((b"SUB zz 1\r\nSUB zz q 2\nSUB\tzz\rq 3 \r\nPING\r\n",), OPEN),
    ((b"UNSUB\r\n",), BAD_OP),
    ((b"UNSUB \r\n",), BAD_ARGS),
    ((b"UNSUB 1 2 3\r\n",), BAD_ARGS),
    ((b"UNSUB 1 2 3 4 5 6\r\n",), BAD_ARGS),
    ((b"UNSUB 1\r\nUNSUB 1 x\r\nUNSUB 1 -3\r\nUNSUB 1 99999999999\r\nPING\r\n",), OPEN),
    # the length of a line: its arguments, without blanks before them and without its end
    ((b"SUB z" + B * 4093 + b" 1\r\nPING\r\n",), OPEN),
    ((b"SUB  z" + B * 4093 + b" 1\nPING\r\n",), OPEN),
    ((b"SUB z" + B * 4094 + b" 1\r\n",), BAD_LINE),
    ((b"SUB z" + B * 4093 + b" 1 \r\n",), BAD_LINE),
    ((b"SUB z", B * 4094 + b" 1"), BAD_LINE),
    ((b"SUB z" + B * 4093 + b" 1\r", b"\nPING\r\n"), OPEN),
    ((b"UNSUB " + B * 4097,), BAD_LINE),
    ((b"UNSUB ", B * 4096, b"\r", b"\nPING\r\n"), OPEN),
    ((b"UNSUB ", B * 4096, b"b\r\n"), BAD_LINE),
    ((b"UNSUB " + b" " * 5000, b"1\r\nPING\r\n"), OPEN),
    ((b"PUB " + b" " * 5000 + b"a 2\r\nok\r\nPING\r\n",), OPEN),
    ((b"PUB a" + b" " * 5000 + b"2\r\nok\r\n",), BAD_LINE),
    ((b"PUB a 2" + b" " * 5000, b"\r\nok\r\n"), BAD_LINE),
    ((b"PING" + b"x" * 9000 + b"\r\nPING\r\n",), OPEN),
    ((b"PING" + b"x" * 3000, b"x" * 9000 + b"\r\nPING\r\n"), OPEN),
    ((b'CONNECT {"name":"' + B * 4085 + b'"}\r\nPING\r\n',), OPEN),
    ((b'CONNECT {"name":"' + B * 4086 + b'"}\r\n',), BAD_LINE),
    ((b'CONNECT {"name":"' + B * 80, B * 4006 + b'"}\r\n'), BAD_LINE),
    ((b'CONNECT {"name":"' + B * 4085 + b'"}', b"\r\nPING\r\n"), OPEN),
    ((b'INFO {"name":"' + B * 5000 + b'"}\r\n',), BAD_LINE),
    ((b"-ERR " + B * 5000 + b"\r\n",), BAD_LINE),
]


def pings(pieces: tuple[bytes, ...]) -> int:
    return sum(event[0] == OP_PING for event in Parser(ROLE_SERVER).feed(b"".join(pieces)))


@pytest.mark.parametrize(("pieces", "want"), TABLE)
def test_the_parser(pieces: tuple[bytes, ...], want: int | None) -> None:
    for chunks in (pieces, [b"".join(pieces)]):
        parser = Parser(ROLE_SERVER)
        with contextlib.suppress(WireError):
            for chunk in chunks:
                parser.feed(chunk)
        assert parser.failed == want


def find_server() -> str | None:
    command = command_of("nats-server") if "nats-server" in available_servers() else None
    return command[0] if command else None


@pytest.fixture
def peer_port(tmp_path: Path) -> Iterator[int]:
    port = free_port()
    command = [str(find_server()), "-a", "127.0.0.1", "-p", str(port), "-l", str(tmp_path / "log")]
    with subprocess.Popen(command) as server:
        try:
            for _ in range(200):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.02)
            yield port
        finally:
            server.terminate()


def ask(port: int, pieces: tuple[bytes, ...], expect_open: bool) -> tuple[bytes, bool]:
    """What a real server answers after its INFO, and whether it closed the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(GREETING + b"PING\r\n")
        while not answer.endswith(b"PONG\r\n"):
            answer += s.recv(65536)
        answer = b""
        try:
            for i, piece in enumerate(pieces):
                if i:
                    time.sleep(0.1)  # the only way to make a peer read the pieces apart
                s.sendall(piece)
            wanted = pings(pieces) * b"PONG\r\n" if expect_open else None
            while wanted is None or answer != wanted:
                s.settimeout(2)
                data = s.recv(65536)
                if not data:
                    return answer, True
                answer += data
            s.settimeout(0.2)
            return answer, not s.recv(1)
        except TimeoutError:
            return answer, False
        except ConnectionError:
            return answer, True


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.skipif(find_server() is None, reason="no nats-server found")
def test_a_real_server_agrees(peer_port: int) -> None:
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda row: ask(peer_port, row[0], row[1] is OPEN), TABLE))
    for (pieces, want), (answer, closed) in zip(TABLE, got, strict=True):
        assert closed == (want is not OPEN), pieces
        if want is OPEN:
            assert answer == pings(pieces) * b"PONG\r\n", pieces
        else:
            assert SAID[answer] == want, pieces
