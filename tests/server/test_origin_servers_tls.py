"""Streams of a server that wants TLS, a token or a certificate."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pelton import TlsOptions
from pelton.sync import connect
from tests.certificates import Authority
from tests.peers import available_servers
from tests.server.configured import PATIENCE_SECONDS, configured

WAYS = {
    "tls and a token": ("", "authorization { token: secret }", "token: secret", "tls"),
    "a certificate": ("verify: true", "", "", "nats"),
    "the handshake first": ("handshake_first: true", "", "", "tls"),
}


@pytest.mark.peer
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", available_servers())
def test_a_stream_is_followed_over_tls(kind: str, way: str, tmp_path: Path) -> None:
    more, authorization, login, scheme = WAYS[way]
    authority = Authority(tmp_path)
    issued, mine = authority.server(), authority.client("mine")
    hub_config = f"""listen: 127.0.0.1:@port
        jetstream {{ store_dir: "{tmp_path}/hub" }}
        {authorization}
        tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}"
               ca_file: "{authority.ca_file}", {more} }}"""
    with configured(kind, hub_config) as hub:
        first = "handshake_first: true" if "first" in more else ""
        config = f"""listen: 127.0.0.1:@port
            jetstream {{ store_dir: "{tmp_path}/here"
              remotes {{ hub {{ url: "{scheme}://localhost:{hub.ports["port"]}", {login}
                tls {{ ca_file: "{authority.ca_file}", {first}
                       cert_file: "{mine.cert_file}", key_file: "{mine.key_file}" }} }} }} }}"""
        tls = TlsOptions(
            ca_file=authority.ca_file,
            cert_file=mine.cert_file,
            key_file=mine.key_file,
            first=bool(first),
        )
        options = {"token": "secret"} if login else {}
        url = f"nats://localhost:{hub.ports['port']}"
        with connect(url, tls=tls, **options) as nc:
            nc.request("$JS.API.STREAM.CREATE.O", b'{"name":"O","subjects":["o.>"]}')
            for number in range(20):
                nc.request(f"o.{number}", b"x" * 5000)
        with configured("pelton", config) as here:
            here.wait_for("remote hub: connected")
            with connect(f"nats://127.0.0.1:{here.ports['port']}") as nc:
                nc.request(
                    "$JS.API.STREAM.CREATE.M",
                    b'{"name":"M","mirror":{"name":"O","external":{"api":"$JS.hub.API"}}}',
                )
                deadline = time.monotonic() + PATIENCE_SECONDS
                answer = b""
                while b'"messages":20' not in answer:
                    assert time.monotonic() < deadline, answer
                    answer = nc.request("$JS.API.STREAM.INFO.M", b"").data
                    time.sleep(0.01)


def test_a_remote_without_tls_is_not_talked_to_plainly(tmp_path: Path) -> None:
    with configured("pelton", "listen: 127.0.0.1:@port") as hub:
        config = f"""listen: 127.0.0.1:@port
            jetstream {{ store_dir: "{tmp_path}/here"
              remotes {{ hub {{ url: "tls://localhost:{hub.ports["port"]}" }} }} }}"""
        with configured("pelton", config) as here:
            here.wait_for("the server does not support TLS")
