"""Header blocks for Python callers."""

from collections.abc import Mapping, Sequence

def encode_headers(headers: Mapping[str, str | Sequence[str]]) -> bytes:
    """A header block ``NATS/1.0 CRLF key: value CRLF ... CRLF``.

    ValueError on CR or LF anywhere, on ':' in a key, on an empty key.
    """

def decode_headers(block: bytes) -> tuple[int, str, dict[str, list[str]]]:
    """(status, description, headers) of a header block; status 0 when there is none.

    Keys keep their case, several values of a key their order. ValueError when malformed.
    """
