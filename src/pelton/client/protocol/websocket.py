"""A client's WebSocket: bytes in, bytes out. The handshake, then binary frames in both directions.

::

    byte 0       FIN 1  RSV1 1 (compressed)  RSV2 RSV3 0  opcode (4 bits)
    byte 1       MASK (1)  length (7): up to 125, or 126: 2 bytes follow, 127: 8 bytes follow
    then         the mask (4 bytes, from a client only), the payload

The payloads of binary messages, one after the other, are the NATS protocol; the boundaries of
messages have no meaning. The owner passes randomness in. Compression (permessage-deflate) keeps no
context between messages, as NATS servers want it.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
import zlib
from typing import TYPE_CHECKING

from pelton.errors import ConnectError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..base.addresses import Server
    from .options import Options

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FIN, RSV1, RSV, MASKED = 0x80, 0x40, 0x70, 0x80
CONTROL_BYTES_MAX = 125
HEAD_BYTES_MAX = 64 * 1024
MESSAGE_BYTES_MAX = 1 << 30
FRAME_BYTES = 64 * 1024
"""The most bytes of the protocol in one frame."""
COMPRESS_BYTES = 64
"""Messages of up to so many bytes are not compressed."""
DEFLATE = "permessage-deflate"
OFFER = f"{DEFLATE}; client_no_context_takeover; server_no_context_takeover"
END_OF_BLOCK = b"\x00\x00\xff\xff"
NORMAL_CLOSE, PROTOCOL_FAULT = 1000, 1002
DEFAULT_PORTS = {False: 80, True: 443}

_HTTP = b"HTTP/1."
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = {"host", "upgrade", "connection"}


def check_headers(headers: Mapping[str, str]) -> None:
    """ValueError for headers that a request can't have, or that the handshake sets."""
    for name, value in headers.items():
        if _TOKEN.fullmatch(name) is None or re.search(r"[\r\n\0]", value):
            raise ValueError(f"websocket_headers: {name!r} can't be a header of a request")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("sec-websocket-"):
            raise ValueError(f"websocket_headers: the handshake sets {name!r} by itself")


def masked(data: bytes | memoryview, mask: bytes) -> bytes:
    """The payload under the mask, and back again."""
    size = len(data)
    if not size:
        return b""
    pad = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(pad, "little")).to_bytes(size, "little")


