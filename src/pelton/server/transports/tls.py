"""TLS of the server: contexts from settings, and the properties of a finished handshake.

``pipe`` moves the bytes. This module is loaded only for encrypted connections, ``cryptography`` only when
the content of a certificate is needed.
"""

import hashlib
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from pelton.server.errors import StartError
from pelton.server.settings import Settings
from pelton.server.settings.tls import Pair, Tls
from pelton.server.transports.tls_names import (
    CIPHERS,
    CURVES,
    DEFAULT_CIPHERS,
    INSECURE_CIPHERS,
    suite_name,
)

if TYPE_CHECKING:
    from cryptography import x509

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_DOMAIN_COMPONENT = "0.9.2342.19200300.100.1.25"


class TlsInfo:
    """The facts of a finished handshake."""

    __slots__ = ("_certificate", "cipher", "first", "peer_der", "version")

    def __init__(self, version: str, cipher: str, peer_der: bytes, *, first: bool) -> None:
        """`version` as "1.3"; `cipher` by its IANA name; `peer_der`: the other side's certificate
        (b"": none); `first`: the handshake came before INFO.
        """
        self.version = version
        self.cipher = cipher
        self.peer_der = peer_der
        self.first = first
        self._certificate: x509.Certificate | None = None

    @property
    def certificate(self) -> "x509.Certificate | None":
        """The other side's certificate. ValueError when it can't be read."""
        if self._certificate is None and self.peer_der:
            self._certificate = load_certificate(self.peer_der)
        return self._certificate

    def fingerprints(self) -> tuple[str, str, str]:
        """(subject, SHA-256 of the public key, SHA-256 of the certificate) of the other side's
        certificate, in the form of /connz.
        """
        certificate = self.certificate
        if certificate is None:
            return "", "", ""
        return (
            subject_text(certificate.subject),
            public_key_pin(certificate),
            hashlib.sha256(self.peer_der).hexdigest(),
        )

    def facts(self, peer: bool) -> dict[str, object]:
        """The facts in the form of /connz; with `peer`, also the other side's certificate."""
        shown: dict[str, object] = {"tls_version": self.version, "tls_cipher_suite": self.cipher}
        if peer and self.peer_der:
            try:
                subject, key, certificate = self.fingerprints()
            except ValueError:  # OpenSSL accepted it, but it can't be read here
                return shown
            names = {"spki_sha256": key, "cert_sha256": certificate}
            shown["tls_peer_certs"] = [{"subject": subject, **names}]
        if self.first:
            shown["tls_first"] = True
        return shown

    def is_pinned(self, pins: frozenset[str]) -> bool:
        """Whether the other side's certificate is a pinned one; True without pins."""
        if not pins:
            return True
        try:
            certificate = self.certificate
        except ValueError:
            return False
        return certificate is not None and public_key_pin(certificate) in pins

    def user_names(self) -> Iterator["Candidate"]:
        """The names in the certificate that verify_and_map looks up among the users, in this order."""
        certificate = self.certificate
        return candidates(certificate) if certificate is not None else iter(())


class Candidate(NamedTuple):
    """A name in a certificate that may be a user's name.

    A user matches by an equal text; for a whole subject (kind "dn"), when `same_subject` says so.
    """

    kind: str  # email, dns, uri, dn or subject
    text: str


def tls_info_of(done: ssl.SSLObject, *, first: bool) -> TlsInfo:
    """The tls_info of a finished handshake."""
    cipher = done.cipher()
    version = (done.version() or "").removeprefix("TLSv")
    peer = done.getpeercert(binary_form=True) or b""
    return TlsInfo(version, suite_name(cipher[0]) if cipher else "", peer, first=first)


# -- contexts


def server_context(tls: Tls, where: str = "tls") -> ssl.SSLContext:
    """The context of a listener. StartError names the file that can't be used, and the reason;
    `where` is the section, for its text.
    """
    context = _VerifyingContext(tls) if tls.verify else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _prepare_server(context, tls, where)
    pairs = tls.certificates or [Pair(tls.cert_file, tls.key_file)]
    if not pairs[0].cert_file:
        raise StartError(f"{where}: a listener needs cert_file and key_file")
    _load(context, pairs[0], where)
    with open(pairs[0].cert_file, "rb") as file:
        tls.loaded = file.read()
    _trust(context, tls, ssl.Purpose.CLIENT_AUTH, where)
    if len(pairs) > 1:
        _choose_by_name(context, tls, pairs, where)
    return context


