"""What the opening of a log wished to write, and the disk did not take: it is written later.

Opening needs no room and no disk that works, only one that reads. What can't be written is told by calls:

    owed    comes before the next append or removal is written: an unfinished end that has to be cut, a file for the newest
            segment, names to be synced, what the owner adds (states of consumers that were beyond the end of the log)
    late    can wait: index files, copies of bytes that were cut off

What it removed (by a limit, say) was seen to be gone since: the first write that succeeds is synced before it returns (`unsaid`).

Until nothing is owed the log is FULL, or FAILED when something else than room is missing (core/log/files): reads go on, appends
are refused. Whoever makes it take appends again (an append, write(), mend()) pays first. A segment whose sync failed is made anew
by mend(), like one that failed while the log was open (core/log/disk_recovery).

Knows nothing of when to try again: that is the owner's.
"""
import errno
from contextlib import suppress
from functools import partial

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset
from penstock.core.base.buffer cimport Out, hash_bytes, out_free
from penstock.core.log.disk_condition cimport TAKES
from penstock.core.log.log cimport Log
from penstock.core.log.record cimport SEGMENT_HEAD_BYTES
from penstock.core.log.scan cimport read_all
from penstock.core.log.segment cimport Segment, new_segment

from penstock.core.log.disk_condition import NO_ROOM


def do_late(Log log) -> bool:
    """One piece of what can wait, of a log that takes appends; whether there was one. OSError."""
    if not log.late or log.state.condition != TAKES:
        return False
    call = log.late.pop(0)
    try:
        call()
    except OSError:
        log.late.append(call)                # behind the others
        raise
    return True


# --- files of an opening ---------------------------------------------------------------------------

cdef int sync_names(Log log) except -1:
    # Who began this log may have been stopped before it synced the names of its files, and of the folder.
    log.folder_found()
    try:
        log.sync_folder()
    except OSError as error:
        log.name_made()
        log.owe(error, log.sync_folder)
    return 0


cdef int sync_found(Log log, Segment s) except -1:
    # A killed process leaves written bytes that are not on the disk yet: from here on they are, or are made anew.
    try:
        log.disk.sync(s.handle)
    except OSError as error:
        log.unsynced.append(s)
        log.state.because(error.errno or errno.EIO)
    return 0


cdef int doubt_found(Log log, list doubted) except -1:
    """Of segments whose sync failed, those with something in them that counts are not believed to be on the disk. Others that are not
    synced are those that the opening itself has written to: they are like any.
    """
    cdef Segment s
    cdef bint any_left = False
    log.take_unsynced([s for s in log.unsynced if s not in doubted])
    for s in doubted:
        # A compressed one was on the disk before it had its name; of one without a sound head nothing can be made anew.
        if s not in log.segments.items or s.packed is not None or s.salt == 0 or s.size < SEGMENT_HEAD_BYTES:
            continue
        if s is log.active or s.live:
            s.doubt_sync()
            any_left = True
        if s is not log.active and s.live:
            log.unsynced.append(s)
    if any_left:
        log.state.suspected()
        log.note_unsure()
    return 0


cdef int set_aside(Log log, str name) except -1:
    """A file that is no part of the log gets another name."""
    try:
        move_aside(log, name)
    except OSError as error:
        log.owe(error, partial(move_aside, log, name))
    return 0


def move_aside(Log log, str name) -> None:
    """OSError."""
    cdef int n = 1
    cdef str path = f"{log.folder}/{name}"
    while log.disk.exists(f"{path}.aside-{n}"):
        n += 1
    log.disk.rename(path, f"{path}.aside-{n}")
    log.name_made()
    log.notes.append(f"{path} is no part of the log beside it: it is kept as {name}.aside-{n}")


cdef int start_found(Log log, uint64_t first) except -1:
    """A new segment, in memory alone as long as the disk has no file for it."""
    cdef Segment s
    if not log.owed:                     # else an older file may still have the name
        try:
            return log.start_segment(first)
        except OSError as error:
            refused = error
    s = new_segment(first)
    log.begin_tail(s)
    log.begin_in_memory(s)
    if not log.owed:
        log.owe(refused, None)
    log.owe_first(partial(make_file, log, s))
    return 0


def make_file(Log log, Segment s) -> None:
    """The file of a segment that began in memory. OSError."""
    if s.handle < 0 and s in log.segments.items:
        log.make_file(s)


cdef bytes keep_aside(Log log, Segment s, uint64_t at):
    # Cuts the file at `at`; what was behind it is kept in a file of its own first.
    cdef bytes cut = read_all(log, s)[at:]
    s.set_written(at)
    if cut:
        try:
            cut_off(log, s, at, cut)
        except OSError as error:
            log.owe(error, partial(cut_off, log, s, at, cut))
    s.synced_all()
    return cut


def cut_off(Log log, Segment s, uint64_t at, bytes cut) -> None:
    """OSError. Where only the copy finds no room it comes later: what is cut makes some."""
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
        log.put_off(partial(log.disk.write_file_atomic, name, cut, True))
    log.disk.truncate(log.segments.handle(s), at)
    log.disk.sync(s.handle)
    log.notes.append(f"the last {len(cut)} bytes of {path}.seg were unfinished or damaged: they were cut and are kept as {name}")


cdef int restart(Log log, Segment s) except -1:
    # The process ended while this file was being made: nothing was in it.
    cdef Out out
    cdef bytes head
    keep_aside(log, s, 0)
    s.use_salt(<uint32_t>hash_bytes(<const char*>&s.first, 8))
    memset(&out, 0, sizeof(Out))
    try:
        log.put_head(s, &out)
        head = out.data[:out.len]
    finally:
        out_free(&out)
    s.set_written(s.begins)
    s.doubt_sync()
    if not log.owed:
        try:
            write_head(log, s, head)
            return 0
        except OSError as error:
            log.owe(error, None)
    log.owe_first(partial(write_head, log, s, head))
    return 0


def write_head(Log log, Segment s, bytes head) -> None:
    """OSError."""
    if s in log.segments.items:
        log.disk.write_at(log.segments.handle(s), PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head), 0)


cdef int write_found(Log log, list doubted, str stale) except -1:
    """What was mended is on the disk before anybody builds on it, but for segments that are `doubted`; `stale` goes then: an index
    file, whose log says now what it did.
    """
    doubt_found(log, doubted)
    log.go_stale(stale)
    log.marks.use_sync(True)
    try:
        if log.state.condition == TAKES and log.dirty():
            log.write()                  # segments that are done with go when it is on the disk
            log.sync_files()
        if log.state.condition == TAKES:
            log.drop_stale()
    except OSError as error:
        log.owe(error, None)
    log.marks.use_sync(False)
    return 0
