"""Disk recovery: making a FAILED log take appends again.

After a failed write or fsync the log does not rely on the contents of the file: the kernel may count pages that it could not write
as clean, so a second fsync of the same file proves nothing. When a probe shows that the disk works, the log rewrites each doubtful
segment (a segment with bytes that are not known to be on the disk):

    read it back (the active segment from memory, as far as possible), compare the checksum of every record
    -> write `<first sequence>.seg.tmp`, fsync -> rename it over the old file -> fsync of the folder

Sealed segments come first, one per call; the active segment comes last, together with its unwritten bytes. Only then does the log
take appends again, and everything accepted counts as synced. Bytes that cannot be read, or differ from what was written, go into
the new file as they were read: their messages are lost and reported in `lost`, and the old file keeps a second name,
`<first sequence>.failed-<n>`.

While a log is FAILED, the file `unsure` in its folder lists the doubtful segments. If the process is killed, the next process reads
it and rewrites those segments before anything else.

A full disk is not a failure: there the log makes room by cutting retired segments (core/log/files).

The owner decides when to try again.
"""
import errno
from contextlib import suppress
from functools import partial

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, out_free
from pelton.core.base.disk cimport Disk
from pelton.core.log.encryption cimport seal_records
from pelton.core.log.disk_condition cimport CLOSED, FAILED, FULL
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport (
    MESSAGE, SEGMENT_HEAD_BYTES, Head, check_record, put_segment_head, resync,
)
from pelton.core.log.segment cimport SIZE_MASK, Segment

cdef enum:
    READ_STEP_BYTES = 65536
    READ_LEAST_BYTES = 4096          # unreadable bytes are given up in pieces of this size
    TRIES_MAX = 5                    # calls of mend() that find bytes unreadable before it gives them up

from pelton.core.log.files import UNSURE


def mend(Log log) -> bool:
    """One step of disk recovery; True when the log takes appends. OSError when the disk still fails."""
    cdef Segment s
    if log.state.condition == CLOSED:
        log.files.refuse()
    if log.state.condition == FULL:
        log.files.refuse()
        return True
    if log.state.condition < FAILED:
        return True
    if log.marks.sync_running:
        return False
    try:
        log.files.do_deferred()
        if not log.state.unsure_told:
            log.files.note_unsure(log.marks.synced_seq if log.marks.known else None)
        probe(log)
        for s in list(log.segments.items):
            if s is not log.files.active and s.synced_size < s.written_size:
                renew(log, s)
                return False
        renew(log, log.files.active)
    except OSError as error:
        log.state.because(error.errno or errno.EIO)
        raise
    resume(log)
    if log.state.begin_anew or log.state.roll_failed:
        log.state.full(0)                # the log continues in a new segment
        log.files.refuse()
    return True


cdef int resume(Log log) except -1:
    # Everything accepted is on the disk now. The next write records again the removals that retired segments would have recorded.
    cdef Segment s
    for s in log.files.retired.items:
        log.files.retired.say_removed(s)
    log.files.unsynced.drop_all()
    log.tail.wrote_all()
    log.marks.rewritten(log.span.last_seq)
    log.files.expect_removals()
    log.state.recovered()
    log.marks.check(log.span.last_seq)
    log.tail.trim()
    try:
        log.disk.unlink(f"{log.folder}/{UNSURE}")
    except OSError:
        log.deferred.put_off(partial(log.disk.unlink, f"{log.folder}/{UNSURE}"))
    with suppress(OSError):
        log.deferred.unlink_stale()
    if log.files.retired.items:
        log.files.unlink_retired()
    return 0


cdef int probe(Log log) except -1:
    # Tries to write and sync a small file: cheaper than a failure with a whole segment.
    cdef str path = f"{log.folder}/probe.tmp"
    cdef int handle = log.disk.open(path, True)
    try:
        log.disk.truncate(handle, 0)
        log.disk.write_at(handle, b"probe", 5, 0)
        log.disk.sync(handle)
    finally:
        log.disk.close(handle)
        with suppress(OSError):
            log.disk.unlink(path)
    return 0