class _VerifyingContext(ssl.SSLContext):
    """The context of a listener that verifies client certificates.

    A resumed session would skip the verification: the client shows no certificate, and OpenSSL takes
    that of the first handshake although it may have expired since. OpenSSL resumes a session only in
    the context that began it, so each connection begins in a context of its own. Tickets are off as
    well, which saves work; the session ids of TLS 1.2 cannot be turned off from Python.
    """

    _tls: Tls

    def __new__(cls, tls: Tls) -> "_VerifyingContext":
        context = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        context._tls = tls
        return context

    def wrap_bio(  # as the base class has it
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """An SSLObject for a connection that is not resumed and cannot be."""
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _prepare_server(own, self._tls, "tls")
        connection = own.wrap_bio(incoming, outgoing, server_side=True)
        connection.context = self  # certificate, key and CAs
        return connection


def _prepare_server(context: ssl.SSLContext, tls: Tls, where: str) -> None:
    """Set what a connection takes over from the context in which it begins."""
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 1
    if tls.verify:
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED
    _limit(context, tls, where)


def server_contexts(settings: Settings) -> list[ssl.SSLContext | None]:
    """The contexts of the clients' listener and of the WebSocket listener. Raises StartError."""
    return [
        server_context(tls, where) if tls is not None else None
        for tls, where in ((settings.tls, "tls"), (settings.websocket.tls, "websocket.tls"))
    ]


def client_context(tls: Tls | None, where: str = "tls") -> ssl.SSLContext:
    """The context of outgoing connections; None: the system's CAs and no client certificate."""
    tls = tls or Tls()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, tls, where)
    if tls.cert_file:
        _load(context, Pair(tls.cert_file, tls.key_file), where)
    _trust(context, tls, ssl.Purpose.SERVER_AUTH, where)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _limit(context: ssl.SSLContext, tls: Tls, where: str) -> None:
    context.minimum_version = _VERSIONS[tls.min_version]
    suites = CIPHERS | INSECURE_CIPHERS
    wanted = [suites[name] for name in tls.cipher_suites if suites[name]]
    if tls.cipher_suites and not wanted:
        context.minimum_version = ssl.TLSVersion.TLSv1_3  # only TLS 1.3 suites are named
        return
    try:
        context.set_ciphers(":".join(wanted) or DEFAULT_CIPHERS)
        if len(tls.curve_preferences) == 1:
            context.set_ecdh_curve(CURVES[tls.curve_preferences[0]] or tls.curve_preferences[0])
    except (ssl.SSLError, ValueError) as problem:
        raise StartError(
            f"{where}: this OpenSSL has none of the cipher suites or curves asked for: {problem}"
        ) from None


def _load(context: ssl.SSLContext, pair: Pair, where: str) -> None:
    def no_password() -> str:
        raise StartError(
            f"{where}: key_file {pair.key_file} is encrypted; the server cannot ask for its password"
        )

    try:
        context.load_cert_chain(pair.cert_file, pair.key_file, no_password)
    except OSError as problem:  # includes ssl.SSLError
        reason = getattr(problem, "reason", None) or problem.strerror or problem
        raise StartError(
            f"{where}: can't use certificate {pair.cert_file} with key {pair.key_file}: {reason}"
        ) from None


def _trust(context: ssl.SSLContext, tls: Tls, purpose: ssl.Purpose, where: str) -> None:
    if not tls.ca_file:
        if context.verify_mode != ssl.CERT_NONE:
            context.load_default_certs(purpose)
        return
    try:
        context.load_verify_locations(cafile=tls.ca_file)
    except OSError as problem:
        reason = getattr(problem, "reason", None) or problem.strerror or problem
        raise StartError(f"{where}: can't use ca_file {tls.ca_file}: {reason}") from None


