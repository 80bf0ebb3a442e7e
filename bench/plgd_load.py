"""Messages of a made-up fleet in a file, and a publisher of them that takes little of the processor.

The publisher writes the protocol's own lines to a socket, as a compiled gateway would, without acks: a
stream that listens stores them all the same, and the caller counts them there.
"""

import socket
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from cramjam import snappy

from pelton.plgd.codec import Envelope, Registration, unpack
from pelton.plgd.fleet import FleetConfig, FleetRun

SCHEMA = pa.schema([("subject", pa.string()), ("data", pa.binary())])
CHUNK = 50_000
SLOT_SECONDS = 0.05
BURST = 2000
HELLO = b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n'


def save(file: str | Path, devices: int, events: int, copies: int = 1) -> None:
    """The first messages of a fleet into a file, a chunk at a time; those of ``copies`` fleets side by side.

    The fleets do the same at the same time, and all their ids differ: at 100,000 devices, to make one event costs
    more than to bring it into the tables.
    """
    deliveries = FleetRun(
        FleetConfig(devices=devices // copies, duration_s=1e6, seed=3)
    ).deliveries()
    with pa.ipc.new_file(str(file), SCHEMA) as writer:
        left = events
        while left:
            chunk = islice(deliveries, max(1, min(CHUNK, left) // copies))
            some = [
                copied(one.subject, one.payload, copy) for one in chunk for copy in range(copies)
            ]
            subjects, data = zip(*some[:left], strict=True)
            writer.write_batch(pa.record_batch([subjects, data], schema=SCHEMA))
            left -= len(subjects)


def other_id(one: str, copy: int) -> str:
    """An id for each id: the first digit differs."""
    return f"{int(one[0], 16) ^ copy:x}{one[1:]}"


def copied(subject: str, payload: bytes, copy: int) -> tuple[str, bytes]:
    """An event of the same device in another fleet; copy 0 is the event itself."""
    if not copy:
        return subject, payload
    tokens = subject.split(".")
    if tokens[3] == "registrations":
        wrapper = Registration.FromString(unpack(payload))
        ids = getattr(wrapper, wrapper.WhichOneof("type")).device_ids
        ids[:] = [other_id(one, copy) for one in ids]
        return subject, bytes(snappy.compress_raw(wrapper.SerializeToString()))
    device, other = tokens[4], other_id(tokens[4], copy)
    envelope = Envelope.FromString(payload)
    data = unpack(envelope.data).replace(device.encode(), other.encode())
    envelope.data = bytes(snappy.compress_raw(data))
    envelope.group_id, envelope.aggregate_id = other, other_id(envelope.aggregate_id, copy)
    return subject.replace(device, other), envelope.SerializeToString()


def lines(rows: pa.Table) -> bytes:
    """Messages as the protocol has them."""
    pairs = zip(rows["subject"].to_pylist(), rows["data"].to_pylist(), strict=True)
    return b"".join(b"PUB %b %d\r\n%b\r\n" % (s.encode(), len(d), d) for s, d in pairs)


def bursts(rows: pa.Table, size: int) -> Iterator[pa.Table]:
    """The rows in slices."""
    for start in range(0, len(rows), size):
        yield rows.slice(start, size)


def publish(url: str, file: str, start: int, count: int, rate: int) -> tuple[float, float]:
    """Rows of a file, at a rate a second (0: as fast as it goes); returns seconds, and those of a processor."""
    rows = pa.ipc.open_file(pa.memory_map(file)).read_all().slice(start, count)
    before = time.process_time()
    where = urlsplit(url)
    with (
        socket.create_connection((where.hostname, where.port)) as wire,
        wire.makefile("rb") as told,
    ):
        wire.sendall(HELLO)
        until(told, b"PONG")
        began, sent = time.monotonic(), 0
        for burst in bursts(rows, max(1, int(rate * SLOT_SECONDS)) if rate else BURST):
            early = began + sent / rate - time.monotonic() if rate else 0
            if early > 0:
                time.sleep(early)
            wire.sendall(lines(burst))
            sent += len(burst)
        wire.sendall(b"PING\r\n")
        until(told, b"PONG")
        took = time.monotonic() - began
    return took, time.process_time() - before


def until(told: object, word: bytes) -> None:
    """Read the server's lines up to one that begins with a word."""
    for line in told:
        if line.startswith(b"-ERR"):
            raise SystemExit(f"the server says {line.decode().strip()}")
        if line.startswith(word):
            return
    raise SystemExit("the server has closed the connection")
