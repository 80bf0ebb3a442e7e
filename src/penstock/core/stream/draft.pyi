"""A publish on the slow path: the rules of a stream's rarer features look at it and may change it before it is stored."""

from typing import Any

class Draft:
    """One message on its way into a stream; made by the stream, given to each stage."""

    subject: str
    reply: str  # "" when nobody asked for an answer
    original: str  # the subject it was published to
    headers: bytes  # the whole block, b"" without
    payload: bytes
    flags: int  # of the record: given back by the log
    extra: bytes | None  # joins the PubAck's members: b',"val":"42"'
    notes: dict[str, Any]  # what a rule's stages tell each other
    sourced: bool  # a mirror's or a source's: its origin has checked it
    seq: int  # once it is stored (STAGE_STORED)
    skipped: bool  # it has a sequence and is not stored: nobody takes it (interest retention)
    def change(
        self,
        *,
        subject: str | None = None,
        headers: bytes | None = None,
        payload: bytes | None = None,
    ) -> None:
        """Put something else in its place; later checks and the store see that."""

def draft(subject: str, payload: bytes, headers: bytes = b"", reply: str = "") -> Draft:
    """A draft of a message that nobody published."""
