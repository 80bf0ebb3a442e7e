"""``pelton account tls``: the certificates that the server shows, when they expire, whether they are revoked."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import print_json
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from .handshakes import Peer

_BAD = ("revoked", "invalid")


@click.command("tls")
@click.option(
    "--expire-warn",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Fail if a certificate expires so soon; 0s: only if it has expired.",
)
@click.option("--ocsp", "wants_ocsp", is_flag=True, help="Also whether the server's is revoked.")
@click.option("--pem/--no-pem", default=True, help="Print the certificates.")
@command
@click.pass_obj
def tls(session: Session, expire_warn: int, wants_ocsp: bool, pem: bool) -> int:
    """Show the certificates of the server, from its own to the root.

    Ends with 1 if one expires soon. The server's host name and the trust are checked as at any connect.

    With --ocsp the response that the server staples to a handshake of TLS 1.2 is checked; without one, the responder
    that its certificate names is asked. Ends with 1 if the certificate is revoked, or the response is invalid.
    """
    from .handshakes import Peer

    server, options = session.server_and_tls()
    seconds = session.timeout / 1e9
    peer = Peer(server, options, session.options().socks_proxy, seconds)
    now = datetime.datetime.now(datetime.UTC)
    try:
        chain = peer.chain()
        revocation = _revocation(peer, chain, now) if wants_ocsp else None
    except TimeoutError:
        raise click.ClickException(f"no answer from {server} in {seconds:g} s") from None
    soon = now + datetime.timedelta(microseconds=expire_warn / 1000)
    rows = [_facts(each) for each in chain]
    for row, each in zip(rows, chain, strict=True):
        ends = each.not_valid_after_utc
        row["state"] = "expired" if ends <= now else "expires soon" if ends <= soon else "valid"
        if pem:
            row["pem"] = _pem(each)
    if revocation is not None:
        rows[0]["ocsp"] = revocation
    if session.as_json:
        print_json(rows)
    else:
        _show(rows, revocation)
    revoked = revocation is not None and revocation["state"] in _BAD
    return 1 if revoked or any(row["state"] != "valid" for row in rows) else 0


def _show(rows: list[dict[str, Any]], revocation: dict[str, str] | None) -> None:
    """The chain, in lines as scripts know them from the ``nats`` command."""
    print("# TLS Verified Chains count: 1\n\n# chain: 1")
    for index, row in enumerate(rows, 1):
        ca = str(row["ca"]).lower()
        print(shown(f'# chain=1 cert={index} isCA={ca} Subject="{row["subject"]}"'))
        expires = _as_printed(row["expires"])
        if row["state"] == "expired":
            print(f"# EXPIRED after {expires}")
        elif row["state"] == "expires soon":
            print(f"# EXPIRING SOON: {expires}")
        print(f"#   Expiration: {expires}")
        print(shown(f"#   Issuer: {row['issuer']}"))
        for name, title in (("dns_names", "DNS Names"), ("addresses", "IP Addresses")):
            if row[name]:
                print(shown(f"#   SAN: {title}: [{' '.join(row[name])}]"))
        print(shown(f"#   Serial: {int(row['serial'], 16)}"))
        print(shown(f"#   Signed-with: {row['signed_with']}"))
        print(row.get("pem", ""), end="")
    if revocation is not None:
        _show_revocation(revocation)


def _show_revocation(found: dict[str, str]) -> None:
    print()
    if "no_staple" in found:
        print(shown(f"# No OCSP Response found in TLS connection: {found['no_staple']}"))
    if found["state"] == "none":
        print(shown(f"# {found['reason']}"))
        return
    parts = [f"# OCSP: {found['state'].upper()}", f"from={found['from']}"]
    parts += [
        f"{title}=({_as_printed(found[name])})"
        for name, title in (
            ("produced_at", "producedAt"),
            ("this_update", "thisUpdate"),
            ("next_update", "nextUpdate"),
            ("revoked_at", "RevokedAt"),
        )
        if name in found
    ]
    reason = f": {found['reason']}" if "reason" in found else ""
    print(shown(" ".join(parts) + reason))


def _as_printed(time: str) -> str:
    return time.replace("T", " ").replace("Z", " +0000 UTC")


def _revocation(peer: Peer, chain: list[Certificate], now: datetime.datetime) -> dict[str, str]:
    """The OCSP status of the server's certificate, and its source."""
    from .ocsp import asked, responder_of, verdict
    from .stapled import HandshakeRefused

    if len(chain) < 2:
        return {
            "state": "none",
            "no_staple": "it is not looked for",
            "reason": "the certificate of the issuer is not known, and without it no response can be checked",
        }
    own, issuer = chain[:2]
    reason = "the server staples none"
    try:
        staple = peer.staple()
    except HandshakeRefused as problem:
        staple, reason = None, str(problem)
    if staple:
        return {"from": "handshake", **verdict(staple, own, issuer, now).data()}
    url = responder_of(own)
    if not url:
        return {
            "state": "none",
            "no_staple": reason,
            "reason": "the certificate names no responder that could be asked",
        }
    found = {"from": url, "no_staple": reason}
    try:
        answer = asked(url, own, issuer, peer.seconds)
    except ValueError as problem:
        return {
            **found,
            "state": "none",
            "reason": f"the responder {url} gives no answer: {problem}",
        }
    return {**found, **verdict(answer, own, issuer, now).data()}


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
