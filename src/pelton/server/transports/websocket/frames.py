"""The frames of one WebSocket connection: packs and unpacks bytes of the NATS protocol.

A message carries any slice of the protocol's bytes, so its boundaries have no meaning. ``websockets``
does framing, masks, control frames and inflation, without I/O. The owner sets the limit of an incoming
message; it applies to compressed and to inflated bytes.
"""

import logging
from typing import TYPE_CHECKING

from websockets.exceptions import PayloadTooBig
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import DATA_OPCODES, Close, Frame, Opcode
from websockets.protocol import Protocol, Side, State

if TYPE_CHECKING:
    from websockets.extensions import Extension

BROWSER_FRAME_BYTES = 4096  # browsers process small frames better
COMPRESS_BYTES = 64  # messages up to this size are not compressed
FAST = {"level": 1}

_silent = logging.getLogger("pelton.websocket")
_silent.disabled = True  # the owner logs errors, once

# Statuses of a close frame by the reason of the connection's end; other reasons are an internal
# error.
STATUSES = {
    "Client Closed": 1000,
    "Authentication Timeout": 1008,
    "Authentication Failure": 1008,
    "Authentication Expired": 1008,
    "Slow Consumer (Pending Bytes)": 1008,
    "Slow Consumer (Write Deadline)": 1008,
    "Maximum Account Connections Exceeded": 1008,
    "Maximum Connections Exceeded": 1008,
    "Maximum Control Line Exceeded": 1008,
    "Maximum Subscriptions Exceeded": 1008,
    "Missing Account": 1008,
    "Credentials Revoked": 1008,
    "TLS Handshake Failure": 1015,
    "Parse Error": 1002,
    "Protocol Violation": 1002,
    "Bad Client Protocol Version": 1002,
    "Maximum Message Payload Exceeded": 1009,
    "Write Error": 1001,
    "Read Error": 1001,
    "Stale Connection": 1001,
    "Server Shutdown": 1001,
}
INTERNAL_ERROR = 1011


class _Reading(Protocol):
    """The library's parser of incoming frames; it answers control frames."""

    def __init__(self, *, masked: bool, mask_answers: bool, max_bytes: int) -> None:
        # The library expects masks from clients only; the agreement may differ.
        side = Side.SERVER if masked else Side.CLIENT
        super().__init__(side, max_size=max_bytes, logger=_silent)
        self._mask_answers = mask_answers

    def send_frame(self, frame: Frame) -> None:
        self.writes.append(frame.serialize(mask=self._mask_answers))


class Frames:
    """Both directions of a connection."""

    __slots__ = ("_browser", "_deflate", "_mask_out", "_reading")

    def __init__(
        self,
        max_bytes: int,
        *,
        compress: bool = False,
        masked_in: bool = True,
        mask_out: bool = False,
        browser: bool = False,
    ) -> None:
        """`max_bytes`: limit of an incoming message. A server reads masked frames and writes
        unmasked ones; these are the defaults.
        """
        self._mask_out = mask_out
        self._browser = browser
        self._reading = _Reading(masked=masked_in, mask_answers=mask_out, max_bytes=max_bytes)
        self._deflate: tuple[Extension, ...] = ()
        if compress:
            self._deflate = (PerMessageDeflate(True, True, 15, 15, FAST),)
            self._reading.extensions = [PerMessageDeflate(True, True, 15, 15)]

    @property
    def max_bytes(self) -> int:
        """The byte limit of an incoming message."""
        return self._reading.max_message_size or 0

    @max_bytes.setter
    def max_bytes(self, limit: int) -> None:
        self._reading.max_message_size = limit

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The payload of the messages that these bytes complete. The caller then sends `answers`
        and checks `ended`.
        """
        reading = self._reading
        if reading.state is not State.OPEN:
            return []
        reading.receive_data(data)  # type: ignore[arg-type] # it is appended to a bytearray
        return [
            bytes(frame.data)
            for frame in reading.events_received()
            if isinstance(frame, Frame) and frame.opcode in DATA_OPCODES
        ]

    def answers(self) -> bytes:
        """Answers to received frames that must be sent: pongs, a close frame."""
        return b"".join(self._reading.data_to_send())

    @property
    def ended(self) -> str:
        """The reason of the end, for closing the connection; "" while it is open."""
        reading = self._reading
        if reading.state is State.OPEN:
            return ""
        if isinstance(reading.parser_exc, PayloadTooBig):
            return "Maximum Message Payload Exceeded"
        return "Protocol Violation" if reading.parser_exc is not None else "Client Closed"

    @property
    def problem(self) -> str:
        """The error in the received frames."""
        return str(self._reading.parser_exc or "")

    def frames(self, data: bytes) -> bytes:
        """Bytes of the protocol as frames."""
        if self._browser and len(data) > BROWSER_FRAME_BYTES:
            return b"".join(
                self._frame(data[at : at + BROWSER_FRAME_BYTES])
                for at in range(0, len(data), BROWSER_FRAME_BYTES)
            )
        return self._frame(data)

    def _frame(self, data: bytes) -> bytes:
        extensions = self._deflate if len(data) > COMPRESS_BYTES else ()
        return Frame(Opcode.BINARY, data).serialize(mask=self._mask_out, extensions=extensions)

    def close_frame(self, reason: str) -> bytes:
        """The close frame for the end of a connection; empty when one was sent."""
        if self._reading.close_sent is not None:
            return b""
        closing = Close(STATUSES.get(reason, INTERNAL_ERROR), reason)
        self._reading.close_sent = closing
        return Frame(Opcode.CLOSE, closing.serialize()).serialize(mask=self._mask_out)
