"""What the opening of a log writes. A write that the disk refuses is deferred.

A log opens even when its disk is full or refuses writes; it only has to be readable. The log keeps each refused write as a callable in
its DeferredWrites (core/log/deferred_writes): some are done before the next append, others can wait.

While there are writes of the first kind the log is FULL, or FAILED after another error than missing room (core/log/files): reads go on, and
appends fail. An append, write() or mend() does these writes first. mend() rewrites a segment whose sync failed, as it does for a segment
that failed while the log was open (core/log/disk_recovery).

The owner decides when to try again.
"""
import errno
from contextlib import suppress
from functools import partial

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset
from pelton.core.base.buffer cimport Out, hash_bytes, out_free
from pelton.core.log.disk_condition cimport TAKES
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport SEGMENT_HEAD_BYTES, put_segment_head
from pelton.core.log.scan cimport read_all
from pelton.core.log.segment cimport Segment, new_segment
from pelton.core.log.segment_head cimport put_head

from pelton.core.log.disk_condition import NO_ROOM


def do_late(Log log) -> bool:
    """Do one deferred write that can wait, if the log takes appends; whether there was one. OSError when the disk refuses."""
    return log.state.condition == TAKES and log.deferred.do_late()


# --- files that an opening changes -----------------------------------------------------------------

cdef int sync_names(Log log) except -1:
    # The process that made this log may have ended before it synced the names of the files and of the folder.
    log.files.unsynced.folder_found()
    try:
        log.files.sync_folder()
    except OSError as error:
        log.files.unsynced.name_made()
        log.defer(error, log.files.sync_folder)
    return 0


cdef int sync_found(Log log, Segment s) except -1:
    # A killed process leaves written bytes that are not synced: syncs them. A segment whose sync fails goes into `unsynced`.
    try:
        log.disk.sync(log.segments.handle(s))
    except OSError as error:
        log.files.unsynced.add(s)
        log.state.because(error.errno or errno.EIO)
    return 0


cdef int doubt_found(Log log, list doubted, object synced_seq) except -1:
    """Mark the segments whose sync failed as doubtful, if they are active or have live messages.

    The other segments in `unsynced` are those that the opening has written to; they need no special treatment.
    """
    cdef Segment s
    cdef bint any_left = False
    for s in doubted:
        log.files.unsynced.drop(s)
    for s in doubted:
        # A compressed file was synced before it got its name. A segment without a sound head cannot be rewritten.
        if s not in log.segments.items or s.packed is not None or s.salt == 0 or s.size < SEGMENT_HEAD_BYTES:
            continue
        if s is log.files.active or s.live:
            s.doubt_sync()
            any_left = True
        if s is not log.files.active and s.live:
            log.files.unsynced.add(s)
    if any_left:
        log.state.suspected()
        log.files.note_unsure(synced_seq)
    return 0


cdef int set_aside(Log log, str name) except -1:
    """Rename a file that is not part of the log."""
    try:
        move_aside(log, name)
    except OSError as error:
        log.defer(error, partial(move_aside, log, name))
    return 0


def move_aside(Log log, str name) -> None:
    """Rename a file to `<name>.aside-<n>`. OSError."""
    cdef int n = 1
    cdef str path = f"{log.folder}/{name}"
    while log.disk.exists(f"{path}.aside-{n}"):
        n += 1
    log.disk.rename(path, f"{path}.aside-{n}")
    log.files.unsynced.name_made()
    log.notes.append(f"{path} does not belong to this log; the file is kept as {name}.aside-{n}")


cdef int start_found(Log log, uint64_t first) except -1:
    """Begin a new segment; it stays in memory until the disk has a file for it."""
    cdef Segment s
    if not log.deferred.first:                     # with deferred writes, an older file may still have the name
        try:
            return log.files.start_segment(first)
        except OSError as error:
            refused = error
    s = new_segment(first)
    log.files.begin_tail(s)
    log.files.begin_in_memory(s)
    if not log.deferred.first:
        log.defer(refused, None)
    log.deferred.add_first(partial(make_file, log, s))
    return 0


def make_file(Log log, Segment s) -> None:
    """Make the file of a segment that began in memory. OSError."""
    if s.handle < 0 and s in log.segments.items:
        log.files.make_file(s)


