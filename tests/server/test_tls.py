"""TLS of the clients' listener, on our server and on a nats-server: who comes in, who does not, and
that nothing a stranger sends disturbs the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import time
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509

from tests.certificates import Authority, Issued
from tests.peers import available_servers
from tests.server.configured import Configured, configured, line_of, rest_of

HELLO = b'CONNECT {"verbose":false,"name":"test"}\r\nPING\r\n'


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.server()


@pytest.fixture(scope="module")
def visitor(authority: Authority) -> Issued:
    return authority.client("visitor", x509.RFC822Name("visitor@example.com"))


def tls(issued: Issued, more: str = "") -> str:
    return f'tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}", {more} }}'


def trusting(authority: Authority, shown: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if shown is not None:
        context.load_cert_chain(shown.cert_file, shown.key_file)
    return context


def secure(connection: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    return context.wrap_socket(connection, server_hostname="localhost")


def begun_in_time(server: Configured, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A handshake that comes before INFO; beside load one may begin after the server's short wait."""
    for _ in range(20):
        with contextlib.suppress(ssl.SSLError):
            return secure(server.connect(), context)
    raise AssertionError("no handshake came first")


def info_of(line: bytes) -> dict[str, object]:
    assert line.startswith(b"INFO "), line
    fields: dict[str, object] = json.loads(line[5:])
    return fields


def greets(connection: socket.socket) -> None:
    """It does what a client wants."""
    connection.sendall(HELLO + b"SUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n")
    assert line_of(connection) == b"PONG\r\n"
    assert line_of(connection) == b"MSG a 1 5\r\n"
    assert line_of(connection) == b"hello\r\n"
    assert line_of(connection) == b"PONG\r\n"


def comes_in(plain: socket.socket, context: ssl.SSLContext) -> bool:
    """Whether the server answers after a handshake."""
    try:
        with secure(plain, context) as connection:
            connection.sendall(HELLO)
            return bool(connection.recv(100))
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.fixture(params=available_servers())
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.peer
def test_info_comes_first_and_says_that_tls_is_required(
    kind: str, authority: Authority, issued: Issued
) -> None:
    with configured(kind, f"listen: 127.0.0.1:@port\n{tls(issued)}") as server:
        plain = server.connect()
        info = info_of(line_of(plain))
        assert info["tls_required"] is True
        assert "tls_verify" not in info
        assert "tls_available" not in info
        with secure(plain, trusting(authority)) as connection:
            assert connection.version() == "TLSv1.3"
            greets(connection)


@pytest.mark.peer
def test_large_messages_in_both_directions(kind: str, authority: Authority, issued: Issued) -> None:
    size = 700_001
    body = os.urandom(size)
    with configured(kind, f"listen: 127.0.0.1:@port\n{tls(issued)}") as server:
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority)) as connection:
            connection.sendall(HELLO + b"SUB a 1\r\n" + b"PUB a %d\r\n%b\r\n" % (size, body) * 3)
            assert line_of(connection) == b"PONG\r\n"
            for _ in range(3):
                assert line_of(connection) == b"MSG a 1 %d\r\n" % size
                got = b""
                while len(got) < size + 2:
                    got += connection.recv(size + 2 - len(got))
                assert got == body + b"\r\n"


@pytest.mark.peer
def test_verify_asks_for_a_certificate(
    kind: str, authority: Authority, issued: Issued, visitor: Issued, tmp_path: Path
) -> None:
    config = f'listen: 127.0.0.1:@port\n{tls(issued, f"""ca_file: "{authority.ca_file}", verify: true""")}'
    stranger = Authority(tmp_path, "other").client("stranger")
    with configured(kind, config) as server:
        for shown in (None, stranger):
            plain = server.connect()
            assert info_of(line_of(plain))["tls_verify"] is True
            assert not comes_in(plain, trusting(authority, shown))
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority, visitor)) as connection:
            greets(connection)
        assert "TLS handshake error" in server.log


@pytest.mark.peer
def test_handshake_first_says_nothing_before(
    kind: str, authority: Authority, issued: Issued
) -> None:
    config = f"listen: 127.0.0.1:@port\n{tls(issued, 'handshake_first: true')}"
    with (
        configured(kind, config) as server,
        secure(server.connect(), trusting(authority)) as connection,
    ):
        assert info_of(line_of(connection))["tls_required"] is True
        greets(connection)


