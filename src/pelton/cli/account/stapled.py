"""The OCSP response that a server staples to its handshake, which Python's ``ssl`` does not show.

    ->  ClientHello of TLS 1.2, with status_request
    <-  ServerHello, Certificate, CertificateStatus, ServerKeyExchange, ...
    ->  an alert: the client ends it here

In TLS 1.2 these messages are not encrypted, so that no key is needed to read them. The received
data must not be trusted before its signature is checked. No I/O: the caller sends and receives.
"""

from __future__ import annotations

import ipaddress

GOODBYE = bytes((21, 3, 3, 0, 2, 1, 90))
"""An alert: the user does not go on."""
HANDSHAKE_MOST = 1 << 18  # bytes of a handshake, certificates and all

_ALERT, _HANDSHAKE = 21, 22
_CLIENT_HELLO, _CERTIFICATE_STATUS, _KEY_EXCHANGE, _DONE = 1, 22, 12, 14
_OCSP = 1
_PROTOCOL_VERSION = 70
_CIPHERS = (0xC02B, 0xC02F, 0xC02C, 0xC030, 0xCCA9, 0xCCA8, 0x009C, 0x009D)
_CURVES = (29, 23, 24, 25)
_SIGNATURES = (0x0403, 0x0503, 0x0603, 0x0807, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601)


class HandshakeRefused(Exception):
    """The server does not shake hands in TLS 1.2; the text says why."""


def client_hello(host: str, chance: bytes) -> bytes:
    """The record that begins a handshake with this host; ``chance``: 32 random bytes."""
    extensions = [
        _extension(5, bytes((_OCSP, 0, 0, 0, 0))),
        _extension(10, _sized(2, _numbers(_CURVES))),
        _extension(11, bytes((1, 0))),
        _extension(13, _sized(2, _numbers(_SIGNATURES))),
        _extension(23, b""),
        _extension(0xFF01, b"\0"),
    ]
    if not _is_address(host):
        name = b"\0" + _sized(2, host.encode("idna"))
        extensions.insert(0, _extension(0, _sized(2, name)))
    ciphers = _sized(2, _numbers(_CIPHERS))
    body = b"\3\3" + chance + b"\0" + ciphers + b"\1\0" + _sized(2, b"".join(extensions))
    message = bytes((_CLIENT_HELLO,)) + _sized(3, body)
    return bytes((_HANDSHAKE, 3, 1)) + _sized(2, message)


class ServerHandshake:
    """Reads the bytes of a server until ``over``; then ``staple`` is the OCSP response, or None."""

    def __init__(self) -> None:
        """Nothing has come."""
        self.over = False
        self.staple: bytes | None = None
        self._records = b""
        self._messages = b""
        self._size = 0

    def take(self, data: bytes) -> None:
        """Bytes that came; HandshakeRefused."""
        self._records += data
        self._size += len(data)
        if self._size > HANDSHAKE_MOST:
            raise HandshakeRefused("the handshake of the server does not end")
        while not self.over and len(self._records) >= 5:
            kind, end = self._records[0], 5 + int.from_bytes(self._records[3:5], "big")
            if kind not in (_ALERT, _HANDSHAKE):
                raise HandshakeRefused("the server does not answer with a TLS handshake")
            if len(self._records) < end:
                return
            body, self._records = self._records[5:end], self._records[end:]
            self._record(kind, body)

    def _record(self, kind: int, body: bytes) -> None:
        if kind == _ALERT:
            if body[1:] == bytes((_PROTOCOL_VERSION,)):
                raise HandshakeRefused(
                    "the server has no TLS 1.2, and later versions encrypt the response"
                )
            raise HandshakeRefused(f"the server refuses the handshake (TLS alert {body[1:].hex()})")
        self._messages += body
        while not self.over and len(self._messages) >= 4:
            end = 4 + int.from_bytes(self._messages[1:4], "big")
            if len(self._messages) < end:
                return
            kind, body = self._messages[0], self._messages[4:end]
            self._messages = self._messages[end:]
            if kind == _CERTIFICATE_STATUS and len(body) > 4 and body[0] == _OCSP:
                self.staple = body[4 : 4 + int.from_bytes(body[1:4], "big")]
            self.over = kind in (_CERTIFICATE_STATUS, _KEY_EXCHANGE, _DONE)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _numbers(values: tuple[int, ...]) -> bytes:
    return b"".join(each.to_bytes(2, "big") for each in values)


def _sized(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def _extension(number: int, data: bytes) -> bytes:
    return number.to_bytes(2, "big") + _sized(2, data)
