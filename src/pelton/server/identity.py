"""The identity of a server: its id, and the INFO line for each connection. Pure except for the id."""

import os
import sys
from binascii import b2a_base64, crc_hqx

from pelton.core.protocol.api_level import API_LEVEL
from pelton.server.settings import COMPATIBLE_VERSION, Settings
from pelton.server.units import parse_address

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_SERVER_PREFIX = 13 << 3  # the nkey type "server": the first letter of the encoded key is N
_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(32), ord('"'), ord("\\"))}
_FOR_URLS = bytes.maketrans(b"+/", b"-_")

_END = b',"api_lvl":%d} \r\n' % API_LEVEL
RUNTIME = f"python{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"


def new_server_id(entropy: bytes | None = None) -> str:
    """A new server id: 56 letters in the form of a public nkey (type, 32 bytes, CRC-16, base32)."""
    raw = bytes([_SERVER_PREFIX]) + (os.urandom(32) if entropy is None else entropy)
    raw += crc_hqx(raw, 0).to_bytes(2, "little")
    number = int.from_bytes(raw, "big")
    return bytes(_ALPHABET[number >> shift & 31] for shift in range(275, -1, -5)).decode()


def new_nonce() -> str:
    """A new nonce for a client to sign: 11 random bytes as base64url."""
    raw = b2a_base64(os.urandom(11), newline=False)
    return raw.translate(_FOR_URLS).rstrip(b"=").decode()


class Greeting:
    """The INFO line. Its parts are built once, except for the fields of the single connection."""

    def __init__(
        self, settings: Settings, server_id: str, server_name: str, host: str, port: int
    ) -> None:
        """host and port are the clients' address of the server; refresh() reads the settings again."""
        self._fixed: dict[str, object] = {
            "server_id": server_id,
            "server_name": server_name,
            "version": COMPATIBLE_VERSION,
            "proto": 1,
            "go": RUNTIME,
            "host": host,
            "port": port,
        }
        self.websocket_port = settings.websocket.port  # the port in use, once known
        self.refresh(settings)

    def refresh(self, settings: Settings, *, lame_duck: bool = False) -> None:
        """Build the constant parts again, after a reload or when lame duck mode begins."""
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
        self._tail = b"".join(b",%s" % _json({name: tail[name]})[1:-1] for name in tail)
        first = head, self._of_websocket(settings, head)
        self._first = [b"INFO " + _json(fields)[:-1] for fields in first]
        self._later = [_around_payload(_known(settings, fields)) for fields in first]

    def _of_websocket(self, settings: Settings, head: dict[str, object]) -> dict[str, object]:
        """The fields of INFO for WebSocket clients: address, TLS."""
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
        """The INFO of one connection. `nonce` is signed by nkey users; an address "" is left out."""
        return b'%s,"client_id":%d%s%s%s%s' % (
            self._first[websocket],
            client_id,
            b',"nonce":"%s"' % nonce.encode() if nonce else b"",
            b',"client_ip":"%s"' % client_ip.encode() if client_ip else b"",
            self._tail,
            _END,
        )

    def later(
        self,
        client_id: int,
        client_ip: str,
        max_payload: int,
        account: str = "",
        *,
        system: bool = False,
        websocket: bool = False,
    ) -> bytes:
        """An INFO for a connected client.

        With its account, it is the answer to CONNECT and says whether the account is the system
        account.
        """
        before, behind = self._later[websocket]
        return b'%s%d%s,"client_id":%d,"client_ip":"%s"%s%s%s%s' % (
            before,
            max_payload,
            behind,
            client_id,
            client_ip.encode(),
            self._tail,
            b',"connect_info":true,"remote_account":%s' % _value(account).encode()
            if account
            else b"",
            b',"acc_is_sys":true' if system else b"",
            _END,
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


def _known(settings: Settings, fields: dict[str, object]) -> dict[str, object]:
    """The fields of INFO for connected clients. They contain auth_required whenever authentication
    is configured, even when guests are admitted.
    """
    told: dict[str, object] = {}
    for name, value in fields.items():
        told[name] = value
        if name == "headers" and settings.auth_required:
            told["auth_required"] = True
    if not settings.auth_required:
        told.pop("auth_required", None)
    return told


def _around_payload(fields: dict[str, object]) -> tuple[bytes, bytes]:
    """The line before and after the value of max_payload, which differs by connection."""
    names = list(fields)
    at = names.index("max_payload") + 1
    before = _json({name: fields[name] for name in names[: at - 1]})[:-1]
    behind = b"".join(b",%s" % _json({name: fields[name]})[1:-1] for name in names[at:])
    return b'INFO %s,"max_payload":' % before, behind


def _json(fields: dict[str, object]) -> bytes:
    """JSON of plain values, written here to avoid loading the module json."""
    return ("{" + ",".join(f'"{name}":{_value(fields[name])}' for name in fields) + "}").encode()


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else f'"{str(value).translate(_ESCAPES)}"'