@pytest.mark.peer
@pytest.mark.parametrize("word", ["auto", '"100ms"'])
def test_handshake_first_falls_back_to_info(
    kind: str, word: str, authority: Authority, issued: Issued
) -> None:
    config = f"listen: 127.0.0.1:@port\n{tls(issued, f'first: {word}')}"
    with configured(kind, config) as server:
        with begun_in_time(server, trusting(authority)) as connection:
            info_of(line_of(connection))
            greets(connection)
        plain = server.connect()
        assert info_of(line_of(plain))["tls_required"] is True
        with secure(plain, trusting(authority)) as connection:
            greets(connection)


@pytest.mark.peer
def test_plain_clients_beside_those_with_tls(
    kind: str, authority: Authority, issued: Issued
) -> None:
    config = f"listen: 127.0.0.1:@port\nallow_non_tls: true\n{tls(issued)}"
    with configured(kind, config) as server:
        with server.connect() as plain:
            info = info_of(line_of(plain))
            assert info["tls_available"] is True
            assert "tls_required" not in info
            greets(plain)
        other = server.connect()
        line_of(other)
        with secure(other, trusting(authority)) as connection:
            greets(connection)


@pytest.mark.peer
def test_a_certificate_that_is_not_pinned_is_refused(
    kind: str, authority: Authority, issued: Issued, visitor: Issued
) -> None:
    from pelton.server.transports.tls import public_key_pin

    pin = public_key_pin(visitor.certificate)
    more = f'ca_file: "{authority.ca_file}", verify: true, pinned_certs: ["{pin.upper()}"]'
    other = authority.client("somebody-else")
    with configured(kind, f"listen: 127.0.0.1:@port\n{tls(issued, more)}") as server:
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority, visitor)) as connection:
            greets(connection)
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority, other)) as connection:
            assert rest_of(connection) == b""


@pytest.mark.peer
def test_the_version_and_the_suite_can_be_demanded(
    kind: str, authority: Authority, issued: Issued
) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    with configured(
        kind, f'listen: 127.0.0.1:@port\n{tls(issued, f"""cipher_suites: ["{suite}"]""")}'
    ) as server:
        context = trusting(authority)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        plain = server.connect()
        line_of(plain)
        with secure(plain, context) as connection:
            used = connection.cipher()
            assert used is not None
            assert used[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
            greets(connection)
    with configured(
        kind, f'listen: 127.0.0.1:@port\n{tls(issued, """min_version: "1.3" """)}'
    ) as server:
        plain = server.connect()
        line_of(plain)
        with pytest.raises(ssl.SSLError):
            secure(plain, context)


@pytest.mark.peer
def test_certificates_are_chosen_by_the_name_asked_for(
    kind: str, authority: Authority, issued: Issued
) -> None:
    other = authority.server("other", "other.example", "*.wild.example")
    pairs = ", ".join(
        f'{{cert_file: "{each.cert_file}", key_file: "{each.key_file}"}}'
        for each in (issued, other)
    )
    with configured(kind, f"listen: 127.0.0.1:@port\ntls {{ certs: [{pairs}] }}") as server:
        for name in ("localhost", "other.example", "a.wild.example"):
            plain = server.connect()
            line_of(plain)
            with trusting(authority).wrap_socket(plain, server_hostname=name) as connection:
                greets(connection)


GARBAGE = {
    "a plain CONNECT": HELLO,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a broken record": b"\x16\x03\x01\x00\x05hello" * 20,
    "a huge record": b"\x16\x03\x01\xff\xff" + b"x" * 70_000,
    "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "zeros": b"\0" * 5000,
    "half a hello": b"\x16\x03\x01\x02\x00\x01\x00",
    "nothing": b"",
}


def test_a_handshake_of_garbage_ends_that_connection_only(
    authority: Authority, issued: Issued
) -> None:
    with configured("pelton", f"listen: 127.0.0.1:@port\n{tls(issued, 'timeout: 0.5')}") as server:
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority)) as witness:
            greets(witness)
            for garbage in GARBAGE.values():
                bad = server.connect()
                line_of(bad)
                bad.sendall(garbage)
                rest_of(bad)
                bad.close()
                gone = server.connect()
                line_of(gone)
                gone.sendall(garbage)
                gone.close()
            witness.sendall(b"PUB a 2\r\nok\r\n")
            assert line_of(witness) == b"MSG a 1 2\r\n"


def test_a_client_that_speaks_plainly_is_told(issued: Issued) -> None:
    with configured("pelton", f"listen: 127.0.0.1:@port\n{tls(issued)}") as server:
        plain = server.connect()
        line_of(plain)
        plain.sendall(HELLO)
        assert rest_of(plain) == b"-ERR 'Secure Connection - TLS Required'\r\n"


