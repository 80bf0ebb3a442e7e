"""The segments of a log without live messages whose files are not unlinked yet.

The REMOVE records of such a segment may name sequences of older segments. The log records these removals again in the active segment
(`prepare`), and unlinks the file when that write is done, and synced if the owner syncs (`unlink`). On a full disk the files are cut to one
record each (`make_room`). Knows nothing of the tail or of the condition of the log.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset
from pelton.core.base.buffer cimport Out, out_free
from pelton.core.base.disk cimport Disk
from pelton.core.log.record cimport put_ranges, ranges_add, ranges_free
from pelton.core.log.removals cimport Removals
from pelton.core.log.segment cimport Segment, new_segment
from pelton.core.log.segment_head cimport put_head
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.unsynced_files cimport UnsyncedFiles
from pelton.core.log.watermarks cimport Watermarks

cdef enum:
    ROOM_BYTES = 8192                # bytes to free on a full disk besides the unwritten ones: files take whole blocks
    REDUCED_MAX_BYTES = 512          # a disk writes this many bytes as a whole
    WAITING_MAX = 8                  # with more segments that wait for a sync by the owner, the log syncs itself


def first_of(Segment s) -> int:
    """Sort key: segments by their first sequence."""
    return s.first


cdef class RetiredSegments:
    """The retired segments of one log."""

    def __init__(self, Disk disk, str folder, object cipher, SegmentList segments, Removals removals, Watermarks marks,
                 UnsyncedFiles unsynced) -> None:
        self.disk = disk
        self.folder = folder
        self.cipher = cipher
        self.segments = segments
        self.removals = removals
        self.marks = marks
        self.unsynced = unsynced
        self.items = []

    cdef int add(self, Segment s) except -1:
        cdef Py_ssize_t at = self.segments.position(s.first)
        cdef Segment before
        if at and s.relog_low:
            # The retired segment leaves a gap behind the segment before it: the records that name its sequences belong to that one now.
            before = <Segment>self.segments.items[at - 1]
            before.told_by(s.relog_low)
            before.told_by(s.relog_high)
        self.segments.discard(s)
        if self.disk is not None:
            self.items.append(s)
        return 0

    cdef int drop_all(self) except -1:
        self.items = []
        return 0

    cdef int close_handles(self) except -1:
        cdef Segment s
        for s in self.items:
            self.disk.close_file(s)
        return 0

    cdef int prepare(self, Segment active, uint64_t first_seq) except -1:
        # For each newly retired segment, puts two things into the REMOVE record of this turn: the removed sequences of older
        # segments that its own REMOVE records name, and everything below the first live message.
        cdef Segment s, older
        cdef uint64_t floor = self.removals.removed_below(first_seq)
        for s in self.items:
            if s.retire_mark:
                continue
            s.retire(self.marks.write_mark + 1)
            for older in self.segments.items + self.items:
                if older is active or not older.relog_low <= s.first <= older.relog_high or older.first >= s.first:
                    continue
                self.say_removed(older)
            # Recovery takes a gap between segments that no removal names for a missing file.
            self.removals.say_gone(s.first, s.first + s.count, self.removals.lost_within(s.first, s.first + s.count))
            self.removals.add(1, floor - 1)
            if floor < first_seq:
                # Below first_seq some sequences are lost: name the removed ones between them. Their segments may not exist any more.
                self.removals.say_gone(floor, first_seq, self.removals.lost_within(floor, first_seq))
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

    cdef bint overdue(self) except -1:
        return not self.marks.sync_running and self.marks.sync_used and len(self.items) > WAITING_MAX and (
            self.marks.synced_mark < self.marks.write_mark)

    cdef int unlink(self) except -1:
        # Oldest first: a segment goes before the segments whose records name its sequences.
        cdef Segment s
        if self.marks.sync_running:
            return 0
        if self.unsynced.names and not self.marks.sync_used:
            # The name of the newest segment says which sequences were given: it must be durable before older files go.
            try:
                self.unsynced.sync_names()
            except OSError:
                return 0
        for s in sorted(self.items, key=first_of):
            if s.retire_mark == 0 or s.retire_mark > (self.marks.synced_mark if self.marks.sync_used else self.marks.write_mark):
                break
            self.unlink_one(s)
        return 0

    cdef int unlink_one(self, Segment s) except -1:
        self.disk.close_file(s)
        self.items.remove(s)
        self.unsynced.drop(s)
        try:
            self.disk.unlink(self.segments.path(s, ".idx"))
            self.disk.unlink(self.segments.path(s, ".seg"))
        except OSError:
            # The file stays; the next opening finds a segment without live messages and tries again.
            return 0
        return 0

    cdef bint make_room(self, Segment active, uint64_t first_seq, size_t wanted) except -1:
        # The disk is full: cuts retired segments whose records no other segment needs to one REMOVE record, until unlink() can unlink them.
        cdef Segment s
        cdef uint64_t freed = 0
        if self.marks.sync_running:
            return False
        try:
            if self.unsynced.names:
                self.unsynced.sync_names()
            for s in sorted(self.items, key=first_of):
                if self.tells(s, active) or freed > wanted + ROOM_BYTES:
                    break
                freed += self.reduce(s, first_seq)
        except OSError:
            return freed > 0
        return freed > 0

    cdef uint64_t reduce(self, Segment s, uint64_t first_seq) except? 18446744073709551615:
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
                put_head(self.cipher, fresh, &out)
            ranges_free(&s.removes)
            self.say_gone_in(s, self.removals.removed_below(first_seq), min(first_seq, last + 1))
            self.say_gone_in(s, s.first, last + 1)
            put_ranges(&out, s.removes.items, s.removes.count, last, s.removed_below, s.salt)
            if at + out.len > min(REDUCED_MAX_BYTES, before - 1):
                return 0
            self.disk.unlink(self.segments.path(s, ".idx"))      # it names records that will be cut off
            self.disk.sync_dir(self.folder)
            s.index_lost()
            self.disk.write_at(self.segments.handle(s), out.data, out.len, at)
            self.disk.sync(self.segments.handle(s))
            self.disk.truncate(self.segments.handle(s), at + out.len)
            s.use_blocks(None)
            s.set_synced(at + out.len)
            s.told_by_none()
            self.unsynced.drop(s)
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

    cdef bint tells(self, Segment s, Segment active) except -1:
        # Whether the REMOVE records of the segment name sequences of older segments.
        cdef Segment older
        for older in self.segments.items + self.items:
            if older is not active and older.relog_low <= s.first <= older.relog_high and older.first < s.first:
                return True
        return False
