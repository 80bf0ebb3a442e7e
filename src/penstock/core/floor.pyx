"""How far a log's sequences have gone, for the case that the end of its newest segment gets lost.

The newest segment is appended to, and has no index file while the log is open, or an old one, of the last time it was closed. Now and
then the highest sequence that an fsync has covered is written there: into the field `last_seq` of the head of the old one, else into
a new one without an entry, of a segment of 0 bytes (core/sidecar draws both). No opening takes that for an index: it is evidence. A
segment that ends before this sequence has lost its end; what is missing is told, and no sequence up to there is given again.

It may be old, or be lost with the power, and is never synced: what it says was true when it was written and stays so.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy
from penstock.core.buffer cimport crc32c
from penstock.core.log cimport Log
from penstock.core.log_files cimport TAKES
from penstock.core.segment cimport Segment
from penstock.core.sidecar cimport INDEX_HEAD_BYTES, is_index_head, write_floor

cdef enum:
    SALT_AT = 12
    FIRST_AT = 16
    LAST_SEQ_AT = 48
    CHECK_AT = 108


def say_floor(Log log) -> bool:
    """Write down the newest sequence that is on the disk; see the stub."""
    cdef Segment s = log.active
    if log.memory or log.synced_seq <= log.floor or log.condition != TAKES or log.synced_seq < s.first or log.stale is not None:
        return False
    try:
        if not of_segment(log.floor_head, s):
            log.floor_head = old_head(log, s) if log.index_kept else None
            log.index_kept = False
        if log.floor_head is None:
            log.floor_head = write_floor(log.segments, s, log.synced_seq)
        else:
            change(log, s)
    except OSError:
        log.floor_head = None
        return False
    log.floor = log.synced_seq
    return True


cdef bint of_segment(bytes head, Segment s) noexcept:
    cdef uint64_t first
    cdef uint32_t salt
    if head is None:
        return False
    memcpy(&salt, PyBytes_AS_STRING(head) + SALT_AT, 4)
    memcpy(&first, PyBytes_AS_STRING(head) + FIRST_AT, 8)
    return salt == s.salt and first == s.first


cdef bytes old_head(Log log, Segment s):
    """That of the index file which the opening has believed; None: it is not to be changed. OSError."""
    cdef bytes head = PyBytes_FromStringAndSize(NULL, INDEX_HEAD_BYTES)
    cdef int handle
    if s.key_number:
        return None                          # what it says is bound to its head (core/sealing)
    handle = log.disk.open(log.segments.path(s, ".idx"), False)
    try:
        if log.disk.read_at(handle, PyBytes_AS_STRING(head), INDEX_HEAD_BYTES, 0) != INDEX_HEAD_BYTES:
            return None
    finally:
        log.disk.close(handle)
    return head if is_index_head(PyBytes_AS_STRING(head)) and of_segment(head, s) else None


cdef int change(Log log, Segment s) except -1:
    """OSError."""
    cdef char* p = PyBytes_AS_STRING(log.floor_head)
    cdef uint64_t last_seq = log.synced_seq
    cdef uint32_t crc
    cdef int handle
    memcpy(p + LAST_SEQ_AT, &last_seq, 8)
    crc = crc32c(p, CHECK_AT, 0)
    memcpy(p + CHECK_AT, &crc, 4)
    handle = log.disk.open(log.segments.path(s, ".idx"), False)
    try:
        log.disk.write_at(handle, p, INDEX_HEAD_BYTES, 0)
    finally:
        log.disk.close(handle)
    return 0