cdef int renew(Log log, Segment s) except -1:
    """Replace the file of a segment by a new file with the same bytes."""
    cdef list holes = [], bad
    cdef bytes data = taken_back(log, s, holes)
    cdef int handle
    if holes:
        if log.state.unreadable() < TRIES_MAX:
            raise OSError(errno.EIO, "a segment can't be read back", log.segments.path(s, ".seg"))
    bad = damage_in(s, data)
    if bad or misplaced(log, s, data):
        keep_old(log, s, data)
        with suppress(OSError):
            log.disk.unlink(log.segments.path(s, ".idx"))
        s.index_lost()
    handle = put_in_place(log, s, data)
    log.files.unsynced.name_made()
    s.wrote_all()
    s.doubt_sync()
    if s is log.files.active:
        log.tail.wrote_all()
    log.pages.forget(s.serial)
    log.files.sync_folder()
    s.synced_all()
    log.files.unsynced.drop(s)
    if bad:
        give_up(log, s, data)
    if s is not log.files.active:
        if s.live and not s.has_index and s.removed_mark <= log.marks.synced_mark:
            log.files.write_index(s)
        log.disk.close_file(s)
    return handle


cdef bytes taken_back(Log log, Segment s, list holes):
    # Reads all bytes of a segment. Unreadable bytes become zeros, and `holes` gets their offsets.
    cdef Out head
    cdef uint64_t from_file = log.tail.base if s is log.files.active else s.size
    cdef bytes data = bytes(s.size)
    cdef char* p = PyBytes_AS_STRING(data)
    cdef uint64_t at = 0, n
    while at < from_file:
        n = min(<uint64_t>READ_STEP_BYTES, from_file - at)
        try:
            log.segments.read_at(s, p + at, n, at)
        except OSError:
            read_pieces(log, s, p, at, at + n, holes)
        at += n
    if s is log.files.active and from_file + log.tail.out.len != s.size:
        raise AssertionError(f"the newest segment has {s.size} bytes, and {log.tail.out.len} behind {from_file}")
    if s is log.files.active and s.aead is None:
        memcpy(p + from_file, log.tail.out.data, log.tail.out.len)
    elif s is log.files.active:
        seal_tail(log, s, p + from_file)
    if s.head is not None:
        memcpy(p, PyBytes_AS_STRING(s.head), min(<size_t>s.begins, <size_t>s.size))
        return data
    memset(&head, 0, sizeof(Out))
    try:
        put_segment_head(&head, s.first, s.salt)
        memcpy(p, head.data, min(<size_t>SEGMENT_HEAD_BYTES, <size_t>s.size))
    finally:
        out_free(&head)
    return data


cdef int seal_tail(Log log, Segment s, char* p) except -1:
    # Encrypting the same bytes again gives the same ciphertext: no nonce is used for other data.
    cdef size_t head = s.begins if log.tail.base == 0 else 0
    cdef Out out
    memset(&out, 0, sizeof(Out))
    try:
        seal_records(s.aead, log.tail.out.data + head, log.tail.out.len - head, s.salt, &out)
        memcpy(p + head, out.data, out.len)
    finally:
        out_free(&out)
    return 0


cdef int read_pieces(Log log, Segment s, char* p, uint64_t at, uint64_t end, list holes) except -1:
    cdef uint64_t n
    while at < end:
        n = min(<uint64_t>READ_LEAST_BYTES, end - at)
        try:
            log.segments.read_at(s, p + at, n, at)
        except OSError:
            memset(p + at, 0, n)
            holes.append(at)
        at += n
    return 0


cdef list damage_in(Segment s, bytes data):
    # Returns (offset, end) of the bytes that are not records.
    cdef const char* p = PyBytes_AS_STRING(data)
    cdef size_t at = s.begins, size = PyBytes_GET_SIZE(data), end
    cdef uint64_t expected = s.first
    cdef uint32_t n
    cdef Head head
    cdef list found = []
    while at < size:
        n = check_record(p + at, size - at, s.salt, &head)
        if n == 0:
            end = resync(p, at, size, s.salt, expected)
            found.append((at, end))
            at = end
            continue
        if head.seq >= expected:
            expected = head.seq + 1
        at += n
    return found


