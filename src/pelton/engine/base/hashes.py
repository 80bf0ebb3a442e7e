"""Short hashes of names in subjects and headers of the protocol."""

import hashlib

from pelton.api.times import format_time
from pelton.nuid import DIGITS

LENGTH = 8
_LETTERS = bytes(ord(DIGITS[byte % len(DIGITS)]) for byte in range(256))


def short_hash(text: str) -> str:
    """Return eight characters of [0-9A-Za-z] that stand for a text: an account in the longer ack
    subjects, an origin in an index name, or the identity of a stream.
    """
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).digest()
    return digest[:LENGTH].translate(_LETTERS).decode()


def stream_identity(created_ns: int) -> str:
    """Return the identity of the stream that was created at this time. A stream that was created
    again under the same name has another one.
    """
    return short_hash(format_time(created_ns))
