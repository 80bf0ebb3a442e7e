"""The status of a certificate in an OCSP response, and whether the response is valid.

It counts if it is signed by the certificate's issuer, or by a certificate that the issuer made for this, speaks of
this certificate, and is in its time.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID

if TYPE_CHECKING:
    from datetime import datetime

    from cryptography.x509 import Certificate

_ANSWER_MOST = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """The status of a certificate."""

    state: str
    """``good``, ``revoked``, ``unknown`` (to the responder), ``invalid`` (the response does not count)."""
    reason: str = ""
    """Why it was revoked, or why the response does not count."""
    produced: datetime | None = None
    since: datetime | None = None
    """From when on the responder knew it to be so."""
    until: datetime | None = None
    """When newer information is due."""
    revoked: datetime | None = None

    def data(self) -> dict[str, str]:
        """The facts in JSON."""
        times = {
            "produced_at": self.produced,
            "this_update": self.since,
            "next_update": self.until,
            "revoked_at": self.revoked,
        }
        found = (
            {"state": self.state, "reason": self.reason} if self.reason else {"state": self.state}
        )
        return found | {
            name: each.isoformat().replace("+00:00", "Z") for name, each in times.items() if each
        }


def verdict(response: bytes, own: Certificate, issuer: Certificate, now: datetime) -> Verdict:
    """The status of a certificate at this time, from a response in DER."""
    try:
        found = ocsp.load_der_ocsp_response(response)
        if found.response_status != ocsp.OCSPResponseStatus.SUCCESSFUL:
            status = found.response_status.name.lower().replace("_", " ")
            return Verdict("invalid", f"the responder answered: {status}")
        problem = _signature_problem(found, issuer, now)
        if problem:
            return Verdict("invalid", problem)
        for each in found.responses:
            if _speaks_of(each, own, issuer):
                return _of(each, found.produced_at_utc, now)
    except (ValueError, UnsupportedAlgorithm) as error:
        return Verdict("invalid", str(error))
    return Verdict("invalid", "it speaks of another certificate")


def responder_of(own: Certificate) -> str:
    """The URL of the responder that a certificate names; empty if there is none."""
    with contextlib.suppress(x509.ExtensionNotFound):
        access = own.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
        for each in access:
            place = each.access_location
            if each.access_method == AuthorityInformationAccessOID.OCSP and isinstance(
                place, x509.UniformResourceIdentifier
            ):
                return place.value
    return ""


def asked(url: str, own: Certificate, issuer: Certificate, seconds: float) -> bytes:
    """The answer of a responder in DER; ValueError says why there is none."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("its URL is not one of HTTP")
    # SHA-1 only names the issuer here; every responder knows it.
    question = ocsp.OCSPRequestBuilder().add_certificate(own, issuer, hashes.SHA1()).build()
    request = Request(
        url,
        question.public_bytes(Encoding.DER),
        {"Content-Type": "application/ocsp-request", "Accept": "application/ocsp-response"},
    )
    try:
        with urlopen(request, timeout=seconds) as answer:
            found: bytes = answer.read(_ANSWER_MOST)
    except URLError as error:
        raise ValueError(f"{error.reason}") from None
    except OSError as error:
        raise ValueError(f"{error}") from None
    return found


def _of(each: Any, produced: datetime, now: datetime) -> Verdict:
    since, until = each.this_update_utc, each.next_update_utc
    if since > now or (until is not None and until < now):
        return Verdict("invalid", "it is not in its time", produced, since, until)
    reason = each.revocation_reason
    return Verdict(
        each.certificate_status.name.lower(),
        "" if reason is None else str(reason.value),
        produced,
        since,
        until,
        each.revocation_time_utc,
    )


def _speaks_of(each: Any, own: Certificate, issuer: Certificate) -> bool:
    return bool(
        each.serial_number == own.serial_number
        and each.issuer_name_hash == _hash(each.hash_algorithm, issuer.subject.public_bytes())
        and each.issuer_key_hash == _hash(each.hash_algorithm, _key_bits(issuer))
    )


def _hash(algorithm: hashes.HashAlgorithm, data: bytes) -> bytes:
    hashing = hashes.Hash(algorithm)
    hashing.update(data)
    return hashing.finalize()


def _key_bits(found: Certificate) -> bytes:
    key = found.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return key.public_bytes(Encoding.DER, PublicFormat.PKCS1)
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    raise ValueError("the key of the issuer is of no kind that is known here")


def _signature_problem(found: ocsp.OCSPResponse, issuer: Certificate, now: datetime) -> str:
    """Why the signature of a response does not count; empty if it does."""
    signers = [issuer]
    for each in found.certificates:
        with contextlib.suppress(ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            each.verify_directly_issued_by(issuer)
            uses = each.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            in_time = each.not_valid_before_utc <= now <= each.not_valid_after_utc
            if ExtendedKeyUsageOID.OCSP_SIGNING in uses and in_time:
                signers.append(each)
    for each in signers:
        with contextlib.suppress(InvalidSignature):
            _verify(each, found)
            return ""
    return "neither the issuer nor its responder has signed it"


def _verify(signer: Certificate, found: ocsp.OCSPResponse) -> None:
    key, algorithm = signer.public_key(), found.signature_hash_algorithm
    signature, data = found.signature, found.tbs_response_bytes
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        key.verify(signature, data)
    elif algorithm is None:
        raise InvalidSignature
    elif isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, data, padding.PKCS1v15(), algorithm)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, data, ec.ECDSA(algorithm))
    else:
        raise InvalidSignature