class WebSocket:
    """One connection, as a client."""

    def __init__(
        self,
        server: Server,
        entropy: Callable[[int], bytes],
        options: Options,
    ) -> None:
        """``entropy`` gives random bytes; the options have further headers, and ask for compression."""
        self._server = server
        self._entropy = entropy
        self._headers = dict(options.websocket_headers)
        self._offer = options.websocket_compression
        self._key = base64.b64encode(entropy(16))
        self._in = bytearray()
        self._message: list[bytes] = []  # the fragments of a message that is not complete
        self._message_bytes = 0
        self._kind = -1  # the opcode of that message
        self._packed = False  # whether it is compressed
        self._out: list[bytes] = []
        self.open = False
        """Whether the handshake is done."""
        self.compressed = False
        """Whether the server agreed to compression."""
        self.closed = ""
        """Why the server ended the connection; "" while it is open."""

    def request(self) -> bytes:
        """The bytes to send first."""
        server = self._server
        host = f"[{server.host}]" if ":" in server.host else server.host
        port = "" if server.port == DEFAULT_PORTS[server.tls] else f":{server.port}"
        lines = [
            f"GET {server.path or '/'} HTTP/1.1",
            f"Host: {host}{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key.decode()}",
            "Sec-WebSocket-Version: 13",
            *([f"Sec-WebSocket-Extensions: {OFFER}"] if self._offer else []),
            *(f"{name}: {value}" for name, value in self._headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    # -- from the server ---------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview) -> bytes:
        """The bytes of the NATS protocol that are complete now; the owner then sends ``answers()``.

        Raises ConnectError when the handshake fails. After frames that no server may send, ``closed``
        says why nothing follows.
        """
        if self.closed:
            return b""
        self._in += data
        if not self.open and not self._shake_hands():
            return b""
        found: list[bytes] = []
        try:
            while not self.closed and (frame := self._next_frame()) is not None:
                self._take(*frame, found)
        except ProtocolError as fault:
            self._out.append(self._frame(CLOSE, struct.pack(">H", PROTOCOL_FAULT)))
            self.closed = f"bad WebSocket frame: {fault}"
        return found[0] if len(found) == 1 else b"".join(found)

    def answers(self) -> bytes:
        """Pongs and the close frame that are due."""
        out, self._out = b"".join(self._out), []
        return out

    def _shake_hands(self) -> bool:
        if self._in[: len(_HTTP)] != _HTTP[: len(self._in)]:
            raise ConnectError(
                f"the server does not speak WebSocket on this port: {bytes(self._in[:40])!r}"
            )
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            if len(self._in) > HEAD_BYTES_MAX:
                raise ConnectError("the answer to the WebSocket request is too long")
            return False
        status, _, rest = bytes(self._in[:end]).decode("latin-1").partition("\r\n")
        del self._in[: end + 4]
        _, _, code = status.partition(" ")
        if not code.startswith("101"):
            raise ConnectError(f"the server refused the WebSocket: {status[:100]!r}")
        fields: dict[str, list[str]] = {}
        for line in rest.split("\r\n"):
            name, _, value = line.partition(":")
            fields.setdefault(name.strip().lower(), []).append(value.strip())
        self._check_answer({name: ", ".join(values) for name, values in fields.items()})
        self.open = True
        return True

    def _check_answer(self, fields: dict[str, str]) -> None:
        digest = hashlib.sha1(self._key + GUID, usedforsecurity=False).digest()
        words = [word.strip().lower() for word in fields.get("connection", "").split(",")]
        if (
            fields.get("upgrade", "").lower() != "websocket"
            or "upgrade" not in words
            or fields.get("sec-websocket-accept") != base64.b64encode(digest).decode()
        ):
            raise ConnectError("the answer to the WebSocket request does not fit the request")
        extension = fields.get("sec-websocket-extensions", "")
        if not extension:
            return
        parts = {part.strip().lower() for part in extension.split(";")}
        wanted = {"client_no_context_takeover", "server_no_context_takeover"}
        if not self._offer or parts - wanted != {DEFLATE} or not wanted <= parts:
            raise ConnectError(f"the server chose another WebSocket extension: {extension[:100]!r}")
        self.compressed = True

    def _next_frame(self) -> tuple[int, int, bytes] | None:
        """First byte, opcode and payload of the next frame; None when it is not complete."""
        data = self._in
        if len(data) < 2:
            return None
        first, size, at = data[0], data[1] & 0x7F, 2
        opcode = first & 0x0F
        if data[1] & MASKED:
            raise ProtocolError("a server must not mask frames")
        if size > CONTROL_BYTES_MAX and opcode >= CLOSE:
            raise ProtocolError("a control frame is too long")
        if size > CONTROL_BYTES_MAX:
            width = 2 if size == 126 else 8
            at += width
            if len(data) < at:
                return None
            size = int.from_bytes(data[2:at], "big")
        if size + self._message_bytes > MESSAGE_BYTES_MAX:
            raise ProtocolError("a message is too long")
        if len(data) < at + size:
            return None
        payload = bytes(memoryview(data)[at : at + size])
        del data[: at + size]
        return first, opcode, payload

    def _take(self, first: int, opcode: int, payload: bytes, found: list[bytes]) -> None:
        if opcode >= CLOSE:
            if first & (FIN | RSV) != FIN:
                raise ProtocolError("a control frame is in pieces or has reserved bits")
            self._control(opcode, payload)
            return
        if opcode == CONTINUATION:
            if self._kind < 0 or first & RSV:
                raise ProtocolError("a continuation frame without a first frame")
        elif opcode not in (TEXT, BINARY) or self._kind >= 0:
            raise ProtocolError(f"a frame of the kind {opcode} is not expected here")
        elif first & RSV & ~(RSV1 if self.compressed else 0):
            raise ProtocolError("reserved bits are set")
        else:
            self._kind, self._packed = opcode, bool(first & RSV1)
        if not self._packed:  # no need to wait for the end of the message
            found.append(payload)
        else:
            self._message.append(payload)
            self._message_bytes += len(payload)
        if first & FIN:
            if self._packed:
                found.append(self._inflated(b"".join(self._message)))
            self._message, self._message_bytes, self._kind = [], 0, -1

    def _inflated(self, packed: bytes) -> bytes:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = unpacker.decompress(packed + END_OF_BLOCK, MESSAGE_BYTES_MAX)
        except zlib.error as error:
            raise ProtocolError(f"bad compression: {error}") from None
        if unpacker.unconsumed_tail:
            raise ProtocolError("a message is too long")
        return data

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self._out.append(self._frame(PONG, payload))
        elif opcode == CLOSE:
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
            reason = payload[2:].decode("utf-8", "replace")
            self._out.append(self._frame(CLOSE, payload[:2]))
            self.closed = f"the server closed the WebSocket: {code} {reason}".rstrip()
        elif opcode != PONG:
            raise ProtocolError(f"there is no frame of the kind {opcode}")

    # -- to the server -----------------------------------------------------------------------------

    def frames(self, data: bytes | memoryview) -> bytes:
        """Bytes of the NATS protocol as frames."""
        if len(data) <= FRAME_BYTES:
            return self._message_frame(data)
        view = memoryview(data)
        return b"".join(
            self._message_frame(view[at : at + FRAME_BYTES])
            for at in range(0, len(view), FRAME_BYTES)
        )

    def close(self) -> bytes:
        """The frame that ends the connection."""
        return self._frame(CLOSE, struct.pack(">H", NORMAL_CLOSE)) if self.open else b""

    def _message_frame(self, data: bytes | memoryview) -> bytes:
        if not self.compressed or len(data) <= COMPRESS_BYTES:
            return self._frame(BINARY, data)
        packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
        return self._frame(BINARY, packed.removesuffix(END_OF_BLOCK), RSV1)

    def _frame(self, opcode: int, payload: bytes | memoryview, bits: int = 0) -> bytes:
        size, first = len(payload), FIN | bits | opcode
        if size < 126:
            head = struct.pack(">BB", first, MASKED | size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", first, MASKED | 126, size)
        else:
            head = struct.pack(">BBQ", first, MASKED | 127, size)
        mask = self._entropy(4)
        return head + mask + masked(payload, mask)
