"""TLS handshakes with a server, to get its certificates and the OCSP response that it staples."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from .stapled import GOODBYE, HandshakeRefused, ServerHandshake, client_hello

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from pelton.client.base.addresses import Server, TlsOptions

_INSTALL = "certificates are read with the package cryptography: pip install cryptography"
_LINE_MOST = 1 << 20
_READ = 1 << 16


@dataclass(frozen=True)
class Peer:
    """A server to shake hands with."""

    server: Server
    options: TlsOptions | None
    proxy: str
    seconds: float

    @property
    def hostname(self) -> str:
        """The name that its certificate must have."""
        return (self.options.hostname if self.options else None) or self.server.host

    def chain(self) -> list[Certificate]:
        """The certificates, the server's own first; ClickException without TLS."""
        from pelton.client.protocol.options import make_context

        try:
            from cryptography.x509 import load_der_x509_certificate
        except ImportError:
            raise click.ClickException(_INSTALL) from None
        with self._ready() as plain:
            context = make_context(self.options)
            try:
                wrapped = context.wrap_socket(plain, server_hostname=self.hostname)
            except ssl.SSLError as error:
                raise click.ClickException(f"TLS handshake failed: {error}") from None
            with wrapped:
                return [load_der_x509_certificate(each) for each in _certificates(wrapped)]

    def staple(self) -> bytes | None:
        """The OCSP response of a second handshake, which ends when it is there; HandshakeRefused."""
        handshake = ServerHandshake()
        with self._ready() as plain:
            plain.sendall(client_hello(self.hostname, secrets.token_bytes(32)))
            while not handshake.over:
                data = plain.recv(_READ)
                if not data:
                    raise HandshakeRefused("the server closed the connection")
                handshake.take(data)
            plain.sendall(GOODBYE)
        return handshake.staple

    @contextlib.contextmanager
    def _ready(self) -> Any:
        """A connection on which TLS may begin."""
        from pelton.client.protocol.options import begins_with_tls

        with _connected(self.server, self.proxy, self.seconds) as plain:
            if not begins_with_tls(self.server, self.options):
                line = _line(plain)
                if not line.startswith(b"INFO "):
                    raise click.ClickException(
                        f"{self.server} is no NATS server: it begins with {line[:40]!r}"
                    )
                info = json.loads(line.removeprefix(b"INFO "))
                if not (info.get("tls_required") or info.get("tls_available")):
                    raise click.ClickException(f"the server {self.server} has no TLS")
            yield plain


def _connected(server: Server, proxy: str, seconds: float) -> socket.socket:
    from pelton.client.protocol.socks import parse_proxy, talk

    if not proxy:
        return socket.create_connection((server.host, server.port), seconds)
    through = parse_proxy(proxy)
    plain = socket.create_connection((through.host, through.port), seconds)
    try:
        conversation = talk(through, server.host, server.port)
        data, wanted = next(conversation)
        while True:
            plain.sendall(data)
            data, wanted = conversation.send(plain.recv(wanted, socket.MSG_WAITALL))
    except StopIteration:
        return plain
    except BaseException:
        plain.close()
        raise


def _certificates(wrapped: ssl.SSLSocket) -> list[bytes]:
    """The chain in DER, up to the root that is trusted; only the server's own where Python does not tell more."""
    checked = wrapped.context.verify_mode != ssl.CERT_NONE
    name = "get_verified_chain" if checked else "get_unverified_chain"
    if hasattr(wrapped, name):  # from Python 3.13 on
        return [bytes(each) for each in getattr(wrapped, name)()]
    inner: Any = getattr(wrapped, "_sslobj", None)
    if inner is not None and hasattr(inner, name):
        return [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in getattr(inner, name)()]
    own = wrapped.getpeercert(binary_form=True)
    return [own] if own else []


def _line(connected: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n"):
        byte = connected.recv(1)
        if not byte or len(data) > _LINE_MOST:
            raise click.ClickException("this is no NATS server")
        data += byte
    return data