cdef bint misplaced(Log log, Segment s, bytes data) except -1:
    # Whether the index has another record at the place of one in the file: the file shows an older state.
    cdef uint32_t i
    cdef Head head
    log.segments.need(s)
    i = s.next_live(0)
    while i < s.count:
        if s.entries[i].offset + sizeof(Head) > <size_t>PyBytes_GET_SIZE(data):
            return True
        memcpy(&head, PyBytes_AS_STRING(data) + s.entries[i].offset, sizeof(Head))
        if head.seq != s.first + i or head.kind != MESSAGE:
            return True
        i = s.next_live(i + 1)
    return False


cdef int give_up(Log log, Segment s, bytes data) except -1:
    # The messages whose bytes differ from what was written are lost. Removals that were recorded there are recorded again.
    cdef uint32_t i, length
    cdef Head head
    cdef Segment older
    s.mark_damaged(True)
    log.segments.need(s)
    for older in log.segments.items:
        if older.first <= s.first:
            log.files.retired.say_removed(older)
    i = s.next_live(0)
    while i < s.count:
        length = (s.entries[i].size & SIZE_MASK) + s.extra
        if s.entries[i].offset + length > <size_t>PyBytes_GET_SIZE(data) or check_record(
                PyBytes_AS_STRING(data) + s.entries[i].offset, length, s.salt, &head) != length or head.seq != s.first + i:
            log.quarantine(s, i, "the disk failed before the message was written")
        i = s.next_live(i + 1)
    return 0


cdef int keep_old(Log log, Segment s, bytes data) except -1:
    # Gives the old file a second name; on a file system without hard links, writes the bytes that were read into a new file.
    cdef str path = log.segments.path(s, "")
    cdef int n = 1
    while log.disk.exists(f"{path}.failed-{n}"):
        n += 1
    try:
        log.disk.link(f"{path}.seg", f"{path}.failed-{n}")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        log.disk.write_file_atomic(f"{path}.failed-{n}", data, True)
    return 0


cdef int put_in_place(Log log, Segment s, bytes data) except -1:
    # Replaces the file of a segment by a new one with these bytes, synced. The rename is not synced yet.
    cdef int handle = write_beside(log.disk, log.segments.path(s, ".seg"), data)
    try:
        log.disk.rename(log.segments.path(s, ".seg.tmp"), log.segments.path(s, ".seg"))
    except OSError:
        log.disk.close(handle)
        raise
    take_handle(log, s, handle)
    return 0


cdef int write_beside(Disk disk, str path, bytes data) except -1:
    """Write `<path>.tmp` and sync it; return its handle. After an OSError the file is unlinked, if the disk permits it."""
    cdef str temporary = path + ".tmp"
    cdef int handle = disk.open(temporary, True)
    try:
        disk.truncate(handle, 0)
        disk.write_at(handle, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0)
        disk.sync(handle)
    except OSError:
        with suppress(OSError):
            disk.close(handle)
        with suppress(OSError):
            disk.unlink(temporary)
        raise
    return handle


cdef int take_handle(Log log, Segment s, int handle) except -1:
    """Use another file for a segment from now on. Errors from closing the old file are ignored."""
    with suppress(OSError):
        log.disk.close_file(s)
    log.disk.keep_open(s, handle)
    return 0


# --- after a restart -----------------------------------------------------------------------------

def reopened(Log log, named: set) -> None:
    """Rewrite the segments that the file `unsure` has named, after an earlier process ended while its log was FAILED. Empty: all of them.

    What the disk refuses now, mend() does later; until then reads use the files as they are.
    """
    cdef Segment s
    for s in log.segments.items:
        if s.packed is not None or s.size < SEGMENT_HEAD_BYTES or (s.live == 0 and s is not log.files.active):
            continue                         # a compressed file was synced before it got its name; the others have no live message
        if not named or s.first in named or s is log.files.active:
            s.doubt_sync()
    with suppress(OSError):
        log.files.write()
    log.state.suspected()
    log.state.unsure_noted(True)
    with suppress(OSError):
        while not mend(log):
            pass
