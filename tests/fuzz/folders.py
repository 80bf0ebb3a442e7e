"""Folders of a log as bytes and back, and logs to begin with."""

from __future__ import annotations

from pelton.core.base.disk import PyDisk
from pelton.core.broker.router import Router
from pelton.core.log import maintenance, queries
from pelton.core.log.log import Log, StoredMessage
from pelton.core.log.recovery import open_log
from pelton.core.stream.atomic_batch import store_whole
from pelton.core.stream.draft import draft
from pelton.core.stream.stream import Stream
from tests.core.wires import Server
from tests.fuzz.inputs import Input
from tests.fuzz.memory_disk import MemoryDisk

FOLDER = "log"
KINDS = (".seg", ".idx", ".torn-1", ".seg.tmp")
GAP = 1 << 20
"""Sequences that are left out end a segment: so small ones are made."""


def written(files: dict[str, bytes]) -> bytes:
    """The files one after the other: u8 kind, u64 first sequence, u16 length, bytes."""
    out = b""
    for name, data in files.items():
        stem = name.rpartition("/")[2]
        kind = next(k for k, end in enumerate(KINDS) if stem == stem[:20] + end)
        out += bytes([kind]) + int(stem[:20]).to_bytes(8, "little")
        out += len(data).to_bytes(2, "little") + data
    return out


def read(source: Input) -> dict[str, bytes]:
    """The files that the rest of an input holds."""
    files = {}
    while source and len(files) < 12:
        kind, first = KINDS[source.number() % len(KINDS)], source.number(8)
        files[f"{FOLDER}/{first:020d}{kind}"] = source.sized(65535)
    return files


def make(which: int) -> dict[str, bytes]:
    """One of the logs to begin with, closed; its files."""
    target = MemoryDisk()
    log = open_log(FOLDER, PyDisk(target), segment_bytes=4096)
    log.compress = which == 2
    times = 40 if which == 2 else 4
    for part in range(2 if which == 2 else 3):
        for k in range(times):
            body = b"m%d.%d" % (part, k) + b"." * (400 if which == 2 else 9 * k)
            headers = b"NATS/1.0\r\nK: v\r\n\r\n" if k % 2 else b""
            log.add(1000 * part + k, f"s.{k % 3}", body, headers)
        if which != 2:
            log.flush()
            log.skip(log.last_seq + (GAP if part == 0 else 2))
    log.flush()
    if which == 1:
        maintenance.delete(log, 2)
        maintenance.delete(log, GAP + 5, erase=True)
        maintenance.purge(log, 2)
        store_group(log)
    while maintenance.maintain(log):
        pass
    maintenance.close(log)
    return target.copy()


def store_group(log: Log) -> None:
    stream = Stream(Router(Server().reactor), "S", log)
    stream.configure()
    store_whole(stream.path, [draft("s.g", b"one", b""), draft("s.g", b"two", b"")])
    log.flush()


def everything(log: Log) -> dict[int, StoredMessage]:
    """All that a log has, ascending."""
    found: dict[int, StoredMessage] = {}
    message = queries.next_of(log, ">", 1)
    last = 0
    while message is not None:
        assert message.seq > last, (message.seq, last)
        last = message.seq
        found[last] = message
        message = queries.next_of(log, ">", last + 1)
    return found


def sound(log: Log) -> dict[int, StoredMessage]:
    """What a log has, after its answers were held against each other."""
    everything(log)  # damage that is found by reading is counted from then on
    found = everything(log)
    assert len(found) == log.msgs, (len(found), log.msgs)
    assert sum(queries.subjects(log).values()) == log.msgs
    counts: dict[str, int] = {}
    for seq, message in found.items():
        assert log.get(seq) == message
        assert log.size_of(seq) > 0
        counts[message.subject] = counts.get(message.subject, 0) + 1
    assert queries.subjects(log) == counts, (queries.subjects(log), counts)
    for subject in counts:
        seqs = [seq for seq, message in found.items() if message.subject == subject]
        assert queries.subject_state(log, subject) == (len(seqs), seqs[0], seqs[-1])
    assert not found or log.first_seq == next(iter(found))
    assert log.last_seq >= max(found, default=0)
    assert log.bytes == sum(log.size_of(seq) for seq in found)
    assert log.deleted_count() == sum(count for _, count in queries.deleted(log))
    return found
