"""A log is opened over a folder of any bytes, their checksums right or not.

It opens; what it says holds together; what it takes next gets a fresh sequence; opened again, it is the same. An index
with right checksums and wrong contents is believed, and may hide messages: then it must only do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance, queries
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from tests.fuzz import folders, seals
from tests.fuzz.inputs import Input
from tests.fuzz.memory_disk import MemoryDisk

MAX_BYTES = 12_000
WORDS = (
    b"PNSTKSEG",
    b"PNSTKIDX",
    b"PNSTKEND",
    b"\x5e\xa7",
    b"\x01\0\0\0",
    b"\x02\0\0\0",
    b"\xff\xff\xff\xff",
    b"\xff" * 8,
)


def run(data: bytes) -> None:
    """Byte 0: whether checksums are set right, whether it compresses; then the files."""
    source = Input(data)
    flags = source.number()
    files = folders.read(source)
    if flags & 1:
        files = {name: seals.sealed(name, content) for name, content in files.items()}
    disk = MemoryDisk(files)
    log = opened(disk, flags)
    if flags & 1 and any(name.endswith(".idx") for name in files):
        try:
            use(log)
        except AssertionError as error:  # the core's own, of an index that does not fit its segment
            assert "not in the index" in str(error), error
        return
    found = folders.sound(log)
    last = log.last_seq
    if last < 1 << 62:
        assert log.add(7, "s.new", b"new") == last + 1
        log.flush()
        new = log.get(last + 1)
        assert new is not None
        found[last + 1] = new
        last += 1
    while maintenance.maintain(log):
        pass
    assert folders.everything(log) == found
    lost = list(log.lost)
    maintenance.close(log)
    log = opened(disk, flags)
    assert log.last_seq >= last, (log.last_seq, last)
    again = folders.sound(log)
    # Where the index file points to another place, a message counts as lost; the next opening may find it.
    told = [(first, first + count) for first, count, _ in lost]
    other = {
        seq
        for seq in {*again, *found}
        if again.get(seq) != found.get(seq)
        and (seq in found or not any(low <= seq < high for low, high in told))
    }
    assert not other, {seq: (found.get(seq), again.get(seq)) for seq in other}


def use(log: Log) -> None:
    """Everything that reads, and some of what removes."""
    found = folders.everything(log)
    for seq in found:
        log.get(seq)
        log.size_of(seq)
    for subject in ("s.0", "s.1", ">", "*.g"):
        queries.subjects(log, subject)
        queries.count_from(log, log.first_seq, subject)
        queries.last_of(log, subject)
        queries.next_seq(log, subject, log.first_seq)
    queries.last_of_each(log, ["s.*"], log.last_seq, 100)
    log.at_time(1000)
    queries.deleted(log)
    if found:
        maintenance.delete(log, next(iter(found)))
        maintenance.delete(log, max(found), erase=True)
    if log.last_seq < 1 << 62:
        log.add(7, "s.new", b"new")
        log.flush()
    queries.purge_subjects(log, "s.0")
    while maintenance.maintain(log):
        pass
    folders.everything(log)
    maintenance.purge(log)
    maintenance.close(log)


def opened(disk: MemoryDisk, flags: int) -> Log:
    log = open_log(folders.FOLDER, PyDisk(disk), segment_bytes=4096)
    log.compress = bool(flags & 2)
    return log


def seeds() -> Iterable[bytes]:
    for which in range(3):
        files = folders.make(which)
        for flags in range(4):
            yield bytes([flags]) + folders.written(files)
        for name in files:
            if name.endswith(".seg"):
                yield b"\1" + folders.written({name: files[name]})
                pair = {name: files[name], name[:-3] + "idx": files.get(name[:-3] + "idx", b"")}
                yield b"\1" + folders.written(pair)
