from typing import Any

def scan(block: bytes) -> dict[str, Any]:
    """What a stream sees in a header block: names of PublishHeaders -> value (bytes) or None; rare: bits; untidy: bool."""

def value(block: bytes, name: bytes) -> bytes | None:
    """The first value of a header, byte for byte, or None."""

def tidied(block: bytes) -> bytes:
    """The block as a stream stores it."""
