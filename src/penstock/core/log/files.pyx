"""The files of a log.

Appends go to the tail: a buffer with the newest bytes of the active segment, the unwritten bytes at its end. One write() per turn
puts them into the file, together with one REMOVE record for all removals of the turn. A segment without live messages is retired.
The REMOVE records of a retired segment may name sequences of older segments: the log records these removals again in the active
segment, and unlinks the file when that write is done (and synced, if the owner syncs).

When the disk is full, the log loses no accepted message and acknowledges none: write() raises OSError(ENOSPC), the bytes stay
in the tail, and appends fail with the same error. The first write() that succeeds ends this condition; each append tries one. The
same happens when a new segment cannot be made (no handle, no inode). After any other failure of a write, and after every failure
of a sync, appends raise LogClosed until mend() (core/log/disk_recovery) has made new files of the bytes that may not be on the disk;
reads and removals in memory go on.
"""
import os
from errno import EAGAIN, EIO
from functools import partial

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from penstock.core.base.buffer cimport Out, hash_bytes, out_free, out_put
from penstock.core.base.quota cimport use
from penstock.core.log.disk_condition cimport CLOSED, FAILED, FULL, HOLDS
from penstock.core.log.encryption cimport begin_file
from penstock.core.log.index_file cimport write_index_file
from penstock.core.log.record cimport (
    RECORD_EXTRA_BYTES, SEALED_EXTRA_BYTES, SEALED_HEAD_BYTES, SEGMENT_HEAD_BYTES, put_ranges, put_segment_head,
    ranges_add, ranges_free, ranges_sort,
)
from penstock.core.log.segment cimport Segment, new_segment

from penstock.core.log.disk_condition import NO_ROOM, LogClosed

cdef enum:
    ROOM_BYTES = 8192                # bytes to free on a full disk besides the unwritten ones: files take whole blocks
    REDUCED_MAX_BYTES = 512          # a disk writes this many bytes as a whole
    DOOMED_MAX = 8                   # with more retired segments that wait for a sync by the owner, the log syncs itself

UNSURE = "unsure"
"""Name of the file that lists doubtful segments of a FAILED log, for the next process."""

