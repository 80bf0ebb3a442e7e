"""What handler threads leave to the thread that uses the client: acks to send, handlers that ended.

One thread at a time uses a blocking client. While it waits for bytes, a handler thread hands over what
it wants to send, and wakes it through a socket pair.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from ..message import BaseMessage
    from .connection import BlockingClient


class Errands:
    """What handler threads leave to the thread that made this object."""

    def __init__(self) -> None:
        """Nothing to do."""
        self.owner = threading.get_ident()
        self.ended: deque[tuple[int, BaseMessage, Exception | None]] = deque()
        """Handlers that have ended: their number, their message, and what they raised."""
        self._answers: deque[tuple[str, bytes]] = deque()
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)

    def fileno(self) -> int:
        """Readable when there is something to do."""
        return self._ear.fileno()

    def is_foreign(self) -> bool:
        """Whether another thread than the owner asks."""
        return threading.get_ident() != self.owner

    def answer(self, reply: str, payload: bytes) -> None:
        """Send an ack soon."""
        self._answers.append((reply, payload))
        self._ring()

    def end(self, number: int, message: BaseMessage, error: Exception | None) -> None:
        """A handler has ended."""
        self.ended.append((number, message, error))
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # enough bytes wait to wake the owner, or it is closed
            self._bell.send(b"!")

    def hear(self) -> None:
        """Read what woke the owner."""
        try:
            while self._ear.recv(4096):
                pass
        except OSError:
            pass  # all is read

    def perform(self, client: BlockingClient) -> None:
        """Queue the acks in the connection."""
        while self._answers:
            reply, payload = self._answers.popleft()
            try:
                client.connection.answer(reply, payload)
            except PenstockError as error:  # the server delivers the message again
                client.report(error)

    def close(self) -> None:
        """Acks of handlers that still run are refused from here on."""
        self._ear.close()
        self._bell.close()
