"""The files of a log.

Appends go to the tail: a buffer with the newest bytes of the active segment, the unwritten bytes at its end. One write() per turn
puts them into the file, together with one REMOVE record for all removals of the turn. A segment without live messages is retired.
The REMOVE records of a retired segment may name sequences of older segments: the log records these removals again in the active
segment, and unlinks the file when that write is done (and synced, if the owner syncs).

When the disk is full, the log loses no accepted message and acknowledges none: write() raises OSError(ENOSPC), the bytes stay
in the tail, and appends fail with the same error. The first write() that succeeds ends this condition; each append tries one. A write
that has used the reserve of the disk (core/base/disk) succeeds, and appends fail until the reserve is whole again.

The same happens when a new segment cannot be made (no handle, no inode). After any other failure of a write, and after every failure
of a sync, appends raise LogClosed until mend() (core/log/disk_recovery) has made new files of the bytes that may not be on the disk;
reads and removals in memory go on.
"""
import os
from errno import EAGAIN, EIO, ENOSPC
from functools import partial

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from pelton.core.base.buffer cimport hash_bytes, out_put
from pelton.core.base.disk cimport Disk
from pelton.core.log.disk_condition cimport CLOSED, FAILED, FULL, HOLDS, DiskCondition
from pelton.core.log.index_file cimport write_index_file
from pelton.core.log.deferred_writes cimport DeferredWrites
from pelton.core.log.read_windows cimport Pages
from pelton.core.log.record cimport put_ranges, ranges_add, ranges_sort
from pelton.core.log.removals cimport Removals
from pelton.core.log.retired_segments cimport RetiredSegments
from pelton.core.log.segment cimport Segment, new_segment
from pelton.core.log.segment_head cimport put_head
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.span cimport Span
from pelton.core.log.subject_table cimport SubjectTable
from pelton.core.log.tail cimport Tail
from pelton.core.log.unsynced_files cimport UnsyncedFiles
from pelton.core.log.watermarks cimport Watermarks

from pelton.core.log.disk_condition import NO_ROOM, LogClosed

UNSURE = "unsure"
"""Name of the file that a FAILED log leaves for the next process: the first sequences of its doubtful segments, one a line, then `synced <seq>`
if it is known that all records up to a sequence are on the disk."""


