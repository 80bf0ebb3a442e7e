"""``penstock account tls``: the certificates that the server shows, and when they expire."""

from __future__ import annotations

import contextlib
import datetime
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import print_json
from penstock.cli.session import Session, command, not_here
from penstock.cli.values import DURATION
from penstock.core.base.quoting import shown

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from penstock.client.addresses import Server, TlsOptions

_INSTALL = "certificates are read with the package cryptography: pip install 'penstock[nkeys]'"
_LINE_MOST = 1 << 20


@click.command("tls")
@click.option(
    "--expire-warn",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Fail if a certificate expires so soon; 0s: only if it has expired.",
)
@not_here("--ocsp", "Python's TLS shows no OCSP response; openssl s_client -status does", flag=True)
@click.option("--pem/--no-pem", default=True, help="Print the certificates.")
@command
@click.pass_obj
def tls(session: Session, expire_warn: int, pem: bool) -> int:
    """Show the certificates of the server, from its own to the root.

    Ends with 1 if one expires soon. The server's host name and the trust are checked as at any connect.
    """
    server, options = session.server_and_tls()
    seconds = session.timeout / 1e9
    try:
        chain = _chain(server, options, session.options().socks_proxy, seconds)
    except TimeoutError:
        raise click.ClickException(f"no answer from {server} in {seconds:g} s") from None
    now = datetime.datetime.now(datetime.UTC)
    soon = now + datetime.timedelta(microseconds=expire_warn / 1000)
    rows = [_facts(each) for each in chain]
    for row, each in zip(rows, chain, strict=True):
        ends = each.not_valid_after_utc
        row["state"] = "expired" if ends <= now else "expires soon" if ends <= soon else "valid"
        if pem:
            row["pem"] = _pem(each)
    bad = [row for row in rows if row["state"] != "valid"]
    if session.as_json:
        print_json(rows)
        return 1 if bad else 0
    for index, row in enumerate(rows, 1):
        print(shown(f"# {index} of {len(rows)}: {row['subject']}"))
        for name in (
            "state",
            "expires",
            "issuer",
            "ca",
            "dns_names",
            "addresses",
            "serial",
            "signed_with",
        ):
            value = row[name]
            text = ", ".join(value) if isinstance(value, list) else str(value)
            if text:
                print(shown(f"#   {name.replace('_', ' ')}: {text}"))
        if pem:
            print(row["pem"], end="")
    return 1 if bad else 0


def _connected(server: Server, proxy: str, seconds: float) -> socket.socket:
    from penstock.client.socks import parse_proxy, talk

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


def _chain(
    server: Server, options: TlsOptions | None, proxy: str, seconds: float
) -> list[Certificate]:
    """The certificates of the handshake, the server's own first; ClickException without TLS."""
    from penstock.client.tls import begins_with_tls, make_context

    try:
        from cryptography.x509 import load_der_x509_certificate
    except ImportError:
        raise click.ClickException(_INSTALL) from None
    hostname = (options.hostname if options else None) or server.host
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(_connected(server, proxy, seconds))
        if not begins_with_tls(server, options):
            line = _line(plain)
            if not line.startswith(b"INFO "):
                raise click.ClickException(
                    f"{server} is no NATS server: it begins with {line[:40]!r}"
                )
            info = json.loads(line.removeprefix(b"INFO "))
            if not (info.get("tls_required") or info.get("tls_available")):
                raise click.ClickException(f"the server {server} has no TLS")
        try:
            wrapped = make_context(options).wrap_socket(plain, server_hostname=hostname)
        except ssl.SSLError as error:
            raise click.ClickException(f"TLS handshake failed: {error}") from None
        stack.enter_context(wrapped)
        return [load_der_x509_certificate(each) for each in _certificates(wrapped)]


def _certificates(wrapped: ssl.SSLSocket) -> list[bytes]:
    """The chain in DER; only the server's own certificate where Python does not tell more."""
    if hasattr(wrapped, "get_unverified_chain"):  # from Python 3.13 on
        return [bytes(each) for each in wrapped.get_unverified_chain()]
    inner: Any = getattr(wrapped, "_sslobj", None)
    if inner is not None and hasattr(inner, "get_unverified_chain"):
        return [
            ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in inner.get_unverified_chain()
        ]
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


def _facts(found: Certificate) -> dict[str, Any]:
    from cryptography import x509

    names: list[str] = []
    addresses: list[str] = []
    ca = False
    with contextlib.suppress(x509.ExtensionNotFound):
        other = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = other.get_values_for_type(x509.DNSName)
        addresses = [str(each) for each in other.get_values_for_type(x509.IPAddress)]
    with contextlib.suppress(x509.ExtensionNotFound):
        ca = found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    algorithm = found.signature_hash_algorithm
    return {
        "subject": found.subject.rfc4514_string(),
        "issuer": found.issuer.rfc4514_string(),
        "expires": found.not_valid_after_utc.isoformat().replace("+00:00", "Z"),
        "ca": ca,
        "dns_names": names,
        "addresses": addresses,
        "serial": f"{found.serial_number:x}",
        "signed_with": f"{found.signature_algorithm_oid._name}"
        if algorithm is None
        else algorithm.name,
    }


def _pem(found: Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return found.public_bytes(Encoding.PEM).decode()