cdef bytes keep_aside(Log log, Segment s, uint64_t at):
    # Cuts the file at `at`, after the bytes behind `at` were copied to a file of their own.
    cdef bytes cut = read_all(log, s)[at:]
    s.set_written(at)
    if cut:
        try:
            cut_off(log, s, at, cut)
        except OSError as error:
            log.defer(error, partial(cut_off, log, s, at, cut))
    s.synced_all()
    return cut


def cut_off(Log log, Segment s, uint64_t at, bytes cut) -> None:
    """Copy the bytes that are cut, then cut the file. OSError.

    When there is no room for the copy, this cuts the file, which makes room, and defers the copy.
    """
    cdef str path = log.segments.path(s, "")
    cdef int n = 1
    if s not in log.segments.items:
        return
    while log.disk.exists(f"{path}.torn-{n}"):
        n += 1
    name = f"{path}.torn-{n}"
    try:
        log.disk.write_file_atomic(name, cut, True)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        with suppress(OSError):
            log.disk.unlink(f"{name}.tmp")
        log.deferred.put_off(partial(log.disk.write_file_atomic, name, cut, True))
    log.disk.truncate(log.segments.handle(s), at)
    log.disk.sync(log.segments.handle(s))
    log.notes.append(f"cut off the last {len(cut)} bytes of {path}.seg, which were unfinished or damaged; they are kept as {name}")


cdef int restart(Log log, Segment s) except -1:
    # An earlier process ended while it made this file: the file has no records.
    cdef Out out
    cdef bytes head
    keep_aside(log, s, 0)
    s.use_salt(<uint32_t>hash_bytes(<const char*>&s.first, 8))
    memset(&out, 0, sizeof(Out))
    try:
        put_head(log.cipher, s, &out)
        head = out.data[:out.len]
    finally:
        out_free(&out)
    s.set_written(s.begins)
    s.doubt_sync()
    if not log.deferred.first:
        try:
            write_head(log, s, head)
            return 0
        except OSError as error:
            log.defer(error, None)
    log.deferred.add_first(partial(write_head, log, s, head))
    return 0


def write_head(Log log, Segment s, bytes head) -> None:
    """Write the head of a segment. OSError."""
    if s in log.segments.items:
        log.disk.write_at(log.segments.handle(s), PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), 0)


cdef int complete_head(Log log, Segment s, const char* head) except -1:
    # The records of the segment agree on its head now. With one more of them damaged they may not, so the head goes to the disk. Bytes
    # that are not zero must be those of the head: others are damage, and damage stays in the file.
    cdef Out out
    cdef bytes whole
    cdef int i
    memset(&out, 0, sizeof(Out))
    try:
        put_segment_head(&out, s.first, s.salt)
        whole = out.data[:out.len]
    finally:
        out_free(&out)
    for i in range(SEGMENT_HEAD_BYTES):
        if head[i] and head[i] != PyBytes_AS_STRING(whole)[i]:
            return 0
    try:
        finish_head(log, s, whole)
    except OSError:
        log.deferred.put_off(partial(finish_head, log, s, whole))
    return 0


def finish_head(Log log, Segment s, bytes head) -> None:
    """Write the missing bytes of the head of a segment that takes no appends, and sync them. OSError."""
    if s in log.segments.items:
        write_head(log, s, head)
        log.disk.sync(log.segments.handle(s))
        log.notes.append(f"completed the head of segment {s.first}, of which only a part had reached the disk")


cdef int write_found(Log log, list doubted, object synced_seq, str stale) except -1:
    """Write and sync what recovery repaired, except for segments in `doubted` (their sync failed). Then unlink `stale`: an index file
    whose removals the log records now.
    """
    doubt_found(log, doubted, synced_seq)
    log.deferred.unlink_later(stale)
    log.marks.use_sync(True)
    try:
        if log.state.condition == TAKES and log.files.dirty():
            log.files.write()                  # retired segments are unlinked when this is synced
            log.files.sync_files()
        if log.state.condition == TAKES:
            log.deferred.unlink_stale()
    except OSError as error:
        log.defer(error, None)
    log.marks.use_sync(False)
    return 0
