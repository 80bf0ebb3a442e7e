"""A client's WebSocket: bytes in, bytes out. The library ``websockets`` has the protocol.

The payloads of messages, one after the other, are the NATS protocol; the boundaries of messages have no
meaning, so a message is passed on frame by frame. Compression (permessage-deflate) keeps no context between
messages, as NATS servers want it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import DATA_OPCODES, Frame
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import WebSocketURI

from pelton.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..base.addresses import Server
    from .options import Options

# As large as a payload may be: a server may send all of it in one WebSocket message.
MESSAGE_BYTES_MAX = 1 << 30
FRAME_BYTES = 64 * 1024
"""The most bytes of the protocol in one frame."""

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Another value of these would break the handshake.
_OWN_HEADERS = {"host", "upgrade", "connection"}


def check_headers(headers: Mapping[str, str]) -> None:
    """ValueError for headers that a request can't have, or that the handshake sets."""
    for name, value in headers.items():
        if _TOKEN.fullmatch(name) is None or re.search(r"[\r\n\0]", value):
            raise ValueError(f"websocket_headers: {name!r} can't be a header of a request")
        if name.lower() in _OWN_HEADERS or name.lower().startswith("sec-websocket-"):
            raise ValueError(f"websocket_headers: the handshake sets {name!r} by itself")


class WebSocket:
    """One connection, as a client."""

    def __init__(self, server: Server, options: Options) -> None:
        """The options have further headers, and ask for compression."""
        deflate = ClientPerMessageDeflateFactory(True, True, compress_settings={"level": 1})
        path, _, query = server.path.partition("?")
        uri = WebSocketURI(server.tls, server.host, server.port, path or "/", query, None, None)
        self._protocol = ClientProtocol(
            uri,
            extensions=[deflate] if options.websocket_compression else None,
            max_size=MESSAGE_BYTES_MAX,
        )
        self._headers = dict(options.websocket_headers)
        self._head = b""  # of the answer to the request
        self._out: list[bytes] = []
        self.open = False
        """Whether the handshake is done."""
        self.closed = ""
        """Why the server ended the connection; "" while it is open."""

    @property
    def compressed(self) -> bool:
        """Whether the server agreed to compression."""
        return bool(self._protocol.extensions)

    def request(self) -> bytes:
        """The bytes to send first."""
        request = self._protocol.connect()
        for name, value in self._headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        return b"".join(self._protocol.data_to_send())

    # -- from the server ---------------------------------------------------------------------------

    def receive(self, data: bytes | memoryview) -> bytes:
        """The bytes of the NATS protocol that are complete now; the owner then sends ``answers()``.

        Raises ConnectError when the handshake fails. After frames that no server may send, ``closed``
        says why nothing follows.
        """
        if self.closed:
            return b""
        protocol = self._protocol
        if not self.open:
            self._head += data
            _check_status(self._head)
        # A copy, because the transport receives the next bytes into the same memory.
        protocol.receive_data(bytes(data))
        found: list[bytes] = []
        for event in protocol.events_received():
            if isinstance(event, Response):
                self.open = protocol.state is not State.CONNECTING
            elif isinstance(event, Frame) and event.opcode in DATA_OPCODES:
                # Fragments need not be joined: the NATS parser takes bytes in any portions.
                found.append(bytes(event.data))
        if (failure := protocol.handshake_exc) is not None:
            raise ConnectError(_refused(failure)) from failure
        # Pongs and the answer to a close frame, which the library has made meanwhile.
        self._out += protocol.data_to_send()
        if (fault := protocol.parser_exc) is not None:
            self.closed = f"bad WebSocket frame: {fault}".replace("\n", " ")
        elif (close := protocol.close_rcvd) is not None:
            said = f"{close.code} {close.reason}".rstrip()
            self.closed = f"the server closed the WebSocket: {said}"
        return found[0] if len(found) == 1 else b"".join(found)

    def answers(self) -> bytes:
        """Pongs and the close frame that are due."""
        out, self._out = b"".join(self._out), []
        return out

    # -- to the server -----------------------------------------------------------------------------

    def frames(self, data: bytes | memoryview) -> bytes:
        """Bytes of the NATS protocol as frames."""
        view = memoryview(data)
        for at in range(0, len(view) or 1, FRAME_BYTES):
            self._protocol.send_binary(bytes(view[at : at + FRAME_BYTES]))
        return b"".join(self._protocol.data_to_send())

    def close(self) -> bytes:
        """The frame that ends the connection."""
        if not self.open or self._protocol.state is not State.OPEN:
            return b""
        self._protocol.send_close(1000)
        return b"".join(self._protocol.data_to_send())


def _check_status(head: bytes) -> None:
    """ConnectError for a server that refuses: the library would wait for the end of what it says."""
    line, end, rest = head.partition(b"\r\n")
    status = line.split(b" ", 1)[1] if line.startswith(b"HTTP/1.1 ") else b"101"
    if end and b"\r\n\r\n" in end + rest and not status.startswith(b"101"):
        said = status[:100].decode("latin-1")
        raise ConnectError(f"the server refused the WebSocket: {said}")


def _refused(failure: Exception) -> str:
    """What is wrong with the answer to the request."""
    said = str(failure.__cause__ or failure)
    if "HTTP" in said:
        return f"the server does not speak WebSocket on this port: {said}"
    return f"the answer to the WebSocket request does not fit: {said}"