@pytest.mark.peer
def test_a_slow_handshake_is_cut_off(kind: str, issued: Issued) -> None:
    with configured(kind, f"listen: 127.0.0.1:@port\n{tls(issued, 'timeout: 0.3')}") as server:
        slow = server.connect()
        line_of(slow)
        slow.sendall(b"\x16\x03\x01")
        rest_of(slow)
        server.wait_for("TLS Handshake Failure")


@pytest.mark.peer
def test_handshakes_can_be_limited(kind: str, authority: Authority, issued: Issued) -> None:
    config = f"listen: 127.0.0.1:@port\n{tls(issued, 'connection_rate_limit: 2')}"
    with configured(kind, config) as server:
        told, begun = 0, time.monotonic()
        for _ in range(12):
            plain = server.connect()
            line_of(plain)
            try:
                secure(plain, trusting(authority)).close()
            except (ssl.SSLError, ConnectionError):
                told += 1
        assert 12 - told <= 2 * (time.monotonic() - begun + 2)


def test_a_reload_takes_new_certificates_for_new_handshakes(
    authority: Authority, issued: Issued, tmp_path: Path
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    def install(which: Issued) -> None:
        cert.write_bytes(Path(which.cert_file).read_bytes())
        key.write_bytes(Path(which.key_file).read_bytes())

    def shown(server: Configured) -> bytes:
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority)) as connection:
            return connection.getpeercert(binary_form=True) or b""

    install(issued)
    config = f'listen: 127.0.0.1:@port\ntls {{ cert_file: "{cert}", key_file: "{key}" }}'
    with configured("pelton", config) as server:
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority)) as old:
            greets(old)
            first = shown(server)
            install(authority.server("renewed", "localhost"))
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("Reloaded server configuration")
            assert shown(server) != first
            cert.write_text("broken")
            server.process.send_signal(signal.SIGHUP)
            server.wait_for("Failed to reload server configuration")
            assert shown(server) != first
            old.sendall(b"PING\r\n")
            assert line_of(old) == b"PONG\r\n"


def test_options_ask_for_tls(authority: Authority, issued: Issued) -> None:
    from tests.server.process import running

    with running("--tls", "--tlscert", issued.cert_file, "--tlskey", issued.key_file) as server:
        plain = socket.create_connection(("127.0.0.1", server.port()), 20)
        assert info_of(line_of(plain))["tls_required"] is True
        with secure(plain, trusting(authority)) as connection:
            greets(connection)


def test_the_names_of_a_certificate(authority: Authority) -> None:
    from pelton.server.transports.tls import candidates, same_subject

    oid = x509.NameOID
    shown = authority.client(
        "named",
        x509.RFC822Name("a@example.com"),
        x509.DNSName("a.example.com"),
        x509.UniformResourceIdentifier("urn:a"),
        subject=[
            (oid.DOMAIN_COMPONENT, "com"),
            (oid.DOMAIN_COMPONENT, "example"),
            (oid.COUNTRY_NAME, "DE"),
            (oid.ORGANIZATION_NAME, "A, B"),
            (oid.ORGANIZATIONAL_UNIT_NAME, "x"),
            (oid.ORGANIZATIONAL_UNIT_NAME, "y"),
            (oid.COMMON_NAME, "#it"),
            (oid.EMAIL_ADDRESS, "b@example.com"),
        ],
    ).certificate
    subject = "CN=\\#it,OU=x+OU=y,O=A\\, B,C=DE"
    assert list(candidates(shown)) == [
        ("email", "a@example.com"),
        ("dns", "a.example.com"),
        ("uri", "urn:a"),
        ("dn", subject),
        ("subject", subject + ",DC=com,DC=example"),
        ("subject", subject),
    ]
    whole = "CN=\\#it,emailAddress=b@example.com,OU=x,OU=y,O=A\\, B,C=DE,DC=example,DC=com"
    assert same_subject(shown, whole)
    assert not same_subject(shown, whole + ",DC=org")
    assert not same_subject(shown, "no name")
    assert not same_subject(shown, "")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("broken") / "not.pem"
    path.write_text("not a certificate")
    return str(path)