cdef class LogFiles:
    """How accepted bytes get to the disk: the active segment, the tail, and the writes and syncs."""

    def __init__(self, Disk disk, str folder, object cipher, Span span, SegmentList segments, SubjectTable subjects_table, Pages pages) -> None:
        self.memory = folder is None
        self.disk = disk
        self.folder = folder
        self.cipher = cipher
        self.span = span
        self.segments = segments
        self.subjects_table = subjects_table
        self.pages = pages
        self.tail, self.marks, self.state, self.removals = Tail(), Watermarks(), DiskCondition(), Removals()
        self.unsynced = UnsyncedFiles(disk, folder, segments)
        self.retired = RetiredSegments(disk, folder, cipher, segments, self.removals, self.marks, self.unsynced)
        self.deferred = DeferredWrites(disk)

    cdef int refuse(self) except -1:
        if self.state.condition == HOLDS:
            return 0
        if self.state.condition <= FULL and self.disk.spent:
            self.write()
            raise OSError(ENOSPC, os.strerror(ENOSPC), self.folder)
        if self.state.condition == FULL:
            self.do_deferred()
            if self.state.begin_anew:
                self.resume()
            self.write()
            if self.state.roll_failed:
                self.roll(self.span.last_seq + 1)
            return 0
        if self.state.condition == FAILED:
            raise LogClosed(self.state.failure, os.strerror(self.state.failure), self.folder)
        raise LogClosed(9, "the log is closed", self.folder)

    cdef int start_segment(self, uint64_t first) except -1:
        cdef Segment s = new_segment(first)
        if self.memory:
            s.resize(1)                      # offset 0 means that nothing is stored
            out_put(&s.memory, "\0", 1)
        else:
            self.make_file(s)
            self.begin_tail(s)
        self.segments.add(s)
        self.active = s
        return 0

    cdef int make_file(self, Segment s) except -1:
        self.disk.keep_open(s, self.disk.open(self.segments.path(s, ".seg"), True))
        self.unsynced.made(s)
        return 0

    cdef int begin_tail(self, Segment s) except -1:
        s.use_salt(<uint32_t>hash_bytes(<const char*>&s.first, 8) ^ <uint32_t>(self.span.last_ts_ns >> 7))
        self.tail.begin(0)
        put_head(self.cipher, s, &self.tail.out)
        s.resize(s.begins)
        return 0

    cdef int resume(self) except -1:
        # A message that was written before this opening, and that no client has seen, may have had the next sequence as its nonce.
        # So the next messages go to a file with another key. A segment without messages gets a new file with the same records.
        cdef Segment s = self.active
        if s.count or s.first != self.span.last_seq + 1:
            self.state.want_new_segment(False)
            self.state.take()
            try:
                self.roll(self.span.last_seq + 1)
            except OSError:
                self.state.want_new_segment(self.active is s)
                raise
            return 0
        self.state.want_new_segment(True)
        self.write()
        self.make_anew(s)
        self.state.want_new_segment(False)
        self.state.take()
        return 0

    cdef int make_anew(self, Segment s) except -1:
        # Replaces the file of the newest segment of an encrypted log by one with another key. The segment has no message, and all
        # its bytes are written. After an OSError nothing has changed.
        cdef bytes records = PyBytes_FromStringAndSize(NULL, s.size - s.begins)
        cdef uint64_t begins = s.begins, extra = s.extra, number = s.key_number
        cdef object aead = s.aead, head = s.head
        if self.marks.sync_running:                     # the sync uses the handle, which this would close
            raise OSError(self.state.failure or EAGAIN, "the newest segment is being synced", self.segments.path(s, ".seg"))
        if self.disk.read_at(self.segments.handle(s), PyBytes_AS_STRING(records), s.size - begins, begins) != <int64_t>(s.size - begins):
            raise OSError(EIO, "a segment is shorter than it was", self.segments.path(s, ".seg"))
        self.tail.begin(s.size)
        put_head(self.cipher, s, &self.tail.out)
        records = PyBytes_FromStringAndSize(self.tail.out.data, self.tail.out.len) + records
        self.tail.begin(s.size)
        try:
            self.disk.write_file_atomic(self.segments.path(s, ".seg"), records, PyBytes_GET_SIZE(records) > <Py_ssize_t>s.begins)
        except OSError:
            s.use_form(begins, extra)
            s.use_key(number, aead)
            s.use_head(head)
            raise
        s.set_written(PyBytes_GET_SIZE(records))
        s.doubt_sync()
        self.tail.begin(s.size)
        self.unsynced.made(s)
        self.disk.close_file(s)
        self.segments.handle(s)
        return 0

    cdef int roll(self, uint64_t next_seq) except -1:
        cdef Segment old = self.active
        if self.state.condition == HOLDS or (old.count == 0 and old.first == next_seq):
            return 0                         # the new segment would have the name of the empty one
        if not self.memory:
            self.write()
            old = self.active
        self.begin_segment(next_seq)
        old.seal(True)
        old.trim()
        if old.synced_size < old.written_size:
            self.unsynced.add(old)
        if old.live == 0 and not old.damaged:
            return self.retire(old)          # a damaged segment stays: its bytes are all that is left of lost messages
        if not self.memory:
            self.segments.count_entries(old)
            if old.synced_size == old.written_size:
                self.write_index(old)
            self.segments.make_room(None)
        return 0

    cdef int begin_segment(self, uint64_t first) except -1:
        # No accepted message depends on the new segment: a failure counts as a full disk.
        try:
            self.start_segment(first)
        except OSError as error:
            self.state.full(error.errno or EIO)
            self.state.roll_ended(True)
            raise
        self.state.roll_ended(False)
        return 0

    cdef int retire(self, Segment s) except -1:
        self.retired.add(s)
        self.subjects_table.leave(s)
        self.pages.forget(s.serial)
        return 0

    cdef int unlink_retired(self) except -1:
        # Oldest first: a segment goes before the segments whose records name its sequences.
        return self.sync_files() if self.retired.overdue() else self.retired.unlink()

    cdef bint make_room(self) except -1:
        return self.retired.make_room(self.active, self.span.first_seq, self.tail.unwritten())

    # --- per turn --------------------------------------------------------------------------------

    cdef bint dirty(self) noexcept:
        cdef bint head = self.tail.base + self.tail.out.len == self.active.begins
        if self.memory or (head and self.deferred.first and not self.removals.ranges.count):
            # the head of a file that is not made yet waits for the first record
            return self.marks.written_seq != self.span.last_seq
        return self.tail.out.len > self.tail.written or self.removals.ranges.count > 0 or self.marks.written_seq != self.span.last_seq

    cdef int write(self) except -1:
        if self.state.condition == HOLDS:
            return 0
        if self.memory:
            self.marks.start(self.span.last_seq)
            return 0
        if self.state.condition >= FAILED:
            if self.dirty():
                self.refuse()
            return 0
        if self.removals.ranges.count and self.removals.guard is not None:
            self.heed_guard()
        if self.retired.items:
            self.retired.prepare(self.active, self.span.first_seq)
        if self.removals.ranges.count:
            self.put_removals()
        self.write_tail()
        if self.deferred.need_sync():
            self.sync_files()
            self.deferred.written()
        if self.disk.spent:
            self.state.full(ENOSPC)
        else:
            self.state.take()
        self.marks.written(self.span.last_seq)
        self.marks.check(self.span.last_seq)
        self.tail.trim()
        if self.retired.items:
            self.unlink_retired()
        return 0

    cdef int write_tail(self) except -1:
        cdef Segment s = self.active
        cdef size_t n = self.tail.unwritten()
        cdef int handle
        if self.deferred.first:
            self.do_deferred()
        if n:
            handle = self.opened(s)
            try:
                self.disk.write_at(handle, self.tail.unwritten_bytes(s), n, self.tail.base + self.tail.written)
            except OSError as error:
                self.write_failed(error)
            self.tail.wrote_all()
            s.wrote_all()
            self.marks.bytes_written()
        return 0

    cdef int opened(self, Segment s) except -1:
        # The handle of the newest segment. While the process has none to spare, the log is FULL: nothing was written.
        try:
            return self.segments.handle(s)
        except OSError as error:
            if error.errno not in NO_ROOM:
                self.fail(error)
            self.state.full(error.errno)
            raise

    cdef int do_deferred(self) except -1:
        # OSError when there is no room, LogClosed after another failure; the remaining writes stay deferred.
        try:
            self.deferred.do_first()
        except OSError as error:
            if self.state.condition >= FAILED:
                raise
            if error.errno not in NO_ROOM:
                self.fail(error)
            self.state.full(error.errno)
            if not self.make_room():
                raise
            self.do_deferred()
        return 0

    def defer(self, error: OSError, call: object) -> None:
        """The disk refused a write with `error`: `call` repeats it before the next append (None: the next write repeats it)."""
        self.deferred.refused(call)
        self.state.refused(error.errno or EIO)

    cdef int heed_guard(self) except -1:
        # The guard needs the newest messages at recovery. Before the log writes the removal of such a message, it writes the
        # messages, and the guard saves what they say. The guard is the engine's (sources), so this is a call from the log up to
        # its owner. It can't be left to the caller of write(): many writes are made in the middle of other work (a full tail, a new
        # segment, a disk that is mended), and none of them may put the removal into the file before the guard has saved.
        cdef uint64_t top = self.removals.highest()
        if top > self.removals.guard_above and self.removals.guard.holds(top):
            self.write_tail()
            self.expect_removals()
            self.marks.written(self.span.last_seq)
            if self.marks.sync_used:
                self.sync_files()
            try:
                self.removals.guard.save()
            except OSError as error:
                if error.errno in NO_ROOM:
                    self.state.full(error.errno)
                raise
        return 0

    cdef int expect_removals(self) except -1:
        # Otherwise index files would have these removals as soon as the last write is synced.
        cdef Segment s
        for s in self.segments.items:
            if self.removals.ranges.count and s.removed_mark == self.marks.write_mark:
                s.removed_later()
        return 0

    cdef int put_removals(self) except -1:
        # Puts all removals since the last write into one record (more for very many ranges). Each segment whose sequences it names
        # remembers the segment of the record, so that the removals survive the end of that segment.
        cdef Segment s, active = self.active
        cdef size_t k, before = self.tail.out.len
        cdef Py_ssize_t at
        ranges_sort(&self.removals.ranges)
        active.raise_removed_below(self.removed_below())
        put_ranges(&self.tail.out, self.removals.ranges.items, self.removals.ranges.count, self.span.last_seq, active.removed_below, active.salt)
        active.grow(self.tail.out.len - before)
        for k in range(self.removals.ranges.count):
            ranges_add(&active.removes, self.removals.ranges.items[k].first, self.removals.ranges.items[k].count)
            at = self.segments.position(self.removals.ranges.items[k].first)
            if at:
                s = <Segment>self.segments.items[at - 1]
                if s.first + s.count <= self.removals.ranges.items[k].first and s is not active:
                    s.told_by(active.first)              # the range lies in the gap behind s
            while at < len(self.segments.items):
                s = <Segment>self.segments.items[at]
                at += 1
                if s is active or s.first >= self.removals.ranges.items[k].first + self.removals.ranges.items[k].count:
                    break
                s.told_by(active.first)
        self.removals.written()
        return 0

    cdef uint64_t removed_below(self) noexcept:
        return self.removals.removed_below(self.span.first_seq)

    cdef int write_early(self) except -1:
        # Writes in the middle of a turn. A failure sets `condition`; the write() at the end of the turn raises it.
        try:
            self.write()
        except OSError:
            return 0
        return 0

    cdef int write_failed(self, object error) except -1:
        cdef Segment s = self.active
        if error.errno not in NO_ROOM:
            self.fail(error)
        self.state.full(error.errno)
        # Cut off the part that was written: it takes room that others need.
        try:
            self.disk.truncate(self.segments.handle(s), self.tail.base + self.tail.written)
        except OSError as other:
            self.fail(other)
        if not self.make_room():
            raise error
        try:                                 # make_room() has freed room: try again
            self.disk.write_at(self.segments.handle(s), self.tail.unwritten_bytes(s), self.tail.unwritten(), self.tail.base + self.tail.written)
        except OSError as second:
            if second.errno not in NO_ROOM:
                self.fail(second)
            raise
        return 0

    cdef int fail(self, object error) except -1:
        self.state.failed()
        self.unsynced.doubt_fresh(self.active)
        self.note_unsure(self.marks.synced_seq if self.marks.known else None)
        self.state.because(error.errno or EIO)
        raise LogClosed(self.state.failure, os.strerror(self.state.failure), self.folder) from error

    cdef int note_unsure(self, object synced_seq) except -1:
        # Writes the file `unsure` (None: it is not known what is synced). When the disk refuses, each mend() tries again.
        cdef Segment s
        cdef int handle
        cdef bytes data = b"".join([b"%d\n" % (<Segment>s).first for s in self.unsynced.doubtful(self.active)])
        if synced_seq is not None:
            data += b"synced %d\n" % synced_seq
        self.state.unsure_noted(False)
        try:
            handle = self.disk.open(f"{self.folder}/{UNSURE}", True)
            try:
                self.disk.write_at(handle, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0)
                self.disk.truncate(handle, PyBytes_GET_SIZE(data))
            finally:
                self.disk.close(handle)
        except OSError:
            return 0
        self.state.unsure_noted(True)
        return 0

    cdef int sync(self) except -1:
        if self.memory:
            return self.write()
        self.write()
        if self.state.condition < FAILED:
            self.sync_files()
        return 0

    cdef int sync_files(self) except -1:
        self.marks.use_sync(True)
        try:
            self.unsynced.sync(self.active)
        except OSError as error:
            self.fail(error)
        self.marks.synced()
        self.on_disk()
        self.marks.check(self.span.last_seq)
        if self.retired.items:
            self.unlink_retired()
        return 0

    def sync_folder(self) -> None:
        """Make the names of new files durable. OSError."""
        self.unsynced.sync_names()

    cdef int sync_begin(self, int* handles, int room, uint64_t* upto) except -1:
        # One sync runs at a time: while one is running, this returns 0.
        cdef int n = 0
        if self.memory or self.marks.sync_running or self.state.condition >= FAILED:
            return 0
        if not self.disk.in_background():
            self.sync_files()
            return 0
        self.marks.use_sync(True)
        try:
            n = self.unsynced.begin(self.active, handles, room)
        except OSError as error:
            self.fail(error)
        if n == 0:
            self.marks.synced()
            return 0
        upto[0] = self.marks.begin_sync()
        return n

    cdef int sync_end(self, uint64_t upto, int error) except -1:
        self.marks.end_sync()
        self.unsynced.ended(error == 0 and self.state.condition < FAILED, self.state.condition == CLOSED)
        if self.state.condition == CLOSED:
            self.close_handles()
            return 0
        if error:
            self.fail(OSError(error, os.strerror(error)))
        if self.state.condition == FAILED:
            return 0                         # another sync failed while this one was running
        self.marks.sync_reached(upto)
        self.on_disk()
        self.marks.check(self.span.last_seq)
        if self.retired.items:
            self.unlink_retired()
        return 0

    cdef int on_disk(self) except -1:
        # The next opening relies on index files: they must not name bytes that a power cut may take, nor a removal that is not
        # durable. maintain() writes those that cannot be written now.
        cdef Segment s
        for s in self.unsynced.synced():
            if s.live and not s.has_index and s.removed_mark <= self.marks.synced_mark:
                self.write_index(s)
        return 0

    cdef int write_index(self, Segment s) except -1:
        if not s.damaged and not write_index_file(self.segments, self.subjects_table, s, self.span.last_seq):
            self.deferred.put_off(partial(self.write_late_index, s))
        return 0

    def write_late_index(self, Segment s) -> None:
        """Write an index file that could not be written before. OSError when the disk still refuses."""
        if s.has_index or s.damaged or s.live == 0 or s is self.active or s not in self.segments.items:
            return
        if s.removed_mark > self.marks.synced_mark:
            return                               # maintain() writes it when the removals are synced
        if not write_index_file(self.segments, self.subjects_table, s, self.span.last_seq):
            raise OSError(EIO, "an index file can't be written", self.segments.path(s, ".idx"))

    # --- for other modules of core/log --------------------------------------------------------------------

    cdef int activate(self, Segment s, uint64_t end) except -1:
        self.active = s
        self.segments.activate(s)
        self.tail.begin(end)
        return 0

    cdef int begin_in_memory(self, Segment s) except -1:
        self.segments.add(s)
        self.active = s
        return 0

    cdef int found_active(self, Segment s) except -1:
        self.active = s
        return 0

    cdef int end(self) except -1:
        self.state.close()
        if not self.marks.sync_running:
            self.close_handles()
        self.pages.forget(0)
        return 0

    cdef int forget_files(self) except -1:
        self.retired.drop_all()
        self.unsynced.drop_all()
        return 0

    cdef int close_handles(self) except -1:
        cdef Segment s
        if self.memory:
            return 0
        for s in self.segments.items:
            self.disk.close_file(s)
        self.retired.close_handles()
        self.unsynced.close_handles()
        return 0
