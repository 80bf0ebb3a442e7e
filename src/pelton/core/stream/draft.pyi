"""A publish with headers for rules: the stream's rules look at it and may change it before it is stored."""

from typing import Any

class Draft:
    """One message on its way into a stream; the stream makes it and passes it to each stage."""

    subject: str
    reply: str  # "" when the publisher asked for no answer
    original: str  # the subject it was published to
    headers: bytes  # the whole block, b"" without headers
    payload: bytes
    flags: int  # of the record; the log returns them
    extra: bytes | None  # further members of the PubAck: b',"val":"42"'
    notes: dict[str, Any]  # values that the stages of a rule pass on
    sourced: bool  # copied by a mirror or a source: its origin has checked it
    seq: int  # set when the message is stored (STAGE_STORED)
    skipped: bool  # it has a sequence and is not stored: no consumer takes it (interest retention)
    def change(
        self,
        *,
        subject: str | None = None,
        headers: bytes | None = None,
        payload: bytes | None = None,
    ) -> None:
        """Replace parts of the message; later checks and the store use the new ones."""

def draft(subject: str, payload: bytes, headers: bytes = b"", reply: str = "") -> Draft:
    """Make a draft of a message of the server's own."""
