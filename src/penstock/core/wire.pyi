"""Parser for Python callers; the pull parser itself is for compiled callers only."""

from collections.abc import Buffer

OP_PUB: int
OP_SUB: int
OP_UNSUB: int
OP_CONNECT: int
OP_PING: int
OP_PONG: int
OP_INFO: int
OP_OK: int
OP_ERR: int
OP_MSG: int
BAD_OP: int
BAD_ARGS: int
BAD_LINE: int
BAD_PAYLOAD: int
ROLE_SERVER: int
ROLE_CLIENT: int

class WireError(ValueError):
    """The peer broke the protocol; ``code`` is one of the BAD_* constants, ``events`` what was read before it."""

    code: int
    events: list[tuple[object, ...]]

class Parser:
    """Incremental parser: feed bytes in any split, get the complete operations back.

    Each operation is a tuple whose first item is its kind:
    ``(OP_MSG, subject: str, sid: int, reply: str, headers: bytes, payload: bytes)`` (reply "" and headers b"" when absent);
    ``(OP_PUB, subject, reply, headers, payload)``; ``(OP_SUB, subject, queue, sid: bytes)``; ``(OP_UNSUB, sid: bytes, max)``;
    ``(OP_INFO | OP_CONNECT | OP_ERR, text: bytes)`` (-ERR text without its quotes); ``(OP_PING | OP_PONG | OP_OK,)``.
    Subjects are decoded as UTF-8 with surrogateescape.
    """

    def __init__(self, role: int, max_control_line: int = 4096, max_payload: int = 1048576) -> None: ...
    def feed(self, data: Buffer) -> list[tuple[object, ...]]: ...
    @property
    def failed(self) -> int | None: ...
    @property
    def waiting(self) -> int:
        """Bytes held of an operation not complete yet."""

def pub(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """The bytes of a PUB, or of an HPUB when headers is not empty."""

def encode_headers(headers: dict[str, list[str]] | dict[str, str]) -> bytes:
    """A header block ``NATS/1.0 CRLF key: value CRLF ... CRLF``; ValueError on CR, LF or ':' where they can't be."""

def decode_headers(block: bytes) -> tuple[int, str, dict[str, list[str]]]:
    """(status, description, headers) of a header block; status 0 when there is none. Keys keep their case."""
