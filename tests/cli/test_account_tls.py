"""``pelton account tls``: certificates, and what OCSP says of them, with every server there is."""

from __future__ import annotations

import datetime
import json
import ssl
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.account.ocsp import verdict
from pelton.cli.account.stapled import HandshakeRefused, ServerHandshake, client_hello
from tests.certificates import Authority, Issued
from tests.peers import available_servers, running_server
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

PEERS = [kind for kind in available_servers() if kind != "pelton"]
NOW = datetime.datetime.now(datetime.UTC)


def test_certificates_are_shown(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    files = authority.server()
    for first in ("false", "true"):
        text = f"""listen: 127.0.0.1:@port
            tls {{ cert_file: "{files.cert_file}", key_file: "{files.key_file}"
                   handshake_first: {first} }}"""
        with configured("pelton", text) as running:
            monkeypatch.setenv("NATS_URL", f"nats://localhost:{running.ports['port']}")
            monkeypatch.setenv("NATS_CA", str(authority.ca_file))
            options = ["--tlsfirst"] if first == "true" else []
            found = cli(*options, "account", "tls", "--json", "--expire-warn", "1s")
            assert found.status == 0
            own = found.json[0]
            assert "localhost" in own["dns_names"]
            assert own["state"] == "valid"
            assert ssl.PEM_cert_to_DER_cert(own["pem"]) == ssl.PEM_cert_to_DER_cert(
                Path(files.cert_file).read_text()
            )
            soon = cli(*options, "account", "tls", "--expire-warn", "100000d", "--no-pem")
            assert soon.status == 1
            assert "# EXPIRING SOON: " in soon.out
            assert "#   Expiration: " in soon.out
            assert "BEGIN" not in soon.out
            monkeypatch.delenv("NATS_CA")
            assert "handshake failed" in cli(*options, "account", "tls").err


@pytest.mark.parametrize("kind", available_servers())
def test_a_server_without_tls_is_told(kind: str, cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(kind) as server:
        monkeypatch.setenv("NATS_URL", server.url)
        _is_told(cli)


def _is_told(run: Run) -> None:
    ran = run("account", "tls")
    assert (ran.status, ran.out) == (1, "")
    assert "has no TLS" in ran.err
    assert json.loads(run("account", "tls", "--json").err)["error"]["status"] == 1


class Responder:
    """An OCSP responder whose next answer is ``answer``."""

    def __init__(self) -> None:
        self.answer = b""
        self.asked = 0
        responder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def _answer(self) -> None:
                responder.asked += 1
                self.send_response(200)
                self.send_header("Content-Type", "application/ocsp-response")
                self.send_header("Content-Length", str(len(responder.answer)))
                self.end_headers()
                self.wfile.write(responder.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"


@pytest.fixture
def responder() -> Iterator[Responder]:
    found = Responder()
    thread = Thread(target=found.http.serve_forever, args=(0.05,))
    thread.start()
    yield found
    found.http.shutdown()
    thread.join()
    found.http.server_close()


@contextmanager
def serving(
    kind: str, files: Issued, authority: Authority, monkeypatch: pytest.MonkeyPatch, more: str = ""
) -> Iterator[None]:
    text = f"""listen: 127.0.0.1:@port
        tls {{ cert_file: "{files.cert_file}", key_file: "{files.key_file}",
               ca_file: "{authority.ca_file}" }}
        {more}"""
    with configured(kind, text) as running:
        monkeypatch.setenv("NATS_URL", f"nats://localhost:{running.ports['port']}")
        monkeypatch.setenv("NATS_CA", str(authority.ca_file))
        yield


@pytest.mark.parametrize("kind", PEERS)
def test_a_stapled_response_is_checked(
    kind: str, cli: Run, tmp_path: Path, responder: Responder, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.server(responder=responder.url)
    responder.answer = authority.ocsp_response(files)
    staples = f'ocsp {{ mode: always, url: "{responder.url}" }}, store_dir: "{tmp_path}"'
    with serving(kind, files, authority, monkeypatch, staples):
        before = responder.asked
        ran = cli("account", "tls", "--ocsp", "--json", "--expire-warn", "1s")
        found = ran.json[0]["ocsp"]
        assert (ran.status, found["from"], found["state"]) == (0, "handshake", "good")
        assert responder.asked == before  # the server has its answer already
        text = cli("account", "tls", "--ocsp", "--no-pem", "--expire-warn", "1s").out
        assert "\n# OCSP: GOOD from=handshake producedAt=(" in text


@pytest.mark.parametrize("kind", available_servers())
def test_the_responder_is_asked_without_a_staple(
    kind: str, cli: Run, tmp_path: Path, responder: Responder, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.server(responder=responder.url)
    words = ("account", "tls", "--ocsp", "--no-pem", "--expire-warn", "1s")
    with serving(kind, files, authority, monkeypatch):
        responder.answer = authority.ocsp_response(files)
        good = cli(*words)
        assert good.status == 0, good.err
        assert "No OCSP Response found in TLS connection: the server staples none\n" in good.out
        assert f"# OCSP: GOOD from={responder.url} " in good.out
        responder.answer = authority.ocsp_response(files, revoked=True)
        revoked = cli(*words, "--json")
        assert (revoked.status, revoked.json[0]["ocsp"]["state"]) == (1, "revoked")
        assert revoked.json[0]["ocsp"]["reason"] == "keyCompromise"
        responder.answer = b"nothing of the kind"
        assert cli(*words).status == 1
        responder.http.shutdown()
        responder.http.server_close()
        gone = cli(*words)
        assert gone.status == 0  # nothing is known: as before OCSP
        assert f"the responder {responder.url} gives no answer: " in gone.out


def test_a_certificate_without_a_responder_is_told(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with serving("pelton", authority.server(), authority, monkeypatch):
        ran = cli("account", "tls", "--ocsp", "--no-pem", "--expire-warn", "1s")
    assert ran.status == 0
    assert "names no responder" in ran.out


def test_a_response_counts_only_if_it_is_signed_of_this_certificate_and_in_time(
    tmp_path: Path,
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    own, another = authority.server(), authority.server("another")

    def of(response: bytes) -> tuple[str, str]:
        found = verdict(response, own.certificate, authority.certificate, NOW)
        return found.state, found.reason

    assert of(authority.ocsp_response(own)) == ("good", "")
    assert of(authority.ocsp_response(own, revoked=True)) == ("revoked", "keyCompromise")
    signed_by_none = "neither the issuer nor its responder has signed it"
    assert of(authority.ocsp_response(own, signer=other)) == ("invalid", signed_by_none)
    assert of(authority.ocsp_response(another)) == ("invalid", "it speaks of another certificate")
    for age in (datetime.timedelta(days=2), -datetime.timedelta(hours=2)):
        assert of(authority.ocsp_response(own, age=age)) == ("invalid", "it is not in its time")
    whole = authority.ocsp_response(own)
    for at in range(len(whole)):
        torn = whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :]
        assert of(torn)[0] in ("invalid", "good"), at
        assert of(whole[:at])[0] == "invalid"


@given(st.binary(max_size=80), st.integers(1, 9))
def test_any_bytes_are_a_handshake_or_refused(data: bytes, step: int) -> None:
    whole, parts = ServerHandshake(), ServerHandshake()
    said: list[str] = []
    for each, size in ((whole, len(data) or 1), (parts, step)):
        try:
            for at in range(0, len(data), size):
                each.take(data[at : at + size])
            said.append(f"{each.over} {each.staple!r}")
        except HandshakeRefused as problem:
            said.append(str(problem))
    assert said[0] == said[1]  # however it is cut


@given(st.binary(min_size=1, max_size=40), st.integers(1, 9))
def test_a_staple_is_found_behind_the_certificate(staple: bytes, step: int) -> None:
    def message(kind: int, body: bytes) -> bytes:
        return bytes((kind,)) + len(body).to_bytes(3, "big") + body

    stapled = b"\1" + len(staple).to_bytes(3, "big") + staple
    said = message(2, b"hello") + message(11, b"certificate") + message(22, stapled)
    records = b"".join(
        b"\x16\3\3" + len(part).to_bytes(2, "big") + part
        for part in (said[at : at + step] for at in range(0, len(said), step))
    )
    handshake = ServerHandshake()
    handshake.take(records + b"\x16\3\3\0\4" + message(14, b""))
    assert (handshake.over, handshake.staple) == (True, staple)


def test_a_refused_handshake_says_why() -> None:
    for data, says in (
        (b"\x15\3\3\0\2\2\x46", "no TLS 1.2"),
        (b"\x15\3\3\0\2\2\x28", "TLS alert 28"),
        (b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 20, "does not answer with a TLS handshake"),
        (b"\x16\3\3\xff\xff" + b"\2\xff\xff\xff" + b"x" * (1 << 19), "does not end"),
    ):
        with pytest.raises(HandshakeRefused, match=says):
            ServerHandshake().take(data)


def test_a_hello_is_understood_by_python(tmp_path: Path) -> None:
    issued = Authority(tmp_path).server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert_file, issued.key_file)
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    for host in ("localhost", "127.0.0.1", "bücher.example"):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        served = context.wrap_bio(incoming, outgoing, server_side=True)
        incoming.write(client_hello(host, bytes(32)))
        with pytest.raises(ssl.SSLWantReadError):
            served.do_handshake()
        handshake = ServerHandshake()
        handshake.take(outgoing.read())
        assert (handshake.over, handshake.staple) == (True, None)
    assert names == ["localhost", None, "xn--bcher-kva.example"]
