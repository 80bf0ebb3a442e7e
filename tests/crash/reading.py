"""What a stream holds, read back in batches, and payloads that tell by themselves whether they are
what was sent.

A payload is `<number> <size> <crc>|` and filler made from the number; the checksum is over subject,
headers and number. So every message that a server returns can be judged, also one that nobody was
told about.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.crash.wire import Wire

ADDED = (
    b"Nats-Stream:",
    b"Nats-Subject:",
    b"Nats-Sequence:",
    b"Nats-Time-Stamp:",
    b"Nats-Num-Pending:",
    b"Nats-Last-Sequence:",
    b"Nats-UpTo-Sequence:",
)


class Stored(NamedTuple):
    """A message as the server gives it back; headers without what a direct get adds."""

    subject: str
    headers: bytes
    payload: bytes

    @property
    def number(self) -> int | None:
        """Which message it is; None when it is not one that anybody sent."""
        return number_of(self.subject, self.headers, self.payload)


def block(*lines: bytes) -> bytes:
    """Headers from lines without their ends; b"" of none."""
    return b"NATS/1.0\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" if lines else b""


def payload_of(number: int, size: int, subject: str, headers: bytes = b"") -> bytes:
    """The payload of a message, at least as long as its own head."""
    body = zlib.crc32(subject.encode() + headers + b"%d" % number)
    head = b"%d %d %d|" % (number, size, body)
    seed = b"%d;" % (number * 7919)
    return (head + seed * (max(size - len(head), 0) // len(seed) + 1))[: max(size, len(head))]


def number_of(subject: str, headers: bytes, payload: bytes) -> int | None:
    """The number in a payload when subject, headers and every byte agree with it."""
    words = payload[:60].partition(b"|")[0].split(b" ")
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    number, size = int(words[0]), int(words[1])
    if size > len(payload) + 60:
        return None
    return number if payload == payload_of(number, size, subject, headers) else None


def read(wire: Wire, stream: str, first: int, last: int, step: int = 500) -> dict[int, Stored]:
    """The messages of a stream with sequences from `first` to `last`; RuntimeError when the server
    does not answer.
    """
    found: dict[int, Stored] = {}
    at = max(first, 1)
    while at <= last:
        wire.publish(
            f"$JS.API.DIRECT.GET.{stream}",
            b'{"seq":%d,"batch":%d}' % (at, min(step, last - at + 1)),
            f"read.{at}",
        )
        ended, deadline, before = False, time.monotonic() + 20, at
        while not ended:
            if time.monotonic() > deadline or wire.gone:
                raise RuntimeError(f"no end of a batch of {stream} from {at}")
            for event in wire.events(1.0):
                if not event.subject.startswith("read."):
                    continue
                if event.subject != f"read.{before}":
                    continue
                status = event.headers[:12]
                if status != b"NATS/1.0\r\nNa" and status.startswith(b"NATS/1.0 "):
                    ended = True
                    if status.startswith(b"NATS/1.0 404"):
                        at = last + 1
                    continue
                seq, stored = _stored(event.headers, event.payload)
                found[seq] = stored
                at = max(at, seq + 1)
        if at == before:
            break
    return {seq: message for seq, message in found.items() if first <= seq <= last}


def _stored(headers: bytes, payload: bytes) -> tuple[int, Stored]:
    kept, added = [], {}
    for line in headers.split(b"\r\n")[1:-2]:
        name = line.partition(b" ")[0]
        if name in ADDED:
            added[name] = line.partition(b": ")[2]
        else:
            kept.append(line)
    subject = added[b"Nats-Subject:"].decode()
    return int(added[b"Nats-Sequence:"]), Stored(subject, block(*kept), payload)
