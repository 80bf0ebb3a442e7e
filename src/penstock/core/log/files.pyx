"""The files under a record log.

Appends go to the tail: a buffer that holds the newest bytes of the active segment, unwritten ones at its end. One write()
per turn puts them into the file together with one REMOVE record for all removals of the turn. A segment without live
messages is retired: it is unlinked once what its own REMOVE records say of older segments is written (and, where the owner
syncs, on the disk) in the active one.

When the disk is full nothing accepted is lost and nothing is acknowledged: write() raises OSError(ENOSPC), the bytes stay
in the tail, appends are refused with the same error, and the first write() that succeeds (an append tries one) ends it. A new
segment that can't be begun (no handle, no inode) is the same. After any other failure of a write, and after each failure of a
sync, appends are refused (LogClosed) until mend() has made new files of what may not be on the disk (core/log/disk_recovery); reads and
removals in memory go on.
"""
import os
from contextlib import suppress
from errno import EAGAIN, EDQUOT, EFBIG, EIO, ENOMEM, ENOSPC
from functools import partial

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memmove, memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from penstock.core.base.buffer cimport Out, hash_bytes, out_free, out_put, out_reserve
from penstock.core.log.encryption cimport begin_file, seal_records
from penstock.core.log.index_file cimport write_sidecar
from penstock.core.log.record cimport (
    RECORD_EXTRA_BYTES, SEALED_EXTRA_BYTES, SEALED_HEAD_BYTES, SEGMENT_HEAD_BYTES, Ranges, put_ranges, put_segment_head,
    ranges_add, ranges_free, ranges_sort,
)
from penstock.core.log.segment cimport Entry, Segment, SegmentList

cdef enum:
    TAIL_MAX_BYTES = 1572864         # written bytes kept for reading: cut to TAIL_KEEP_BYTES when beyond this
    TAIL_KEEP_BYTES = 786432
    ROOM_BYTES = 8192                # made on a full disk besides what waits to be written: files take whole blocks
    REDUCED_MAX_BYTES = 512          # what a disk writes as a whole
    DOOMED_MAX = 8                   # retired segments waiting for the owner's next sync: more than this and the log syncs itself

UNSURE = "unsure"
"""Name of the file that tells which segments a process that ended did not believe any more."""

NO_ROOM = frozenset((ENOSPC, EDQUOT, EFBIG, ENOMEM))
"""What a write may fail with that says nothing of what was written before."""

class LogClosed(OSError):
    """The log takes no appends: a write or fsync failed and mend() has not worked yet, or it was closed."""

