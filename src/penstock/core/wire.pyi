"""Parser for Python callers; the pull parser itself is for compiled callers only."""

from collections.abc import Mapping

from typing_extensions import Buffer

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
    """The peer broke the protocol.

    ``code`` is one of the BAD_* constants, ``events`` what was read before it.
    """

    code: int
    events: list[tuple[object, ...]]

class Parser:
    """Incremental parser: feed bytes in any split, get the complete operations back.

    Each operation is a tuple whose first item is its kind:

    - ``(OP_MSG, subject: str, sid: int, reply: str, headers: bytes, payload: bytes)``
    - ``(OP_PUB, subject, reply, headers, payload)``
    - ``(OP_SUB, subject, queue, sid: bytes)``
    - ``(OP_UNSUB, sid: bytes, max)``
    - ``(OP_INFO | OP_CONNECT | OP_ERR, text: bytes)``, the text of -ERR without its quotes
    - ``(OP_PING | OP_PONG | OP_OK,)``

    What is absent is "" or b"" or 0. Subjects are decoded as UTF-8 with surrogateescape. In the
    server role -ERR ends the connection: it is a WireError with BAD_ARGS, as for nats-server.
    """

    def __init__(
        self,
        role: int,
        max_control_line: int | None = None,
        max_payload: int | None = None,
        headers: bool = True,
    ) -> None:
        """Limits in bytes; None is the role's own.

        4096 and 1 MiB for what clients send; 1 MiB and 128 MiB for what a server sends, which
        may add headers to a message of its full max_payload. Without headers HPUB is BAD_ARGS.
        """

    def feed(self, data: Buffer) -> list[tuple[object, ...]]: ...
    @property
    def failed(self) -> int | None: ...
    @property
    def waiting(self) -> int:
        """Bytes held of an operation not complete yet."""

def pub(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """The bytes of a PUB, or of an HPUB when headers is not empty."""

def encode_headers(headers: Mapping[str, list[str]] | Mapping[str, str]) -> bytes:
    """A header block ``NATS/1.0 CRLF key: value CRLF ... CRLF``.

    ValueError on CR or LF anywhere, on ':' in a key, on an empty key.
    """

def decode_headers(block: bytes) -> tuple[int, str, dict[str, list[str]]]:
    """(status, description, headers) of a header block; status 0 when there is none.

    Keys keep their case, several values of a key their order. ValueError when malformed.
    """
