"""A sound log is damaged: no message comes back altered, and what is missing is told.

The damage is a list of edits to its files; checksums stay as they are, so that all of it must be noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from penstock.core.disk import PyDisk
from penstock.core.log import Log, StoredMessage
from tests.fuzz import folders
from tests.fuzz.inputs import Input
from tests.fuzz.memory_disk import MemoryDisk

MAX_BYTES = 200
LOGS = 3


@cache
def log_of(which: int) -> tuple[dict[str, bytes], dict[int, StoredMessage], int]:
    """(files, messages, last sequence)."""
    files = folders.make(which)
    log = Log(folders.FOLDER, PyDisk(MemoryDisk(files)), segment_bytes=4096)
    return files, folders.sound(log), log.last_seq


def run(data: bytes) -> None:
    """Byte 0: which log, whether it has index files; then edits of 6 bytes and what they write."""
    source = Input(data)
    kind = source.number()
    files, whole, last = log_of(kind % LOGS)
    disk = MemoryDisk({n: d for n, d in files.items() if not kind & 32 or not n.endswith(".idx")})
    removed = False
    edits = 0
    while source:
        removed |= edit(disk, source)
        edits += 1
    log = Log(folders.FOLDER, PyDisk(disk), segment_bytes=4096)
    found = folders.sound(log)
    for seq, message in found.items():
        if seq in whole:
            assert message == whole[seq], (message, whole[seq])
        else:
            assert seq <= last  # its removal was damaged
            assert message.subject.startswith("s.")
    told = {first + k for first, count, _ in log.lost for k in range(min(count, 4096))}
    if not removed:
        # What ends a file that was cut is an end that did not reach the disk. Of newest messages whose heads are damaged in
        # a row nothing says how many they were: one is told, and none of their sequences is given again.
        missing = set(whole) - set(found)
        untold = missing - told
        newest = set(sorted(whole)[-len(untold) :]) if len(missing) > 1 or edits > 1 else set()
        assert untold <= newest, (sorted(missing), log.lost)
        assert log.last_seq >= last or last in told, (log.last_seq, last)
    following = log.last_seq + 1
    assert log.add(5, "s.0", b"after") == following
    log.close()
    log = Log(folders.FOLDER, PyDisk(disk), segment_bytes=4096)
    again = set(folders.sound(log))
    told = {first + k for first, count, _ in log.lost for k in range(min(count, 4096))}
    assert again <= {*found, following}
    assert {
        *found,
        following,
    } - again <= told  # the rest of a group, one of whose messages is damaged


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