cdef class LogFiles:
    """The active segment, the tail, commit and retired segments of a log."""

    def __dealloc__(self) -> None:
        out_free(&self.unsealed)

    @property
    def condition(self) -> int:
        """LogCondition."""
        return self.state.condition

    @property
    def failure(self) -> int:
        """The errno that made the log FULL or FAILED."""
        return self.state.failure

    @property
    def written_seq(self) -> int:
        """The written watermark: every record up to this sequence is in the file."""
        return self.marks.written_seq

    @property
    def synced_seq(self) -> int:
        """The synced watermark: every record up to this sequence is on the disk."""
        return self.marks.synced_seq

    @property
    def lost(self) -> list:
        """Runs of lost sequences: (first_seq, count, reason)."""
        return self.removals.lost

    @property
    def guard(self) -> object:
        """None, or the object that saves the contents of the newest messages before they are removed; see the stub."""
        return self.removals.guard

    @guard.setter
    def guard(self, value: object) -> None:
        self.removals.guarded_by(value)

    @property
    def guard_above(self) -> int:
        """The log asks the guard about messages with a higher sequence."""
        return self.removals.guard_above

    @guard_above.setter
    def guard_above(self, value: int) -> None:
        self.removals.guard_from(value)

    cdef int refuse(self) except -1:
        if self.state.condition == HOLDS:
            return 0
        if self.state.condition == FULL:
            self.pay()
            if self.state.begin_anew:
                self.resume()
            self.write()
            if self.state.roll_failed:
                self.roll(self.last_seq + 1)
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
        self.segments.spare_handles()
        self.segments.take_handle(s, self.disk.open(self.segments.path(s, ".seg"), True))
        self.folder_dirty = True
        self.unnamed.append(s)
        return 0

    cdef int begin_tail(self, Segment s) except -1:
        s.use_salt(<uint32_t>hash_bytes(<const char*>&s.first, 8) ^ <uint32_t>(self.last_ts_ns >> 7))
        self.tail.begin(0)
        self.put_head(s, &self.tail.out)
        s.resize(s.begins)
        return 0

    cdef int put_head(self, Segment s, Out* out) except -1:
        if self.cipher is None or self.cipher.number == 0:
            put_segment_head(out, s.first, s.salt)
            s.use_form(SEGMENT_HEAD_BYTES, RECORD_EXTRA_BYTES)
            s.use_key(0, None)
            return 0
        s.use_key(self.cipher.number, begin_file(self.cipher, out, s.first, s.salt, False))
        s.use_head(PyBytes_FromStringAndSize(out.data + out.len - SEALED_HEAD_BYTES, SEALED_HEAD_BYTES))
        s.use_form(SEALED_HEAD_BYTES, SEALED_EXTRA_BYTES)
        return 0

    cdef int resume(self) except -1:
        # A message that was written before this opening, and that no client has seen, may have had the next sequence as its nonce.
        # So the next messages go to a file with another key. A segment without messages gets a new file with the same records.
        cdef Segment s = self.active
        if s.count or s.first != self.last_seq + 1:
            self.state.want_new_segment(False)
            self.state.take()
            try:
                self.roll(self.last_seq + 1)
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
            raise OSError(self.state.failure or EAGAIN, "the newest file is being synced", self.segments.path(s, ".seg"))
        if self.disk.read_at(self.segments.handle(s), PyBytes_AS_STRING(records), s.size - begins, begins) != <int64_t>(s.size - begins):
            raise OSError(EIO, "a segment is shorter than it was", self.segments.path(s, ".seg"))
        self.tail.begin(s.size)
        self.put_head(s, &self.tail.out)
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
        self.folder_dirty = True
        self.unnamed.append(s)
        self.segments.close_handle(s)
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
            self.unsynced.append(old)
        if old.live == 0:
            return self.retire(old)
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
        cdef Py_ssize_t at = self.segments.position(s.first)
        cdef Segment before
        if at and s.relog_low:
            # The retired segment leaves a gap behind the segment before it: the records that name its sequences belong to that one now.
            before = <Segment>self.segments.items[at - 1]
            before.told_by(s.relog_low)
            before.told_by(s.relog_high)
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
            return self.marks.written_seq != self.last_seq
        return self.tail.out.len > self.tail.written or self.removals.ranges.count > 0 or self.marks.written_seq != self.last_seq

    cdef int write(self) except -1:
        if self.state.condition == HOLDS:
            return 0
        if self.memory:
            self.marks.start(self.last_seq)
            return 0
        if self.state.condition >= FAILED:
            if self.dirty():
                self.refuse()
            return 0
        if self.removals.ranges.count and self.removals.guard is not None:
            self.heed_guard()
        if self.doomed:
            self.prepare_unlink()
        if self.removals.ranges.count:
            self.put_removals()
        self.write_tail()
        if self.unsaid or self.stale is not None:
            self.sync_files()
            self.unsaid = False
            self.drop_stale()
        self.state.take()
        self.marks.written(self.last_seq)
        self.marks.check(self.last_seq)
        self.tail.trim()
        if self.doomed:
            self.unlink_ready()
        return 0

    cdef int write_tail(self) except -1:
        cdef Segment s = self.active
        cdef size_t n = self.tail.unwritten()
        if self.owed:
            self.pay()
        if n:
            try:
                self.disk.write_at(self.segments.handle(s), self.tail.unwritten_bytes(s), n, self.tail.base + self.tail.written)
            except OSError as error:
                self.write_failed(error)
            self.tail.wrote_all()
            s.wrote_all()
            self.marks.bytes_written()
        return 0

    cdef int pay(self) except -1:
        # OSError when there is no room, LogClosed after another failure; the remaining writes stay in `owed`.
        try:
            while self.owed:
                self.owed[0]()
                del self.owed[0]
        except OSError as error:
            if self.state.condition >= FAILED:
                raise
            if error.errno not in NO_ROOM:
                self.fail(error)
            self.state.full(error.errno)
            if not self.make_room():
                raise
            self.pay()
        return 0

    def owe(self, error: OSError, call: object) -> None:
        """The disk refused a write with `error`: `call` repeats it before the next append (None: the next write repeats it)."""
        self.unsaid = True
        if call is not None:
            self.owed.append(call)
        self.state.refused(error.errno or EIO)

    cdef int owe_first(self, object call) except -1:
        self.owed.append(call)
        return 0

    cdef int put_off(self, object call) except -1:
        self.late.append(call)
        return 0

    cdef int go_stale(self, str path) except -1:
        self.stale = path
        return 0

    cdef int drop_stale(self) except -1:
        if self.stale is not None:
            self.disk.unlink(self.stale)         # it would be valid again if the segment ever reached the same size
            self.stale = None
        return 0

    cdef int heed_guard(self) except -1:
        # The guard needs the newest messages at recovery. Before the log writes the removal of such a message, it writes the
        # messages, and the guard saves what they say.
        cdef uint64_t top = self.removals.highest()
        if top > self.removals.guard_above and self.removals.guard.holds(top):
            self.write_tail()
            self.marks.written(self.last_seq)
            if self.marks.sync_used:
                self.sync_files()
            self.removals.guard.save()
        return 0

    cdef int put_removals(self) except -1:
        # Puts all removals since the last write into one record (more for very many ranges). Each segment whose sequences it names
        # remembers the segment of the record, so that the removals survive the end of that segment.
        cdef Segment s, active = self.active
        cdef size_t k, before = self.tail.out.len
        cdef Py_ssize_t at
        ranges_sort(&self.removals.ranges)
        active.raise_removed_below(self.removed_below())
        put_ranges(&self.tail.out, self.removals.ranges.items, self.removals.ranges.count, self.last_seq, active.removed_below, active.salt)
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
        return self.removals.removed_below(self.first_seq)

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
            self.disk.truncate(s.handle, self.tail.base + self.tail.written)
        except OSError as other:
            self.fail(other)
        if not self.make_room():
            raise error
        try:                                 # make_room() has freed room: try again
            self.disk.write_at(s.handle, self.tail.unwritten_bytes(s), self.tail.unwritten(), self.tail.base + self.tail.written)
        except OSError as second:
            if second.errno not in NO_ROOM:
                self.fail(second)
            raise
        return 0

    cdef int fail(self, object error) except -1:
        cdef Segment s
        self.state.failed()
        for s in self.unnamed:
            # The name of the file is not synced, so none of its bytes count as synced.
            s.doubt_sync()
            if s is not self.active and s in self.segments.items and s not in self.unsynced:
                self.unsynced.append(s)
        self.note_unsure()
        self.state.because(error.errno or EIO)
        raise LogClosed(self.state.failure, os.strerror(self.state.failure), self.folder) from error

    cdef int note_unsure(self) except -1:
        # Writes the names of the doubtful segments into the file `unsure`. When the disk refuses, each mend() tries again.
        cdef Segment s
        cdef int handle
        cdef bytes data = b"".join([b"%d\n" % (<Segment>s).first for s in self.unsynced + [self.active]])
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
        cdef Segment s
        self.marks.use_sync(True)
        try:
            for s in self.unsynced + [self.active]:
                if s.synced_size < s.written_size:
                    self.disk.sync(self.segments.handle(s))
                    s.synced_all()
            if self.folder_dirty:
                self.sync_folder()
        except OSError as error:
            self.fail(error)
        self.marks.synced()
        self.on_disk()
        self.marks.check(self.last_seq)
        if self.doomed:
            self.unlink_ready()
        return 0

    def sync_folder(self) -> None:
        """Make the names of new files durable. OSError."""
        self.disk.sync_dir(self.folder)
        if self.folder_made:
            self.disk.sync_dir(os.path.dirname(self.folder) or ".")
            self.folder_made = False
        self.folder_dirty = False
        self.unnamed = []

    cdef int sync_begin(self, int* handles, int room, uint64_t* upto) except -1:
        # One sync runs at a time: while one is running, this returns 0. The name of a new file is made durable here, once per segment.
        cdef Segment s
        cdef int n = 0
        if self.memory or self.marks.sync_running or self.state.condition >= FAILED:
            return 0
        if not self.disk.in_background():
            self.sync_files()
            return 0
        self.marks.use_sync(True)
        try:
            if self.folder_dirty:
                self.sync_folder()
            for s in self.unsynced + [self.active]:
                if s.synced_size < s.written_size:
                    if n < room:
                        s.begin_sync()
                        handles[n] = self.segments.handle(s)
                        n += 1
                    else:
                        self.disk.sync(self.segments.handle(s))
                        s.synced_all()
        except OSError as error:
            self.fail(error)
        if n == 0:
            self.marks.synced()
            return 0
        upto[0] = self.marks.begin_sync()
        return n

    cdef int sync_end(self, uint64_t upto, int error) except -1:
        cdef Segment s
        self.marks.end_sync()
        for s in self.unsynced + [self.active]:
            if s.sync_target:
                s.end_sync(error == 0 and self.state.condition < FAILED)
        if self.state.condition == CLOSED:
            self.close_handles()
            return 0
        if error:
            self.fail(OSError(error, os.strerror(error)))
        if self.state.condition == FAILED:
            return 0                         # another sync failed while this one was running
        self.marks.sync_reached(upto)
        self.on_disk()
        self.marks.check(self.last_seq)
        if self.doomed:
            self.unlink_ready()
        return 0

    cdef int on_disk(self) except -1:
        # The next opening relies on index files: they must not name bytes that a power cut may take, nor a removal that is not
        # durable. maintain() writes those that cannot be written now.
        cdef Segment s
        before, self.unsynced = self.unsynced, []
        for s in before:
            if s.synced_size < s.written_size:
                self.unsynced.append(s)
            elif s.live and not s.has_index and s.removed_mark <= self.marks.synced_mark:
                self.write_index(s)
        return 0

    cdef int write_index(self, Segment s) except -1:
        if not s.damaged and not write_index_file(self.segments, self.subjects_table, s, self.last_seq):
            self.late.append(partial(self.write_late_index, s))
        return 0

    def write_late_index(self, Segment s) -> None:
        """Write an index file that could not be written before. OSError when the disk still refuses."""
        if s.has_index or s.damaged or s.live == 0 or s is self.active or s not in self.segments.items:
            return
        if s.removed_mark > self.marks.synced_mark:
            return                               # maintain() writes it when the removals are synced
        if not write_index_file(self.segments, self.subjects_table, s, self.last_seq):
            raise OSError(EIO, "an index file can't be written", self.segments.path(s, ".idx"))

    # --- retired segments ------------------------------------------------------------------------

    cdef int prepare_unlink(self) except -1:
        # For each newly retired segment, puts two things into the REMOVE record of this turn: the removed sequences of older
        # segments that its own REMOVE records name, and everything below the first live message.
        cdef Segment s, older
        for s in self.doomed:
            if s.retire_mark:
                continue
            s.retire(self.marks.write_mark + 1)
            for older in self.segments.items + self.doomed:
                if older is self.active or not older.relog_low <= s.first <= older.relog_high or older.first >= s.first:
                    continue
                self.say_removed(older)
            # Recovery takes a gap between segments that no removal names for a missing file.
            self.removals.say_gone(s.first, s.first + s.count, self.removals.lost_within(s.first, s.first + s.count))
            self.removals.add(1, self.removed_below() - 1)
            if self.removed_below() < self.first_seq:
                # Below first_seq some sequences are lost: name the removed ones between them. Their segments may not exist any more.
                self.removals.say_gone(self.removed_below(), self.first_seq, self.removals.lost_within(self.removed_below(), self.first_seq))
        return 0

    cdef int say_removed(self, Segment s) except -1:
        cdef uint32_t i = 0, k
        cdef Py_ssize_t at
        cdef uint64_t end = s.first + s.count, stop = end
        cdef list lost = []
        at = self.segments.position(end)
        if 0 < at < len(self.segments.items) and self.segments.items[at - 1] is s:
            # The gap behind the segment, also when the segment holds only damaged bytes.
            stop = (<Segment>self.segments.items[at]).first
        if self.removals.lost:
            lost = self.removals.lost_within(s.first, max(end, stop))
        if stop > end:
            self.removals.say_gone(end, stop, lost)
        while i < s.count:
            k = s.next_live(i) if s.live else s.count
            self.removals.say_gone(s.first + i, s.first + k, lost)
            i = k + 1
        return 0

    cdef int unlink_ready(self) except -1:
        # Oldest first: a segment goes before the segments whose records name its sequences.
        cdef Segment s
        if self.marks.sync_running:
            return 0
        if self.marks.sync_used and len(self.doomed) > DOOMED_MAX and self.marks.synced_mark < self.marks.write_mark:
            self.sync_files()
            return 0
        if self.folder_dirty and not self.marks.sync_used:
            # The name of the newest segment says which sequences were given: it must be durable before older files go.
            try:
                self.sync_folder()
            except OSError:
                return 0
        for s in sorted(self.doomed, key=first_of):
            if s.retire_mark == 0 or s.retire_mark > (self.marks.synced_mark if self.marks.sync_used else self.marks.write_mark):
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
            # The file stays; the next opening finds a segment without live messages and tries again.
            return 0
        return 0

    cdef bint make_room(self) except -1:
        # The disk is full: cuts retired segments whose records no other segment needs to one REMOVE record, until unlink_ready().
        cdef Segment s
        cdef uint64_t freed = 0
        if self.marks.sync_running:
            return False
        try:
            if self.folder_dirty:
                self.sync_folder()
            for s in sorted(self.doomed, key=first_of):
                if self.tells(s) or freed > self.tail.unwritten() + ROOM_BYTES:
                    break
                freed += self.reduce(s)
        except OSError:
            return freed > 0
        return freed > 0

    cdef uint64_t reduce(self, Segment s) except? 18446744073709551615:
        # Cuts the file of a retired segment to a head and one record that removes its messages, durably; returns the bytes freed.
        # This needs no room on a full disk: the record overwrites the first one, then the rest is cut off. After an OSError
        # either nothing has changed, or the messages are removed.
        cdef Out out
        cdef Segment fresh = s
        cdef size_t at = s.begins, before = s.written_size if s.packed is None else self.disk.size(self.segments.handle(s))
        cdef uint64_t last = s.first + s.count - 1
        memset(&out, 0, sizeof(Out))
        if s.count == 0:
            return 0
        try:
            if s.packed is not None:
                fresh = new_segment(s.first)
                fresh.use_salt(s.salt)
                at = 0
                self.put_head(fresh, &out)
            ranges_free(&s.removes)
            self.say_gone_in(s, self.removed_below(), min(self.first_seq, last + 1))
            self.say_gone_in(s, s.first, last + 1)
            put_ranges(&out, s.removes.items, s.removes.count, last, s.removed_below, s.salt)
            if at + out.len > min(REDUCED_MAX_BYTES, before - 1):
                return 0
            self.disk.unlink(self.segments.path(s, ".idx"))      # it names records that will be cut off
            self.disk.sync_dir(self.folder)
            s.index_lost()
            self.disk.write_at(self.segments.handle(s), out.data, out.len, at)
            self.disk.sync(s.handle)
            self.disk.truncate(s.handle, at + out.len)
            s.use_blocks(None)
            s.set_synced(at + out.len)
            s.told_by_none()
            if s in self.unsynced:
                self.unsynced.remove(s)
        finally:
            out_free(&out)
        return before - s.size


    cdef int say_gone_in(self, Segment s, uint64_t at, uint64_t end) except -1:
        for low, count, _ in self.removals.lost_within(at, end):
            if at < <uint64_t>low:
                ranges_add(&s.removes, at, low - at)
            at = max(at, low + count)
        if at < end:
            ranges_add(&s.removes, at, end - at)
        return 0

    cdef bint tells(self, Segment s) except -1:
        # Whether the REMOVE records of the segment name sequences of older segments.
        cdef Segment older
        for older in self.segments.items + self.doomed:
            if older is not self.active and older.relog_low <= s.first <= older.relog_high and older.first < s.first:
                return True
        return False

    # --- for other modules of core/log --------------------------------------------------------------------

    cdef int name_made(self) noexcept:
        self.folder_dirty = True
        return 0

    cdef int folder_found(self) noexcept:
        self.folder_made = True
        return 0

    cdef int take_unsynced(self, list segments) except -1:
        self.unsynced = segments
        return 0

    cdef int activate(self, Segment s, uint64_t end) except -1:
        self.active = s
        self.segments.activate(s)
        self.tail.begin(end)
        return 0

    cdef int begin_in_memory(self, Segment s) except -1:
        self.segments.add(s)
        self.active = s
        return 0

    cdef void raise_last(self, uint64_t seq, uint64_t ts_ns) noexcept:
        if seq > self.last_seq:
            self.last_seq = seq
        if ts_ns > self.last_ts_ns:
            self.last_ts_ns = ts_ns

    cdef void given_before(self, uint64_t first) noexcept:
        self.last_seq = first - 1

    cdef int found_active(self, Segment s) except -1:
        self.active = s
        return 0

    cdef void begin_at(self, uint64_t first_seq) noexcept:
        self.first_seq = first_seq
        self.last_seq = first_seq - 1

    cdef void count_segment(self, Segment s) noexcept:
        self.msgs += s.live
        self.bytes += s.live_bytes

    cdef int count_anew(self) except -1:
        cdef Segment s
        cdef uint64_t msgs = 0, bytes = 0
        for s in self.segments.items:
            msgs += s.live
            bytes += s.live_bytes
        use(self.usage, <int64_t>bytes - <int64_t>self.bytes)
        self.removed += self.msgs - msgs
        self.msgs = msgs
        self.bytes = bytes
        self.subject_count = self.subjects_table.live
        self.first_seq = self.segments.next_live(self.first_seq) if msgs else self.last_seq + 1
        return 0

    cdef int end_counting(self) except -1:
        self.removed = 0
        self.subject_count = self.subjects_table.live
        self.subject_ids = self.subjects_table.count
        self.segments.make_room(None)
        self.first_seq = self.segments.next_live(1) if self.msgs else self.last_seq + 1
        self.marks.written(self.last_seq)
        return 0

    cdef int end(self) except -1:
        self.state.close()
        if not self.marks.sync_running:
            self.close_handles()
        self.pages.forget(0)
        return 0

    cdef int forget_files(self) except -1:
        self.doomed = []
        self.unsynced = []
        return 0

    cdef int close_handles(self) except -1:
        cdef Segment s
        for s in self.segments.items + self.doomed + self.unsynced:
            self.segments.close_handle(s)
        return 0


def first_of(Segment s) -> int:
    """Sort key: segments by their first sequence."""
    return s.first
