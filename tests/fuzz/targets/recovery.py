"""A sound log is damaged: no message comes back altered, and what is missing is told.

The damage is a list of edits to its files; checksums stay as they are, so that all of it must be noticed. What must hold:

    always       no message comes back altered; one that stands where it stood in a file whose head is sound is there, or told;
                 no sequence of a record that stands where it stood is given again
    one edit     besides: all that is missing is told, but for newest messages whose heads are damaged in a row, and the
                 last sequence is not given again, as long as the edit did not take the end of a file away
    several      besides: what is missing and not told are the newest ones, or of a group that may never have been whole.
                 Together they may take every trace: of a record that is damaged itself, behind or within others that are,
                 nothing need be left to know it by
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance
from pelton.core.log.log import Log, StoredMessage
from pelton.core.log.recovery import open_log
from tests.fuzz import folders
from tests.fuzz.inputs import Input
from tests.fuzz.memory_disk import MemoryDisk

MAX_BYTES = 200
LOGS = 3
HEAD = 32
MESSAGE, PACKED, MEMBER = 1, 2, 64


class Record(NamedTuple):
    """Of a message that was not removed, or was."""

    path: str
    start: int
    end: int
    seq: int
    group: int  # the first sequence of those that count together


@cache
def log_of(which: int) -> tuple[dict[str, bytes], dict[int, StoredMessage], int, list[Record]]:
    """(files, messages, last sequence, records of messages)."""
    files = folders.make(which)
    log = open_log(folders.FOLDER, PyDisk(MemoryDisk(files)), segment_bytes=4096)
    whole = folders.sound(log)
    return files, whole, log.last_seq, [r for path in files for r in records(files, path, whole)]


def records(files: dict[str, bytes], path: str, whole: dict[int, StoredMessage]) -> list[Record]:
    """Of one file; in a compressed one each is all of it."""
    found: list[Record] = []
    if not path.endswith(".seg"):
        return found
    data, first = files[path], int(path[-24:-4])
    if data[8] == PACKED:
        following = [int(p[-24:-4]) for p in files if p.endswith(".seg") and p > path]
        end = min(following, default=max(whole, default=0) + 1)
        return [Record(path, 0, len(data), seq, seq) for seq in whole if first <= seq < end]
    at = HEAD
    while at < len(data):
        end = at + int.from_bytes(data[at : at + 4], "little")
        if data[at + 4] == MESSAGE:
            seq = int.from_bytes(data[at + 16 : at + 24], "little")
            found.append(
                Record(path, at, end, seq, found[-1].group if data[at + 5] & MEMBER else seq)
            )
        at = end
    return found


def stands(record: Record, now: bytearray, before: bytes) -> bool:
    if record.start == 0:
        return now == before
    return now[record.start : record.end] == before[record.start : record.end]


class Standing(NamedTuple):
    """What the edits have left as it was."""

    last: int  # the highest sequence of a record
    readable: set[int]  # messages in a file whose head is as it was
    torn: set[int]  # messages of groups of which a record is not


def standing(disk: MemoryDisk, which: int) -> Standing:
    files, whole, _, known = log_of(which)
    left = [r for r in known if stands(r, disk.files[r.path], files[r.path])]
    broken = {r.group for r in set(known) - set(left)}
    sound = {p for p in disk.files if p in files and disk.files[p][:HEAD] == files[p][:HEAD]}
    readable = {r.seq for r in left if r.path in sound and r.group not in broken} & set(whole)
    groups = {r.group for r in known if r.group != r.seq} & broken
    torn = {r.seq for r in known if r.group in groups}
    return Standing(max((r.seq for r in left), default=0), readable, torn)


def run(data: bytes) -> None:
    """Byte 0: which log, whether it has index files; then edits of 6 bytes and what they write."""
    source = Input(data)
    kind = source.number()
    files, whole, last, _ = log_of(kind % LOGS)
    disk = MemoryDisk({n: d for n, d in files.items() if not kind & 32 or not n.endswith(".idx")})
    removed = False
    edits = 0
    while source:
        removed |= edit(disk, source)
        edits += 1
    left = standing(disk, kind % LOGS)
    log = open_log(folders.FOLDER, PyDisk(disk), segment_bytes=4096)
    found = folders.sound(log)
    for seq, message in found.items():
        if seq in whole:
            assert message == whole[seq], (message, whole[seq])
        else:
            assert seq <= last  # its removal was damaged
            assert message.subject.startswith("s.")
    told = told_by(log)
    assert left.readable <= {*found, *told}, (left.readable - {*found}, log.lost)
    assert log.last_seq >= left.last, (log.last_seq, left.last)
    if not removed:
        # What ends a file that was cut is an end that did not reach the disk. Of newest messages whose heads are damaged in
        # a row nothing says how many they were: one is told, and none of their sequences is given again.
        missing = set(whole) - set(found)
        untold = missing - told - (left.torn if edits > 1 else set())
        newest = set(sorted(whole)[-len(untold) :]) if len(missing) > 1 or edits > 1 else set()
        assert untold <= newest, (sorted(missing), log.lost)
        assert edits > 1 or log.last_seq >= last or last in told, (log.last_seq, last)
    following = log.last_seq + 1
    assert log.add(5, "s.0", b"after") == following
    before = told_by(log)
    maintenance.close(log)
    log = open_log(folders.FOLDER, PyDisk(disk), segment_bytes=4096)
    messages = folders.sound(log)
    again = set(messages)
    told = told_by(log)
    assert left.readable <= {*again, *told}, (left.readable - again, log.lost)
    # What lay elsewhere than an index file of the right size said was told as lost; the segment is read now, and it is there.
    back = again - {*found, following}
    assert back <= (before & set(whole) if edits > 1 else set()), back
    assert all(messages[seq] == whole[seq] for seq in back)
    assert {
        *found,
        following,
    } - again <= told  # the rest of a group, one of whose messages is damaged


def told_by(log: Log) -> set[int]:
    return {first + k for first, count, _ in log.lost for k in range(min(count, 4096))}


def edit(disk: MemoryDisk, source: Input) -> bool:
    """One edit; whether it took bytes or a file away, or put some at the end."""
    names = sorted(disk.files)
    if not names:
        return True
    content = disk.files[names[source.number() % len(names)]]
    verb = source.number() % 8
    at = source.number(2) % (len(content) + 1)
    if verb < 3:  # other bytes
        piece = source.sized(8)[: len(content) - at]
        content[at : at + len(piece)] = piece
        return at + len(piece) >= len(content)
    if verb == 3 and at < len(content):  # a bit
        content[at] ^= 1 << source.number() % 8
        return False
    if verb == 4:  # cut
        del content[at:]
    elif verb == 5:  # zeros
        count = source.number()
        content[at : at + count] = bytes(min(count, len(content) - at))
        return at + count >= len(content)
    elif verb == 6:  # a piece of itself at its end
        content += content[at : at + source.number(2)]
    else:  # a piece left out
        del content[at : at + source.number()]
    return True


def seeds() -> Iterable[bytes]:
    for kind in range(LOGS):
        for no_index in (0, 32):
            for verb in range(8):
                yield bytes([kind | no_index, 1, verb, 90 + verb, 0, 3, 9, 9, 9, 0, 3, 200, 0, 5])
