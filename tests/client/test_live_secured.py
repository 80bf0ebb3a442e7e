"""Credentials and TLS, with servers of their own; both shells."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pelton import TlsOptions, connect, sync
from pelton.errors import AuthenticationError, ConnectError
from tests.peers import OLDEST, available_servers, running_server

if TYPE_CHECKING:
    from pathlib import Path

KINDS = available_servers(OLDEST)


def echo_blocking(url: str, **options: Any) -> bytes:
    with sync.connect(url, **options) as nc:
        subscription = nc.subscribe("echo")
        nc.publish("echo", b"x" * 100_000)
        return subscription.next().data[:1]


def echo_aio(url: str, **options: Any) -> bytes:
    async def run() -> bytes:
        async with connect(url, **options) as nc:
            subscription = await nc.subscribe("echo")
            await nc.publish("echo", b"x" * 100_000)
            return (await subscription.next()).data[:1]

    return asyncio.run(run())


echoes = pytest.mark.parametrize("echo", [echo_blocking, echo_aio])


@echoes
@pytest.mark.parametrize("kind", KINDS)
def test_user_and_password(kind: str, echo: Any) -> None:
    with running_server(kind, "--user", "anna", "--pass", "s3cret") as server:
        inside = server.url.replace("nats://", "nats://anna:s3cret@")
        assert echo(inside) == b"x"
        assert echo(server.url, user="anna", password="s3cret") == b"x"
        for options in ({}, {"user": "anna", "password": "wrong"}, {"token": "s3cret"}):
            with pytest.raises(AuthenticationError, match="Authorization Violation"):
                echo(server.url, **options)


@echoes
@pytest.mark.parametrize("kind", KINDS)
def test_token(kind: str, echo: Any) -> None:
    with running_server(kind, "--auth", "t0ken") as server:
        assert echo(server.url, token="t0ken") == b"x"
        assert echo(server.url.replace("nats://", "nats://t0ken@")) == b"x"
        with pytest.raises(AuthenticationError):
            echo(server.url)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(certificate, key) for localhost, made for this run."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-out", cert, "-keyout", key], check=True, capture_output=True)
    return cert, key


@echoes
def test_tls(certificate: tuple[Path, Path], echo: Any) -> None:
    """Against nats-server only: it upgrades after INFO, which is what clients must master."""
    if "nats-server" not in KINDS:
        pytest.skip("no nats-server here")
    cert, key = certificate
    flags = ("--tls", "--tlscert", str(cert), "--tlskey", str(key))
    with running_server("nats-server", *flags) as server:
        trusted = TlsOptions(ca_file=str(cert))
        assert echo(server.url, tls=trusted) == b"x"
        assert echo(server.url.replace("nats://", "tls://"), tls=trusted) == b"x"
        assert echo(server.url, tls=TlsOptions(verify=False)) == b"x"
        context = ssl.create_default_context(cafile=str(cert))
        assert echo(server.url, tls=context) == b"x"
        with pytest.raises(ConnectError, match="TLS"):
            echo(server.url)  # the system does not trust this certificate
        with pytest.raises(ConnectError, match="TLS"):
            echo(server.url, tls=TlsOptions(ca_file=str(cert), hostname="other.example"))
        with pytest.raises(ConnectError, match=r"missing\.pem"):
            echo(server.url, tls=TlsOptions(ca_file="missing.pem"))


@echoes
@pytest.mark.parametrize("kind", KINDS)
def test_tls_that_the_server_does_not_offer_is_not_skipped(kind: str, echo: Any) -> None:
    with running_server(kind) as server, pytest.raises(ConnectError, match="does not offer"):
        echo(server.url, tls=TlsOptions())
