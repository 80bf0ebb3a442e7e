"""/varz says when the certificates of listeners expire: those in use, not those in the files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.certificates import Authority
from tests.peers import available_servers
from tests.server.configured import Configured, configured

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
listen: 127.0.0.1:@port
http: 127.0.0.1:@http
tls {{ {files} }}
websocket {{ listen: "127.0.0.1:@ws", tls {{ {files} }} }}
leafnodes {{ listen: "127.0.0.1:@leaf", tls {{ {files} }} }}
"""


def varz(running: Configured) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.ports['http']}/varz") as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.mark.parametrize("kind", available_servers())
def test_certificates_expire(kind: str, tmp_path: Path) -> None:
    from cryptography import x509

    authority = Authority(tmp_path)
    first = authority.server()
    cert, key = tmp_path / "now.pem", tmp_path / "now.key"

    def use(name: str, key_name: str) -> str:
        shutil.copy(name, cert)
        shutil.copy(key_name, key)
        ends = x509.load_pem_x509_certificate(cert.read_bytes()).not_valid_after_utc
        return f"{ends:%Y-%m-%dT%H:%M:%SZ}"

    ends = use(first.cert_file, first.key_file)
    files = f'cert_file: "{cert}", key_file: "{key}"'
    with configured(kind, CONFIG.format(files=files)) as running:
        found = varz(running)
        assert found["tls_cert_not_after"] == ends
        assert found["leaf"]["tls_cert_not_after"] == ends
        assert found["leaf"]["tls_required"]
        assert found["websocket"]["tls_cert_not_after"] == ends
        later = authority.server(days=90)
        renewed = use(later.cert_file, later.key_file)
        assert renewed != ends
        assert varz(running)["tls_cert_not_after"] == ends  # it is not in use yet
        os.kill(running.process.pid, signal.SIGHUP)
        running.wait_for("Reloaded")
        assert varz(running)["tls_cert_not_after"] == renewed


@pytest.mark.parametrize("kind", available_servers())
def test_without_tls_nothing_is_said(kind: str) -> None:
    with configured(kind, "listen: 127.0.0.1:@port\nhttp: 127.0.0.1:@http") as running:
        assert "tls_cert_not_after" not in varz(running)
