"""The transport of a blocking client over a WebSocket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import ConnectError

from ..protocol.websocket import FRAME_BYTES, WebSocket
from .transport import Transport

if TYPE_CHECKING:
    import socket

    from ..base.addresses import Server
    from ..protocol.options import Options
    from .locks import Bell, Guard


class WebSocketTransport(Transport):
    """A connected socket, plain or TLS, with frames on it."""

    def __init__(
        self, connected: socket.socket, guard: Guard, bell: Bell, server: Server, options: Options
    ) -> None:
        """Takes over the socket; ``begin`` follows."""
        super().__init__(connected, guard, bell)
        self._frames = WebSocket(server, options)
        self._pending = b""  # bytes of frames that the kernel has not taken yet
        self._claimed = 0  # bytes of the protocol in the last one of these frames

    def begin(self) -> None:
        """Ask for the WebSocket; reading gets the answer."""
        self._pending = self._frames.request()
        self._push()

    @property
    def is_plain(self) -> bool:
        """Never: the bytes are in frames."""
        return False

    def _push(self) -> bool:
        """Send what is pending; False when some of it is left."""
        while self._pending:
            sent = super().send(self._pending)
            if not sent:
                return False
            self._pending = self._pending[sent:]
        return True

    def send(self, data: bytes | memoryview) -> int:
        """Send bytes as one frame, and return how many of them went.

        0 while the kernel has no room: the next call has the same bytes and continues.
        """
        if not self._claimed:
            self._claimed = min(len(data), FRAME_BYTES)
            self._pending += self._frames.frames(data[: self._claimed])
        if not self._push():
            return 0
        sent, self._claimed = self._claimed, 0
        return sent

    def _read(self) -> bytes | memoryview | None:
        if self._frames.closed:
            self.reason = ConnectError(self._frames.closed)
            return b""
        received = super()._read()
        if not received:
            return received
        try:
            data = self._frames.receive(received)
        except ConnectError as error:  # of the handshake
            self.reason = error
            return b""
        if answers := self._frames.answers():
            self._pending += answers  # what does not go now goes with the next frame
            self._push()
        return data or (self._read() if self._frames.closed else None)

    def close(self) -> None:
        """Send the closing frame if there is room for it, and close the socket."""
        if not self._claimed and not self._frames.closed:
            self._pending += self._frames.close()
            self._push()
        super().close()
