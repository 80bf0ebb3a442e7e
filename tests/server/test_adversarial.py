"""Clients that break the rules, on a running server: each gets what the protocol says, and the
others notice nothing.
"""

import random
import socket

import pytest

from .process import Wire, running

SEED = 20_260_131


@pytest.fixture(scope="module")
def server():
    with running() as process:
        yield process


@pytest.fixture
def port(server):
    """The port of a server that still serves an innocent client after the test."""
    number = server.port()
    with Wire(number) as witness:
        witness.send("SUB witness 1\r\n")
        assert witness.ping() == b""
        yield number
        witness.send("PUB witness 2\r\nok\r\n")
        assert witness.ping() == b"MSG witness 1 2\r\nok\r\n"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("GET / HTTP/1.1\r\n", "Unknown Protocol Operation"),
        ("MSG a 1 2\r\nhi\r\n", "Unknown Protocol Operation"),
        ("SUB\r\n", "Unknown Protocol Operation"),
        ("PUB a 2\r\nhiXX", "Unknown Protocol Operation"),
        ("PUB a 1048577\r\n", "Maximum Payload Violation"),
        ("PUB a 99999999999999999999\r\n", None),
        ("PUB a 200000000\r\n", "Maximum Payload Violation"),
        ("PUB a 2000000000\r\n", None),
        ("SUB " + "a" * 5000, "maximum control line exceeded"),
        ("PUB a -1\r\n", None),
        ("PUB a x\r\n", None),
        ("SUB a b c d\r\n", None),
        ("HPUB a 5 3\r\n", None),
        ("HPUB a 0 0\r\n\r\n", None),
        ("-ERR 'x'\r\n", None),
        ("CONNECT {bad\r\n", None),
        ("CONNECT 1\r\n", None),
        ('CONNECT {"protocol":7}\r\n', "invalid client protocol"),
        ('CONNECT {"no_responders":true}\r\n', "no responders requires headers support"),
    ],
)
def test_what_ends_a_connection(port, text, answer):
    wire = Wire(port)
    wire.send(text)
    assert wire.rest().decode() == (f"-ERR '{answer}'\r\n" if answer else "")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("SUB a..b 1\r\n", "Invalid Subject"),
        ("SUB >.a 1\r\n", "Invalid Subject"),
        ("PUB $NRG.x 0\r\n\r\n", 'Permissions Violation for Publish to "$NRG.x"'),
        (
            "PUB a $JS.ACK.x 0\r\n\r\n",
            'Permissions Violation for Publish with Reply of "$JS.ACK.x"',
        ),
        ("PUB a.* 0\r\n\r\n", "Invalid Publish Subject"),
    ],
)
def test_what_is_refused_but_forgiven(port, text, answer):
    with Wire(port) as wire:
        wire.send(text)
        assert wire.ping().decode() == f"-ERR '{answer}'\r\n"


def test_operations_before_connect_are_acknowledged(port):
    with Wire(port, hello=None) as wire:
        wire.send("SUB a 1\r\nPUB a 2\r\nhi\r\n")
        assert wire.ping() == b"+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\n"


def test_half_a_message_and_then_nothing(port):
    wires = [Wire(port) for _ in range(20)]
    for wire, text in zip(
        wires, ["PUB a 100\r\nhalf", "PUB a", "SUB a", "P", "HPUB a 10 20\r\nNA"] * 4, strict=True
    ):
        wire.send(text)
    for wire in wires:
        wire.close()


def test_any_split_gives_the_same(port):
    text = b"SUB a.b 12\r\nPUB a.b 5\r\nhello\r\nHPUB a.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPING\r\n"
    with Wire(port, hello='{"verbose":false,"headers":true}') as wire:
        wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(text)):
            wire.send(text[at : at + 1])
        expected = b"MSG a.b 12 5\r\nhello\r\nHMSG a.b 12 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPONG\r\n"
        assert wire.read_until(b"PONG\r\n") == expected


