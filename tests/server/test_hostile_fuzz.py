"""Valid dialogues with random changes: whatever comes of it, the server lives, serves others and
answers in the protocol.

The seed is the test's parameter; what failed is said again by running it again.
"""

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from .hostile import MEGABYTE, raw, small_server, witnessed
from .process import ServerProcess

LIMITS = """
max_subscription_memory: 32MB
max_output_memory: 32MB
max_payload: 100KB
max_sub_tokens: 20
authorization { users: [
    {user: a, password: a}
    {user: b, password: b, permissions: {publish: {deny: ["x.>"]}, subscribe: ["in.*", "a.> q.*"],
        allow_responses: {max: 3}}}
] }
no_auth_user: a
"""

DIALOGUES = [
    b'CONNECT {"verbose":true,"user":"b","pass":"b","headers":true}\r\nSUB in.1 1\r\n'
    b"SUB a.b q.1 2\r\nPUB a.b in.1 5\r\nhello\r\nPING\r\nUNSUB 2 3\r\nUNSUB 1\r\n",
    b'CONNECT {"verbose":false,"pedantic":true,"headers":true,"no_responders":true}\r\n'
    b"SUB in.* 1\r\nPUB nobody in.2 0\r\n\r\nHPUB a.b 22 24\r\nNATS/1.0\r\nK: value\r\n\r\nhi\r\n",
    b'CONNECT {"verbose":false,"headers":true,"lang":"x","name":"y"}\r\nSUB in.* 1\r\n'
    b'PUB $JS.API.STREAM.CREATE.S in.c 49\r\n{"name":"S","subjects":["s.>"],"storage":"memory"}\r\n'
    b"PUB s.a in.p 3\r\nabc\r\nPUB $JS.API.STREAM.INFO.S in.i 0\r\n\r\n"
    b'PUB $JS.API.CONSUMER.CREATE.S.c in.c 67\r\n{"stream_name":"S","config":{"durable_name":"c",'
    b'"ack_policy":"none"}}\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.c in.n 1\r\n5\r\nPING\r\n',
    b"PING\r\nPONG\r\n+OK\r\nINFO {}\r\nSUB > 1\r\nPUB a 1\r\nx\r\nUNSUB 1\r\n-ERR 'x'\r\n",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("fuzz")
    with small_server(folder, "-js", "-sd", str(folder / "store"), limits=LIMITS) as process:
        yield process


def changed(source: random.Random, text: bytes) -> bytes:
    """A few bytes or pieces other than they were."""
    data = bytearray(text)
    for _ in range(source.randrange(1, 6)):
        at = source.randrange(len(data) + 1)
        match source.randrange(7):
            case 0:
                data[at:at] = bytes([source.randrange(256)])
            case 1:
                del data[at : at + source.randrange(1, 12)]
            case 2:
                data[at : at + 1] = bytes([source.randrange(256)])
            case 3:  # a piece again
                data[at:at] = data[at : at + source.randrange(1, 60)] * source.randrange(1, 9)
            case 4:
                data[at:at] = source.choice(
                    [b"\r\n", b"\n", b"\r", b" ", b"\t", b"\x00", b">", b"*", b".", b"$JS.ACK."]
                )
            case 5:
                data[at:at] = str(source.choice([-1, 0, 1, 2**31, 2**63, 10**30])).encode()
            case 6:
                data[at:at] = source.choice([b"{", b"[", b'"', b"\\u0000", b"\xff"]) * 50
    return bytes(data)


def check(got: bytes) -> None:
    """Everything the server said is an operation of the protocol; the last may be cut short."""
    while b"\r\n" in got:
        line, _, got = got.partition(b"\r\n")
        words = line.split()
        if words[0] in (b"MSG", b"HMSG"):
            size = int(words[-1])
            assert got[size : size + 2] in (b"\r\n", b"\r", b"")
            got = got[size + 2 :]
        else:
            assert words[0] in (b"INFO", b"+OK", b"-ERR", b"PING", b"PONG"), line


@pytest.mark.parametrize("seed", range(6))
def test_dialogues_with_random_changes(server: ServerProcess, seed: int) -> None:
    source = random.Random(seed)
    with witnessed(server, growth=32 * MEGABYTE):
        for _ in range(150):
            said = changed(source, source.choice(DIALOGUES))
            with raw(server.port()) as connection:
                got = b""
                with contextlib.suppress(OSError):
                    cut = source.randrange(len(said) + 1)
                    connection.sendall(said[:cut])
                    connection.sendall(said[cut:] + b"\r\nPING\r\nPING\r\n")
                connection.settimeout(0.03)
                with contextlib.suppress(TimeoutError, ConnectionResetError):
                    while data := connection.recv(65536):
                        got += data
                check(got)
