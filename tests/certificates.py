"""Certificates for tests: an authority of one's own and what it signs, as PEM files in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

Attributes = list[tuple[x509.ObjectIdentifier, str]]


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    cert_file: str
    key_file: str


class Authority:
    """Signs certificates; ``ca_file`` is what trusts them."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self._own = self._make(name, None, [], ca=True)
        self.ca_file = self._own.cert_file

    @property
    def certificate(self) -> x509.Certificate:
        """The authority's own."""
        return self._own.certificate

    def server(
        self, name: str = "server", *hosts: str, days: int = 2, responder: str = ""
    ) -> Issued:
        """For a server that is reached as localhost and 127.0.0.1, or as the hosts; valid for days.

        ``responder``: the URL of the OCSP responder that it names.
        """
        alternatives: list[x509.GeneralName] = [
            x509.DNSName(host) for host in hosts or ("localhost",)
        ]
        if not hosts:
            alternatives.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        return self._make(name, None, alternatives, days=days, responder=responder)

    def client(
        self,
        name: str,
        *alternatives: x509.GeneralName,
        subject: Attributes | None = None,
        days: float = 2,
    ) -> Issued:
        """For a client; `days` -0.5: expired twelve hours ago."""
        return self._make(name, subject, list(alternatives), days=days)

    def _make(
        self,
        name: str,
        subject: Attributes | None,
        alternatives: list[x509.GeneralName],
        *,
        ca: bool = False,
        days: float = 2,
        responder: str = "",
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        parts = subject if subject is not None else [(NameOID.COMMON_NAME, name)]
        mine = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])
        issuer = mine if ca else self._own.certificate.subject
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(mine)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternatives), critical=False
            )
        if not ca:
            uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if responder:
            method = AuthorityInformationAccessOID.OCSP
            place = x509.AccessDescription(method, x509.UniformResourceIdentifier(responder))
            builder = builder.add_extension(
                x509.AuthorityInformationAccess([place]), critical=False
            )
        certificate = builder.sign(key if ca else self._own.key, hashes.SHA256())
        cert_file, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return Issued(certificate, key, str(cert_file), str(key_file))

    def ocsp_response(
        self,
        issued: Issued,
        *,
        revoked: bool = False,
        age: datetime.timedelta = datetime.timedelta(hours=1),
        signer: Authority | None = None,
    ) -> bytes:
        """What its responder says of a certificate, valid for a day; ``signer``: another authority's name and key."""
        since = datetime.datetime.now(datetime.UTC) - age
        status = ocsp.OCSPCertStatus.REVOKED if revoked else ocsp.OCSPCertStatus.GOOD
        by = signer or self
        builder = (
            ocsp.OCSPResponseBuilder()
            .add_response(
                cert=issued.certificate,
                issuer=self.certificate,
                algorithm=hashes.SHA1(),
                cert_status=status,
                this_update=since,
                next_update=since + datetime.timedelta(days=1),
                revocation_time=since if revoked else None,
                revocation_reason=x509.ReasonFlags.key_compromise if revoked else None,
            )
            .responder_id(ocsp.OCSPResponderEncoding.HASH, by.certificate)
        )
        response = builder.sign(by._own.key, hashes.SHA256())
        return response.public_bytes(serialization.Encoding.DER)