def _choose_by_name(context: ssl.SSLContext, tls: Tls, pairs: list[Pair], where: str) -> None:
    """Select among several certificates: the first one that matches the client's server name (SNI)."""
    chosen: list[tuple[frozenset[str], ssl.SSLContext]] = []
    for pair in pairs:
        other = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _prepare_server(other, tls, where)
        _load(other, pair, where)
        _trust(other, tls, ssl.Purpose.CLIENT_AUTH, where)
        chosen.append((_names_of_file(pair.cert_file, where), other))

    def pick(asked: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        wanted = (name or "").lower()
        wild = "*." + wanted.partition(".")[2]
        for names, other in chosen:
            if wanted in names or wild in names:
                asked.context = other
                return

    context.sni_callback = pick


def _names_of_file(path: str, where: str) -> frozenset[str]:
    from cryptography import x509

    try:
        with open(path, "rb") as file:
            certificate = x509.load_pem_x509_certificate(file.read())
    except (OSError, ValueError) as problem:
        raise StartError(f"{where}: can't read certificate {path}: {problem}") from None
    return frozenset(name.lower() for name in _alternatives(certificate).get("dns", ()))


# -- certificates


def not_after_ns(tls: Tls | None) -> int:
    """When the certificate that a listener shows expires; 0: it has none, or none that can be read."""
    if tls is None or not tls.loaded:
        return 0
    from cryptography import x509

    try:
        ends = x509.load_pem_x509_certificate(tls.loaded).not_valid_after_utc
    except ValueError:
        return 0
    return int(ends.timestamp()) * 1_000_000_000


def load_certificate(der: bytes) -> "x509.Certificate":
    """Parse a certificate. ValueError when it is invalid."""
    from cryptography import x509

    return x509.load_der_x509_certificate(der)


def public_key_pin(certificate: "x509.Certificate") -> str:
    """SHA-256 of the public key (SubjectPublicKeyInfo, DER), in hex."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def candidates(certificate: "x509.Certificate") -> Iterator[Candidate]:
    """The names in a certificate that may be a user's name: e-mail addresses, DNS names, URIs, then
    the subject.
    """
    names = _alternatives(certificate)
    for kind in ("email", "dns", "uri"):
        for text in names.get(kind, ()):
            yield Candidate(kind, text)
    text = subject_text(certificate.subject)
    yield Candidate("dn", text)
    components = [
        f"DC={_text(each.value)}"
        for each in certificate.subject
        if each.oid.dotted_string == _DOMAIN_COMPONENT
    ]
    if components:
        yield Candidate("subject", ",".join([text, *components]))
    yield Candidate("subject", text)


def same_subject(certificate: "x509.Certificate", name: str) -> bool:
    """Whether a user's name is the certificate's subject (RFC 4514), in any order of its parts."""
    from cryptography import x509

    overrides = {"emailAddress": x509.NameOID.EMAIL_ADDRESS, "E": x509.NameOID.EMAIL_ADDRESS}
    try:
        wanted = x509.Name.from_rfc4514_string(name, overrides)
    except ValueError:
        return False
    return len(wanted.rdns) > 0 and _parts(wanted) == _parts(certificate.subject)


def _parts(name: "x509.Name") -> list[list[tuple[str, str]]]:
    return sorted(
        sorted((each.oid.dotted_string, _text(each.value)) for each in group) for group in name.rdns
    )


def _alternatives(certificate: "x509.Certificate") -> dict[str, list[str]]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return {}
    return {
        "email": found.get_values_for_type(x509.RFC822Name),
        "dns": found.get_values_for_type(x509.DNSName),
        "uri": found.get_values_for_type(x509.UniformResourceIdentifier),
    }


# The attributes that Go writes, in its order; attributes of one kind stand together.
_WRITTEN = {
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.3": "CN",
    "2.5.4.17": "POSTALCODE",
    "2.5.4.9": "STREET",
    "2.5.4.8": "ST",
    "2.5.4.7": "L",
    "2.5.4.11": "OU",
    "2.5.4.10": "O",
    "2.5.4.6": "C",
}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else "#" + value.hex()


def subject_text(name: "x509.Name") -> str:
    """A subject in Go's form, so that users of existing configurations match: a fixed order of
    kinds, and the usual kinds only.
    """
    values: dict[str, list[str]] = {}
    for each in name:
        values.setdefault(each.oid.dotted_string, []).append(_text(each.value))
    for single in ("2.5.4.5", "2.5.4.3"):
        values[single] = values.get(single, [])[-1:]  # Go keeps the last value of these kinds
    return ",".join(
        "+".join(f"{kind}={_escape(value)}" for value in values[oid])
        for oid, kind in _WRITTEN.items()
        if values.get(oid)
    )


def _escape(value: str) -> str:
    last = len(value) - 1
    return "".join(
        "\\" + char
        if char in ',+"\\<>;' or (char in " #" and i == 0) or (char == " " and i == last)
        else char
        for i, char in enumerate(value)
    )
