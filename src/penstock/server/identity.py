"""What a server says of itself: its id and the INFO line that greets every connection. Pure, but
for the random id.
"""

import json
import os
import sys
from binascii import b2a_base64, crc_hqx

from penstock.server.settings import COMPATIBLE_VERSION, Settings
from penstock.server.units import parse_address

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_SERVER_PREFIX = 13 << 3  # the nkey type "server": the first letter of the encoded key is N
_FOR_URLS = bytes.maketrans(b"+/", b"-_")
API_LEVEL = 4  # JetStream API level of the compatible version
RUNTIME = f"python{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"


def new_server_id(entropy: bytes | None = None) -> str:
    """A fresh server id: 56 letters, a public nkey in form (type, 32 bytes, CRC-16, base32)."""
    raw = bytes([_SERVER_PREFIX]) + (os.urandom(32) if entropy is None else entropy)
    raw += crc_hqx(raw, 0).to_bytes(2, "little")
    number = int.from_bytes(raw, "big")
    return bytes(_ALPHABET[number >> shift & 31] for shift in range(275, -1, -5)).decode()


def new_nonce() -> str:
    """Something fresh for a client to sign: 11 random bytes as base64 for URLs."""
    raw = b2a_base64(os.urandom(11), newline=False)
    return raw.translate(_FOR_URLS).rstrip(b"=").decode()


class Greeting:
    """The INFO line; all but the two fields of the connection itself is built once."""

    def __init__(
        self, settings: Settings, server_id: str, server_name: str, host: str, port: int
    ) -> None:
        """host and port as clients reach them; read again from the settings by refresh()."""
        self._fixed: dict[str, object] = {
            "server_id": server_id,
            "server_name": server_name,
            "version": COMPATIBLE_VERSION,
            "proto": 1,
            "go": RUNTIME,
            "host": host,
            "port": port,
        }
        self.websocket_port = settings.websocket.port  # that in use, once it is known
        self.refresh(settings)

    def refresh(self, settings: Settings, *, lame_duck: bool = False) -> None:
        """Build the constant parts anew, after a reload or when the server is about to go."""
        head = {**self._fixed, "headers": settings.headers}
        if settings.client_advertise:
            port = self._fixed["port"]
            assert isinstance(port, int)
            head["host"], head["port"] = parse_address(settings.client_advertise, "", port)
        if settings.auth_required and not settings.no_auth_user:
            head["auth_required"] = True
        head |= _of_tls(settings)
        head["max_payload"] = settings.max_payload
        if settings.jetstream:
            head["jetstream"] = True
        tail: dict[str, object] = {}
        if settings.cluster_name or settings.cluster_port:
            tail["cluster"] = settings.cluster_name or self._fixed["server_id"]
        if settings.jetstream and settings.domain:
            tail["domain"] = settings.domain
        if lame_duck:
            tail["ldm"] = True
        tail["api_lvl"] = API_LEVEL
        self._head = b"INFO " + _json(head)[:-1]
        self._websocket_head = b"INFO " + _json(self._of_websocket(settings, head))[:-1]
        self._tail = b"," + _json(tail)[1:] + b" \r\n"

    def _of_websocket(self, settings: Settings, head: dict[str, object]) -> dict[str, object]:
        """What those are told who come over a WebSocket: its address, its TLS."""
        options = settings.websocket
        secure = {"tls_required": True, "tls_available": True} if options.tls is not None else {}
        told: dict[str, object] = {}
        for name, value in head.items():
            if name == "max_payload":
                if settings.auth_required or options.auth_override:
                    told["auth_required"] = True
                told |= secure
            if not name.startswith(("tls_", "auth_")):
                told[name] = value
        return told | {"host": options.host, "port": self.websocket_port}

    def line(
        self, client_id: int, client_ip: str, nonce: str = "", *, websocket: bool = False
    ) -> bytes:
        """The INFO of one connection; the nonce is what an nkey user signs, the address is left
        out when it is "".
        """
        return b'%s,"client_id":%d%s%s%s' % (
            self._websocket_head if websocket else self._head,
            client_id,
            b',"nonce":"%s"' % nonce.encode() if nonce else b"",
            b',"client_ip":"%s"' % client_ip.encode() if client_ip else b"",
            self._tail,
        )


def _of_tls(settings: Settings) -> dict[str, object]:
    tls = settings.tls
    if tls is None:
        return {}
    optional = settings.allow_non_tls and not (tls.handshake_first and not tls.fallback_ns)
    fields: dict[str, object] = {} if optional else {"tls_required": True}
    if tls.verify:
        fields["tls_verify"] = True
    if settings.allow_non_tls:
        fields["tls_available"] = True
    return fields


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