@pytest.mark.parametrize("what", ["missing", "broken", "mismatch", "ca"])
def test_certificates_that_cannot_be_used_are_told_in_a_line(
    what: str, authority: Authority, issued: Issued, broken: str
) -> None:
    from pelton.server.errors import StartError
    from pelton.server.settings.tls import Tls
    from pelton.server.transports.tls import server_context

    settings = Tls(issued.cert_file, issued.key_file, ca_file=authority.ca_file)
    server_context(settings)
    if what == "missing":
        settings.cert_file = "/no/such/file"
    elif what == "broken":
        settings.cert_file = broken
    elif what == "mismatch":
        settings.key_file = authority.client("mismatch").key_file
    else:
        settings.ca_file = broken
    with pytest.raises(StartError) as told:
        server_context(settings)
    assert "\n" not in str(told.value)


def test_monitoring_shows_the_handshake(
    authority: Authority, issued: Issued, visitor: Issued
) -> None:
    pytest.importorskip("pelton.server.monitor")
    config = f"""listen: 127.0.0.1:@port
        http: 127.0.0.1:@http
        {tls(issued, f'ca_file: "{authority.ca_file}", verify: true')}"""
    with configured("pelton", config) as server:
        plain = server.connect()
        line_of(plain)
        with secure(plain, trusting(authority, visitor)) as connection:
            greets(connection)
            url = f"http://127.0.0.1:{server.ports['http']}/connz"
            with urllib.request.urlopen(url, timeout=20) as answer:
                (shown,) = json.load(answer)["connections"]
            assert shown["cid"] == 1
            assert shown["tls_version"] == "1.3"
            assert shown["tls_cipher_suite"].startswith("TLS_AES")
            with urllib.request.urlopen(url + "?auth=1", timeout=20) as answer:
                (shown,) = json.load(answer)["connections"]
            (peer,) = shown["tls_peer_certs"]
            assert peer["subject"] == "CN=visitor"
            assert set(peer) == {"subject", "spki_sha256", "cert_sha256"}
            assert re.match(r"127\.0\.0\.1", shown["ip"])


@pytest.mark.peer
def test_the_certificate_says_who_it_is(
    kind: str, authority: Authority, issued: Issued, visitor: Issued
) -> None:
    oid = x509.NameOID
    plain_name = [(oid.ORGANIZATION_NAME, "Acme"), (oid.COMMON_NAME, "bob")]
    people = {
        "by e-mail": (visitor, True),
        "by DNS name": (authority.client("dns", x509.DNSName("host.example.com")), True),
        "by subject": (authority.client("subject", subject=plain_name), True),
        "by subject in another order": (
            authority.client(
                "order", subject=[(oid.COMMON_NAME, "eve"), (oid.ORGANIZATION_NAME, "Acme")]
            ),
            True,
        ),
        "not at all": (authority.client("nobody"), False),
    }
    config = f"""listen: 127.0.0.1:@port
        {tls(issued, f'ca_file: "{authority.ca_file}", verify_and_map: true')}
        authorization {{ users: [
            {{user: "visitor@example.com"}}, {{user: "host.example.com"}},
            {{user: "CN=bob,O=Acme"}}, {{user: "CN=eve,O=Acme"}}
        ] }}"""
    with configured(kind, config) as server:
        for why, (shown, welcome) in people.items():
            plain = server.connect()
            info = info_of(line_of(plain))
            assert info["tls_verify"] is True
            with secure(plain, trusting(authority, shown)) as connection:
                connection.sendall(HELLO)
                wanted = b"PONG\r\n" if welcome else b"-ERR 'Authorization Violation'\r\n"
                assert line_of(connection) == wanted, why


@pytest.mark.peer
def test_monitoring_over_https(kind: str, authority: Authority, issued: Issued) -> None:
    config = f"listen: 127.0.0.1:@port\nhttps: 127.0.0.1:@http\n{tls(issued)}"
    with configured(kind, config) as server:
        url = f"https://localhost:{server.ports['http']}/varz"
        with urllib.request.urlopen(url, timeout=20, context=trusting(authority)) as answer:
            shown = json.load(answer)
        assert shown["https_port"] == server.ports["http"]
        assert shown["tls_required"] is True
        server.wait_for("Starting https monitor")


@pytest.mark.peer
@pytest.mark.parametrize(("more", "scheme"), [("", "tls"), ("allow_non_tls: true", "nats")])
def test_the_ports_file_names_the_scheme(
    kind: str, more: str, scheme: str, issued: Issued, tmp_path: Path
) -> None:
    text = f'listen: 127.0.0.1:@port\nports_file_dir: "{tmp_path}"\n{more}\n{tls(issued)}'
    with configured(kind, text):
        deadline = time.monotonic() + 20
        while not (found := [*tmp_path.glob("*.ports")]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert json.loads(found[0].read_text())["nats"][0].startswith(f"{scheme}://")
