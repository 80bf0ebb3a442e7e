"""HighwayHash-64: a keyed checksum."""

def highway64(key: bytes, data: bytes) -> int:
    """The hash of data; ValueError unless the key has 32 bytes."""