def test_random_bytes(port):
    source = random.Random(SEED)
    words = [
        b"PUB ",
        b"SUB ",
        b"HPUB ",
        b"UNSUB ",
        b"CONNECT ",
        b"PING",
        b"\r\n",
        b" ",
        b"{}",
        b"5",
    ]
    for _ in range(150):
        with Wire(port, hello=None) as wire:
            pieces = [
                source.choice(words)
                if source.random() < 0.6
                else source.randbytes(source.randrange(40))
                for _ in range(30)
            ]
            try:
                wire.send(b"".join(pieces))
            except (BrokenPipeError, ConnectionResetError):
                continue


def test_a_payload_of_the_allowed_size_passes(port):
    with Wire(port) as wire:
        wire.send("SUB big 1\r\n")
        wire.send(b"PUB big 1048576\r\n" + b"x" * 1048576 + b"\r\n")
        assert len(wire.ping()) == len(b"MSG big 1 1048576\r\n") + 1048576 + 2


def test_a_second_subscription_with_the_same_id_changes_nothing(port):
    with Wire(port) as wire:
        wire.send("SUB a 1\r\nSUB b 1\r\nPUB b 1\r\nx\r\nPUB a 1\r\ny\r\n")
        assert wire.ping() == b"MSG a 1 1\r\ny\r\n"


def test_subscriptions_are_limited_when_asked(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("max_subscriptions: 2\n")
    with running("-c", str(path)) as limited, Wire(limited.port()) as wire:
        wire.send("SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
        assert wire.ping() == b"-ERR 'maximum subscriptions exceeded'\r\n"


def idle(server, count):
    """Resident bytes that each of so many idle connections costs; a round trip still works."""
    port = server.port()
    with Wire(port) as first:
        first.ping()
        before = server.memory()
        many = []
        for _ in range(count):
            connected = socket.create_connection(("127.0.0.1", port), timeout=60)
            connected.sendall(b'CONNECT {"verbose":false}\r\nSUB idle 1\r\nPING\r\n')
            many.append(connected)
        for connected in many:
            data = b""
            while b"PONG" not in data:
                data += connected.recv(65536)
        cost = (server.memory() - before) / count
        assert first.ping() == b""
        first.send("PUB idle 1\r\nx\r\n")
        first.ping()
        for connected in many:
            data = b""
            while b"x\r\n" not in data:  # the server asks on a slow day whether it is there
                data = (data + connected.recv(64)).replace(b"PING\r\n", b"")
            assert data == b"MSG idle 1 1\r\nx\r\n"
            connected.close()
        return cost


def test_two_thousand_idle_connections():
    with running() as server:
        assert idle(server, 2000) < 4096


@pytest.mark.slow
def test_ten_thousand_idle_connections():
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_200:
        pytest.skip(f"only {hard} files may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 10_200), hard))
    try:
        with running() as server:
            assert idle(server, 10_000) < 4096
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_client_that_never_reads_is_cut_off_and_nobody_else_suffers(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text("max_pending: 8MB\n")
    with running("-c", str(path), "-m", "-1") as server:
        port = server.port()
        stuck, good, publisher = Wire(port), Wire(port), Wire(port)
        stuck.send("SUB flood 1\r\n")
        good.send("SUB flood 1\r\n")
        stuck.ping(), good.ping()
        before = server.memory()
        message = b"PUB flood 65536\r\n" + b"x" * 65536 + b"\r\n"
        received = 0
        peak = 0
        for _ in range(1600):
            publisher.send(message)
            received += len(good.read_until(b"x\r\n"))
            peak = max(peak, server.memory())
        publisher.ping()
        assert received == 1600 * (len(b"MSG flood 1 65536\r\n") + 65538)
        assert peak - before < 48 * 2**20
        assert b"-ERR" not in stuck.rest()[-100:]
        good.close(), publisher.close()
