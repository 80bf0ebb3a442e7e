"""Which bucket a message belongs to: all of a device, and all registrations of an owner, to the same one."""

from __future__ import annotations

from zlib import crc32


def bucket_key(subject: str) -> str:
    """What a subject's bucket is a hash of: the device, the owner of registrations, or else the subject."""
    tokens = subject.split(".")
    if tokens[0] == "plgd" and len(tokens) > 4:
        return tokens[4 if tokens[3] == "devices" else 2]
    if tokens[0] == "events" and len(tokens) > 2:
        return tokens[1]
    return subject


def bucket_of(key: str, buckets: int) -> int:
    """The bucket of a key, such as a device id."""
    return crc32(key.encode()) % buckets
