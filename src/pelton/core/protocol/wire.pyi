"""Parser for Python callers; the pull parser itself is for compiled callers only."""

from typing_extensions import Buffer

from pelton.core.protocol.headers import decode_headers as decode_headers
from pelton.core.protocol.headers import encode_headers as encode_headers

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
ROLE_LEAF: int

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

    In the leaf role they are

    - ``(OP_MSG, subject, reply, queues: tuple[str, ...], headers, payload)``
    - ``(OP_SUB, subject, 0)`` or ``(OP_SUB, subject, queue, weight)``
    - ``(OP_UNSUB, key: bytes)``, the subject, or subject and queue as they were written

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