cdef class LogFiles:
    """Active segment, tail, commit, retired segments."""

    def __dealloc__(self) -> None:
        out_free(&self.tail)
        out_free(&self.sealed)
        out_free(&self.unsealed)
        ranges_free(&self.ranges)

    cdef int refuse(self) except -1:
        if self.condition == HOLDS:
            return 0
        if self.condition == FULL:
            self.pay()
            if self.begin_anew:
                self.resume()
            self.write()
            if self.roll_failed:
                self.roll(self.last_seq + 1)
            return 0
        if self.condition == FAILED:
            raise LogClosed(self.failure, os.strerror(self.failure), self.folder)
        raise LogClosed(9, "the log is closed", self.folder)

    cdef int start_segment(self, uint64_t first) except -1:
        cdef Segment s = Segment()
        s.first = first
        if self.memory:
            s.size = 1                       # an offset of 0 says that nothing is stored
            out_reserve(&s.memory, 64)[0] = 0
            s.memory.len = 1
        else:
            self.make_file(s)
            self.begin_tail(s)
        self.segments.add(s)
        self.active = s
        return 0

    cdef int make_file(self, Segment s) except -1:
        self.segments.spare_handles()
        s.handle = self.disk.open(self.segments.path(s, ".seg"), True)
        self.folder_dirty = True
        self.unnamed.append(s)
        self.segments.open_handles += 1
        return 0

    cdef int begin_tail(self, Segment s) except -1:
        s.salt = <uint32_t>hash_bytes(<const char*>&s.first, 8) ^ <uint32_t>(self.last_ts_ns >> 7)
        self.tail.len = 0
        self.tail_base = 0
        self.tail_written = 0
        self.put_head(s, &self.tail)
        s.size = s.begins
        return 0

    cdef int put_head(self, Segment s, Out* out) except -1:
        if self.cipher is None or self.cipher.number == 0:
            put_segment_head(out, s.first, s.salt)
            s.begins = SEGMENT_HEAD_BYTES
            s.extra = RECORD_EXTRA_BYTES
            s.key_number = 0
            s.aead = None
            return 0
        s.aead = begin_file(self.cipher, out, s.first, s.salt, False)
        s.head = PyBytes_FromStringAndSize(out.data + out.len - SEALED_HEAD_BYTES, SEALED_HEAD_BYTES)
        s.begins = SEALED_HEAD_BYTES
        s.extra = SEALED_EXTRA_BYTES
        s.key_number = self.cipher.number
        return 0

    cdef int resume(self) except -1:
        # A message that was written before this opening and never seen may have had the next sequence, and so its nonce: what comes
        # next goes to a file with another key. One that holds no message is made anew, what it says of others with it.
        cdef Segment s = self.active
        if s.count or s.first != self.last_seq + 1:
            self.begin_anew = False
            self.condition = TAKES
            try:
                self.roll(self.last_seq + 1)
            except OSError:
                self.begin_anew = self.active is s
                raise
            return 0
        self.begin_anew = True
        self.write()
        self.make_anew(s)
        self.begin_anew = False
        self.condition = TAKES
        return 0

    cdef int make_anew(self, Segment s) except -1:
        # The newest segment of an encrypted self, without a message in it and all written, gets a new file with another key. OSError: it
        # is as it was.
        cdef bytes records = PyBytes_FromStringAndSize(NULL, s.size - s.begins)
        cdef uint64_t begins = s.begins, extra = s.extra, number = s.key_number
        cdef object aead = s.aead, head = s.head
        if self.sync_running:                     # its file is being synced, and would be closed
            raise OSError(self.failure or EAGAIN, "the newest file is being synced", self.segments.path(s, ".seg"))
        if self.disk.read_at(self.segments.handle(s), PyBytes_AS_STRING(records), s.size - begins, begins) != <int64_t>(s.size - begins):
            raise OSError(EIO, "a segment is shorter than it was", self.segments.path(s, ".seg"))
        self.tail.len = self.tail_written = 0
        self.tail_base = s.size
        self.put_head(s, &self.tail)
        records = PyBytes_FromStringAndSize(self.tail.data, self.tail.len) + records
        self.tail.len = 0
        try:
            self.disk.write_file_atomic(self.segments.path(s, ".seg"), records, PyBytes_GET_SIZE(records) > <Py_ssize_t>s.begins)
        except OSError:
            s.begins, s.extra, s.key_number, s.aead, s.head = begins, extra, number, aead, head
            raise
        self.tail_base = s.size = s.written_size = PyBytes_GET_SIZE(records)
        s.synced_size = 0
        self.folder_dirty = True
        self.unnamed.append(s)
        self.segments.close_handle(s)
        self.segments.handle(s)
        return 0

    cdef int roll(self, uint64_t next_seq) except -1:
        cdef Segment old = self.active
        if self.condition == HOLDS or (old.count == 0 and old.first == next_seq):
            return 0                         # an empty segment would get its own file again
        if not self.memory:
            self.write()
            old = self.active
        self.begin_segment(next_seq)
        old.sealed = True
        old.trim()
        if old.synced_size < old.written_size:
            self.unsynced.append(old)
        if old.live == 0:
            return self.retire(old)
        if not self.memory:
            self.segments.loaded_bytes += old.count * sizeof(Entry)
            if old.synced_size == old.written_size:
                self.write_index(old)
            self.segments.make_room(None)
        return 0

    cdef int begin_segment(self, uint64_t first) except -1:
        # Nothing that was accepted depends on it: a failure is like a full disk.
        try:
            self.start_segment(first)
        except OSError as error:
            self.condition = FULL
            self.failure = error.errno or 5
            self.roll_failed = True
            raise
        self.roll_failed = False
        return 0

    cdef int retire(self, Segment s) except -1:
        cdef Py_ssize_t at = self.segments.position(s.first)
        cdef Segment before
        if at and s.relog_low:
            # Where it is told what went on in its sequences counts for the gap that it leaves behind the one before.
            before = <Segment>self.segments.items[at - 1]
            note_teller(before, s.relog_low)
            note_teller(before, s.relog_high)
        self.segments.discard(s)
        self.subjects_table.leave(s)
        if self.reading is s:
            self.reading = self.active
        self.pages.forget(s.serial)
        if not self.memory:
            self.doomed.append(s)
        return 0

    # --- per turn --------------------------------------------------------------------------------

    cdef bint dirty(self) noexcept:
        if self.memory:
            return self.written_seq != self.last_seq
        return self.tail.len > self.tail_written or self.ranges.count > 0 or self.written_seq != self.last_seq

    cdef int write(self) except -1:
        if self.condition == HOLDS:
            return 0
        if self.memory:
            self.written_seq = self.synced_seq = self.last_seq
            return 0
        if self.condition >= FAILED:
            if self.dirty():
                self.refuse()
            return 0
        if self.ranges.count and self.guard is not None:
            self.heed_guard()
        if self.doomed:
            self.prepare_unlink()
        if self.ranges.count:
            self.put_removals()
        self.write_tail()
        if self.unsaid or self.stale is not None:
            self.sync_files()
            self.unsaid = False
            if self.stale is not None:
                self.disk.unlink(self.stale)     # what it says is in the log: one day its size might agree again
                self.stale = None
        self.condition = FULL if self.begin_anew else TAKES
        self.written_seq = self.last_seq
        self.check_watermarks()
        if self.tail_written > TAIL_MAX_BYTES:
            self.trim_tail()
        if self.doomed:
            self.unlink_ready()
        return 0

    cdef int write_tail(self) except -1:
        cdef Segment s = self.active
        cdef size_t n = self.tail.len - self.tail_written
        if self.owed:
            self.pay()
        if n:
            try:
                self.disk.write_at(self.segments.handle(s), self.unwritten(), n, self.tail_base + self.tail_written)
            except OSError as error:
                self.write_failed(error)
            self.tail_written = self.tail.len
            s.written_size = s.size
            self.write_mark += 1
        return 0

    cdef int pay(self) except -1:
        # OSError (LogClosed when it is not room that is missing): the rest is owed still.
        try:
            while self.owed:
                self.owed[0]()
                del self.owed[0]
        except OSError as error:
            if self.condition >= FAILED:
                raise
            if error.errno not in NO_ROOM:
                self.fail(error)
            self.condition = FULL
            self.failure = error.errno
            if not self.make_room():
                raise
            self.pay()
        return 0

    def owe(self, error: OSError, call: object) -> None:
        """The disk has refused with an error: no append is taken before `call` has done it (None: what comes next does it)."""
        code = error.errno or EIO
        self.unsaid = True
        if call is not None:
            self.owed.append(call)
        if self.condition >= FAILED:
            return
        self.condition = FULL if code in NO_ROOM else FAILED
        self.failure = code

    cdef int heed_guard(self) except -1:
        # Somebody reads at recovery what the newest messages say. Before a removal of such a message is written, the
        # messages are, and it notes what they say.
        cdef uint64_t top = 0
        cdef size_t k
        for k in range(self.ranges.count):
            top = max(top, self.ranges.items[k].first + self.ranges.items[k].count - 1)
        if top > self.guard_above and self.guard.holds(top):
            self.write_tail()
            self.written_seq = self.last_seq
            if self.sync_used:
                self.sync_files()
            self.guard.save()
        return 0

    cdef int put_removals(self) except -1:
        # All removals since the last write as one record (more for very many ranges). Segments named in it remember
        # where, so that it is not lost with the segment that holds it.
        cdef Segment s, active = self.active
        cdef size_t k, before = self.tail.len
        cdef Py_ssize_t at
        ranges_sort(&self.ranges)
        active.removed_below = max(active.removed_below, self.removed_below())
        put_ranges(&self.tail, self.ranges.items, self.ranges.count, self.last_seq, active.removed_below, active.salt)
        active.size += self.tail.len - before
        for k in range(self.ranges.count):
            ranges_add(&active.removes, self.ranges.items[k].first, self.ranges.items[k].count)
            at = self.segments.position(self.ranges.items[k].first)
            if at:
                s = <Segment>self.segments.items[at - 1]
                if s.first + s.count <= self.ranges.items[k].first and s is not active:
                    note_teller(s, active.first)              # of the gap behind it
            while at < len(self.segments.items):
                s = <Segment>self.segments.items[at]
                at += 1
                if s is active or s.first >= self.ranges.items[k].first + self.ranges.items[k].count:
                    break
                note_teller(s, active.first)
        self.ranges.count = 0
        return 0

    cdef uint64_t removed_below(self) noexcept:
        cdef uint64_t below = self.first_seq
        for first, count, _ in self.lost:
            if count and first < below:
                below = first
        return below

    cdef int write_early(self) except -1:
        # In the middle of a turn: a failure is kept in `condition`, and told by write() at the turn's end.
        try:
            self.write()
        except OSError:
            return 0
        return 0

    cdef int write_failed(self, object error) except -1:
        cdef Segment s = self.active
        if error.errno not in NO_ROOM:
            self.fail(error)
        self.condition = FULL
        self.failure = error.errno
        # What was written of it holds no room that others need.
        try:
            self.disk.truncate(s.handle, self.tail_base + self.tail_written)
        except OSError as other:
            self.fail(other)
        if not self.make_room():
            raise error
        try:                                 # room was made by dead segments: once more
            self.disk.write_at(s.handle, self.unwritten(), self.tail.len - self.tail_written, self.tail_base + self.tail_written)
        except OSError as second:
            if second.errno not in NO_ROOM:
                self.fail(second)
            raise
        return 0

    cdef const char* unwritten(self) except NULL:
        cdef Segment s = self.active
        cdef const char* p = self.tail.data + self.tail_written
        cdef size_t n = self.tail.len - self.tail_written, head = 0
        if s.aead is None:
            return p
        self.sealed.len = 0
        if self.tail_base + self.tail_written == 0:
            head = s.begins
            out_put(&self.sealed, p, head)
        seal_records(s.aead, p + head, n - head, s.salt, &self.sealed)
        return self.sealed.data

    cdef int fail(self, object error) except -1:
        cdef Segment s
        self.condition = FAILED
        for s in self.unnamed:
            # Without its name nothing of it is on the disk.
            s.synced_size = 0
            if s is not self.active and s in self.segments.items and s not in self.unsynced:
                self.unsynced.append(s)
        self.note_unsure()
        self.failure = error.errno or 5
        raise LogClosed(self.failure, os.strerror(self.failure), self.folder) from error

    cdef int note_unsure(self) except -1:
        # Write down which segments are not to be believed. A disk that refuses this too is asked again with each mend().
        cdef Segment s
        cdef int handle
        cdef bytes data = b"".join([b"%d\n" % (<Segment>s).first for s in self.unsynced + [self.active]])
        self.unsure_told = False
        try:
            handle = self.disk.open(f"{self.folder}/{UNSURE}", True)
            try:
                self.disk.write_at(handle, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0)
                self.disk.truncate(handle, PyBytes_GET_SIZE(data))
            finally:
                self.disk.close(handle)
        except OSError:
            return 0
        self.unsure_told = True
        return 0

    cdef int trim_tail(self) except -1:
        cdef size_t gone = self.tail_written - TAIL_KEEP_BYTES
        memmove(self.tail.data, self.tail.data + gone, self.tail.len - gone)
        self.tail.len -= gone
        self.tail_base += gone
        self.tail_written -= gone
        return 0

    cdef int sync(self) except -1:
        if self.memory:
            return self.write()
        self.write()
        if self.condition < FAILED:
            self.sync_files()
        return 0

    cdef int sync_files(self) except -1:
        cdef Segment s
        self.sync_used = True
        try:
            for s in self.unsynced + [self.active]:
                if s.synced_size < s.written_size:
                    self.disk.sync(self.segments.handle(s))
                    s.synced_size = s.written_size
            if self.folder_dirty:
                self.sync_folder()
        except OSError as error:
            self.fail(error)
        self.synced_seq = self.written_seq
        self.synced_mark = self.write_mark
        self.on_disk()
        self.check_watermarks()
        if self.doomed:
            self.unlink_ready()
        return 0

    def sync_folder(self) -> None:
        """Make the names of new files durable."""
        self.disk.sync_dir(self.folder)
        if self.folder_made:
            self.disk.sync_dir(os.path.dirname(self.folder) or ".")
            self.folder_made = False
        self.folder_dirty = False
        self.unnamed = []

    cdef int sync_begin(self, int* handles, int room, uint64_t* upto) except -1:
        # One sync runs at a time: while one does, the answer is 0. A new file's name is made durable here (once per segment).
        cdef Segment s
        cdef int n = 0
        if self.memory or self.sync_running or self.condition >= FAILED:
            return 0
        if not self.disk.in_background():
            self.sync_files()
            return 0
        self.sync_used = True
        try:
            if self.folder_dirty:
                self.sync_folder()
            for s in self.unsynced + [self.active]:
                if s.synced_size < s.written_size:
                    if n < room:
                        s.sync_target = s.written_size
                        handles[n] = self.segments.handle(s)
                        n += 1
                    else:
                        self.disk.sync(self.segments.handle(s))
                        s.synced_size = s.written_size
        except OSError as error:
            self.fail(error)
        if n == 0:
            self.synced_seq = self.written_seq
            self.synced_mark = self.write_mark
            return 0
        self.sync_running = True
        self.sync_upto = self.written_seq
        self.sync_mark = self.write_mark
        upto[0] = self.written_seq
        return n

    cdef int sync_end(self, uint64_t upto, int error) except -1:
        cdef Segment s
        self.sync_running = False
        for s in self.unsynced + [self.active]:
            if s.sync_target:
                if error == 0 and self.condition < FAILED and s.sync_target > s.synced_size:
                    s.synced_size = s.sync_target
                s.sync_target = 0
        if self.condition == CLOSED:
            self.close_handles()
            return 0
        if error:
            self.fail(OSError(error, os.strerror(error)))
        if self.condition == FAILED:
            return 0                         # another sync did, meanwhile: it was told of what this one was to write
        self.synced_seq = max(upto, self.synced_seq)
        self.synced_mark = max(self.sync_mark, self.synced_mark)
        self.on_disk()
        self.check_watermarks()
        if self.doomed:
            self.unlink_ready()
        return 0

    cdef int on_disk(self) except -1:
        # An index is believed at the next opening: it must not speak of bytes that a loss of power takes, nor of a removal that
        # was never answered. One that can't be written now is by maintain().
        cdef Segment s
        before, self.unsynced = self.unsynced, []
        for s in before:
            if s.synced_size < s.written_size:
                self.unsynced.append(s)
            elif s.live and not s.has_index and s.removed_mark <= self.synced_mark:
                self.write_index(s)
        return 0

    cdef int write_index(self, Segment s) except -1:
        if not s.damaged and not write_sidecar(self.segments, self.subjects_table, s, self.last_seq):
            self.late.append(partial(self.write_late_index, s))
        return 0

    def write_late_index(self, Segment s) -> None:
        """The index file of a segment, which could not be written before. OSError: not yet."""
        if s.has_index or s.damaged or s.live == 0 or s is self.active or s not in self.segments.items:
            return
        if s.removed_mark > self.synced_mark:
            return                               # maintain() does it when its removals are on the disk
        if not write_sidecar(self.segments, self.subjects_table, s, self.last_seq):
            raise OSError(EIO, "an index file can't be written", self.segments.path(s, ".idx"))

    cdef int check_watermarks(self) except -1:
        if not self.synced_seq <= self.written_seq <= self.last_seq:
            raise AssertionError(f"synced {self.synced_seq} <= written {self.written_seq} <= accepted {self.last_seq} is broken")
        return 0

    # --- retired segments ------------------------------------------------------------------------

    cdef int prepare_unlink(self) except -1:
        # For each newly retired segment: the removed sequences of older segments that its REMOVE records name go into this
        # turn's REMOVE record, and so does everything below the first live message.
        cdef Segment s, older
        for s in self.doomed:
            if s.retire_mark:
                continue
            s.retire_mark = self.write_mark + 1
            for older in self.segments.items + self.doomed:
                if older is self.active or not older.relog_low <= s.first <= older.relog_high or older.first >= s.first:
                    continue
                self.say_removed(older)
            # A gap between segments that no removal names is a file that is gone.
            self.say_gone(s.first, s.first + s.count, self.lost_within(s.first, s.first + s.count))
            ranges_add(&self.ranges, 1, self.removed_below() - 1)
            if self.removed_below() < self.first_seq:
                # Something down there is lost: what was removed between is said one by one. Its segments may be gone long since.
                self.say_gone(self.removed_below(), self.first_seq, self.lost_within(self.removed_below(), self.first_seq))
        return 0

    cdef int say_removed(self, Segment s) except -1:
        cdef uint32_t i = 0, k
        cdef Py_ssize_t at
        cdef uint64_t end = s.first + s.count, stop = end
        cdef list lost = []
        at = self.segments.position(end)
        if 0 < at < len(self.segments.items) and self.segments.items[at - 1] is s:
            # The gap behind it, also of one that holds nothing but damage.
            stop = (<Segment>self.segments.items[at]).first
        if self.lost:
            lost = self.lost_within(s.first, max(end, stop))
        if stop > end:
            self.say_gone(end, stop, lost)
        while i < s.count:
            k = s.next_live(i) if s.live else s.count
            self.say_gone(s.first + i, s.first + k, lost)
            i = k + 1
        return 0

    cdef list lost_within(self, uint64_t first, uint64_t end):
        return sorted([entry for entry in self.lost if entry[1] and entry[0] < end and first < entry[0] + entry[1]])

    cdef int say_gone(self, uint64_t first, uint64_t end, list lost) except -1:
        # What is lost was not removed, and is told for as long as it is so.
        for low, count, _ in lost:
            if first < <uint64_t>low + <uint64_t>count and low < end:
                if first < low:
                    ranges_add(&self.ranges, first, low - first)
                first = low + count
        if first < end:
            ranges_add(&self.ranges, first, end - first)
        return 0

    cdef int unlink_ready(self) except -1:
        # Oldest first: a segment is gone before those whose records speak of it.
        cdef Segment s
        if self.sync_running:
            return 0
        if self.sync_used and len(self.doomed) > DOOMED_MAX and self.synced_mark < self.write_mark:
            self.sync_files()
            return 0
        if self.folder_dirty and not self.sync_used:
            # The name of the newest segment says how far the sequences went: it is durable before older files are gone.
            try:
                self.sync_folder()
            except OSError:
                return 0
        for s in sorted(self.doomed, key=first_of):
            if s.retire_mark == 0 or s.retire_mark > (self.synced_mark if self.sync_used else self.write_mark):
                break
            self.unlink(s)
        return 0

    cdef int unlink(self, Segment s) except -1:
        self.segments.close_handle(s)
        self.doomed.remove(s)
        if s in self.unsynced:
            self.unsynced.remove(s)
        try:
            self.disk.unlink(self.segments.path(s, ".idx"))
            self.disk.unlink(self.segments.path(s, ".seg"))
        except OSError:
            # It stays as a file without live messages: the next opening finds it so and tries again.
            return 0
        return 0

    cdef bint make_room(self) except -1:
        # The disk is full: of dead segments whose records no other one needs only that they are dead stays, until unlink_ready.
        cdef Segment s
        cdef uint64_t freed = 0
        if self.sync_running:
            return False
        try:
            if self.folder_dirty:
                self.sync_folder()
            for s in sorted(self.doomed, key=first_of):
                if self.tells(s) or freed > self.tail.len - self.tail_written + ROOM_BYTES:
                    break
                freed += self.reduce(s)
        except OSError:
            return freed > 0
        return freed > 0

    cdef uint64_t reduce(self, Segment s) except? 18446744073709551615:
        # Cut the file of a retired segment to a head and a record that its messages are removed, durably; bytes that became free.
        # That takes no room on a disk that is full: the record is written over the first one, then the rest is cut off. OSError:
        # nothing has changed, or the messages are removed all the same.
        cdef Out out
        cdef Segment fresh = s
        cdef size_t at = s.begins, before = s.written_size if s.packed is None else self.disk.size(self.segments.handle(s))
        cdef uint64_t last = s.first + s.count - 1
        memset(&out, 0, sizeof(Out))
        if s.count == 0:
            return 0
        try:
            if s.packed is not None:
                fresh = Segment()
                fresh.first, fresh.salt, at = s.first, s.salt, 0
                self.put_head(fresh, &out)
            ranges_free(&s.removes)
            self.say_gone_in(s, self.removed_below(), min(self.first_seq, last + 1))
            self.say_gone_in(s, s.first, last + 1)
            put_ranges(&out, s.removes.items, s.removes.count, last, s.removed_below, s.salt)
            if at + out.len > min(REDUCED_MAX_BYTES, before - 1):
                return 0
            self.disk.unlink(self.segments.path(s, ".idx"))      # it speaks of what will not be there
            self.disk.sync_dir(self.folder)
            s.has_index = False
            self.disk.write_at(self.segments.handle(s), out.data, out.len, at)
            self.disk.sync(s.handle)
            self.disk.truncate(s.handle, at + out.len)
            s.packed = None
            s.size = s.written_size = s.synced_size = at + out.len
            s.relog_low = s.relog_high = 0
            if s in self.unsynced:
                self.unsynced.remove(s)
        finally:
            out_free(&out)
        return before - s.size


    cdef int say_gone_in(self, Segment s, uint64_t at, uint64_t end) except -1:
        for low, count, _ in self.lost_within(at, end):
            if at < <uint64_t>low:
                ranges_add(&s.removes, at, low - at)
            at = max(at, low + count)
        if at < end:
            ranges_add(&s.removes, at, end - at)
        return 0

    cdef bint tells(self, Segment s) except -1:
        # Whether its REMOVE records speak of older segments.
        cdef Segment older
        for older in self.segments.items + self.doomed:
            if older is not self.active and older.relog_low <= s.first <= older.relog_high and older.first < s.first:
                return True
        return False

    cdef int close_handles(self) except -1:
        cdef Segment s
        for s in self.segments.items + self.doomed + self.unsynced:
            self.segments.close_handle(s)
        return 0


cdef void note_teller(Segment s, uint64_t first) noexcept:
    # REMOVE records in the segment that begins with `first` speak of s, or of the gap behind it.
    if s.relog_low == 0 or first < s.relog_low:
        s.relog_low = first
    if first > s.relog_high:
        s.relog_high = first


def first_of(Segment s) -> int:
    """The order of segments."""
    return s.first
