"""The log of one stream: append, read, remove; in files or in memory.

Each sequence has an index entry in its segment (core/log/segment); a removal sets a bit. The log reads a message from the tail in
memory, else from read windows of the file (core/log/read_windows), and checks each record that comes from a file. A damaged message
counts as lost from then on and is reported in `lost`. Its LogFiles (core/log/files) has files, commit and failures. The functions of other modules
take the log as their first argument: opening (core/log/recovery), purge, erase, compaction and close (core/log/maintenance),
queries of the control plane (core/log/queries), recovery after a disk failure (core/log/disk_recovery).
"""
from collections import namedtuple

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, out_free, out_reserve
from pelton.core.base.disk cimport Disk
from pelton.core.base.quota cimport Quota, use
from pelton.core.log.encryption cimport open_record
from pelton.core.log.disk_condition cimport TAKES
from pelton.core.log.files cimport LogFiles
from pelton.core.log.read_windows cimport Pages
from pelton.core.log.record cimport (
    ERASED, GAP_MAX, MESSAGE, RECORD_EXTRA_BYTES, RECORD_HEAD_BYTES, RECORD_MARK, RECORD_MAX_BYTES, SEALED, SEALED_EXTRA_BYTES, TAG_BYTES,
    TAGGED, Head, check_record, ranges_add, seal_record,
)
from pelton.core.log.segment cimport HAS_HEADERS, SIZE_MASK, Entry, Segment, appended, is_live, push
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.span cimport Span, accepted
from pelton.core.log.subject_table cimport SubjectState, SubjectTable

from pelton.core.log.disk_condition import LogClosed

cdef enum:
    EARLY_BYTES = 524288             # with this many unwritten bytes the log writes before the end of the turn
    HOLES_MAX = 4096                 # a longer skip starts a new segment
    MEMORY_SEGMENT_BYTES = 1048576
    GIVE_BACK = 4                    # unused subjects to look at for each subject that may be new

StoredMessage = namedtuple("StoredMessage", ["seq", "ts_ns", "subject", "headers", "payload"])


@cython.final
cdef class Log:
    """The log of one stream. log.pxd explains the compiled methods, log.pyi the Python ones."""

    def __init__(self, *, segment_bytes: int = 16 * 1024 * 1024, first_seq: int = 1) -> None:
        """Make a new log in memory. core/log/recovery opens a log in files."""
        self.prepare(None, None, segment_bytes, first_seq, None)
        self.segment_bytes = min(self.segment_bytes, MEMORY_SEGMENT_BYTES)
        self.files.start_segment(first_seq)
        self.opened()

    cdef int prepare(self, str folder, Disk disk, object segment_bytes, object first_seq, object cipher) except -1:
        if not 1 <= first_seq < 2**63:
            raise ValueError(f"first_seq is 1 or more, not {first_seq}")
        if not 4096 <= segment_bytes <= 2**30:
            raise ValueError(f"segment_bytes is between 4096 and 2^30, not {segment_bytes}")
        self.memory = folder is None
        self.folder = folder
        self.disk = disk
        self.segment_bytes = segment_bytes
        self.size_extra = 16 if self.memory else 30
        self.header_extra = 0 if self.memory else 4
        self.cipher = cipher
        self.record_extra = RECORD_EXTRA_BYTES
        self.checks = not self.memory
        if self.cipher is not None and self.cipher.number:
            self.record_extra = SEALED_EXTRA_BYTES
            self.record_state = TAGGED
            self.checks = False
        self.quota = Quota()
        self.notes = []
        self.pages = Pages()
        self.segments = SegmentList(self.disk, folder, self.cipher)
        self.subjects_table = SubjectTable(self.segments)
        self.span = Span()
        self.span.begin_at(first_seq)
        self.files = LogFiles(disk, folder, cipher, self.span, self.segments, self.subjects_table, self.pages)
        self.tail, self.marks, self.state = self.files.tail, self.files.marks, self.files.state
        self.removals, self.deferred = self.files.removals, self.files.deferred
        return 0

    cdef int opened(self) except -1:
        self.reading = self.files.active
        self.marks.start(self.span.last_seq)
        self.appended = self.msgs
        return 0

    def __dealloc__(self) -> None:
        out_free(&self.unsealed)

    def __del__(self) -> None:
        # Dropped without close(): only closes the handles. Unwritten bytes are gone, as at the end of the process.
        if self.files is not None and self.disk is not None:
            for s in self.segments.items + self.files.retired.items + self.files.unsynced.sealed:
                try:
                    self.disk.close_file(s)
                except OSError:
                    continue

    # --- append ----------------------------------------------------------------------------------

    cdef uint64_t append(self, uint64_t ts_ns, const char* subject, uint32_t subject_len,
                         const char* body, uint32_t hlen, uint32_t body_len, uint16_t flags) except 0:
        cdef uint32_t id
        if self.subjects_table.leaving.len:
            self.give_back(GIVE_BACK)
        id = self.subjects_table.intern(subject, subject_len)
        try:
            return self.append_id(ts_ns, id, body, hlen, body_len, flags)
        except BaseException:
            self.subjects_table.unused(id)
            raise

    cdef uint32_t subject_id(self, const char* subject, uint32_t n) except? 4294967295:
        cdef SubjectTable subjects = self.subjects_table
        cdef uint32_t id
        if subjects.leaving.len:
            self.give_back(GIVE_BACK)
        id = subjects.intern(subject, n)
        if subjects.kept != id + 1:
            subjects.keep(id)
        self.subject_ids = subjects.count
        return id

    cdef int give_back(self, uint32_t budget) except -1:
        self.subjects_table.give_back(budget)
        self.subject_ids = self.subjects_table.count
        return 0

    cdef uint64_t append_id(self, uint64_t ts_ns, uint32_t subject_id, const char* body, uint32_t hlen,
                            uint32_t body_len, uint16_t flags) except 0:
        cdef Segment s = self.files.active
        cdef SubjectTable subjects = self.subjects_table
        cdef uint64_t seq = self.span.last_seq + 1
        cdef const char* name
        cdef uint32_t name_len, n, length
        cdef Out* out
        cdef char* p
        cdef Head head
        if self.state.condition != TAKES or (self.disk is not None and self.disk.spent):
            self.files.refuse()
            s = self.files.active                # refuse() may have begun a new segment
        if subject_id >= subjects.count:
            raise IndexError("no such subject id")
        name = subjects.table[subject_id].state.name
        name_len = subjects.table[subject_id].state.name_len
        if name_len > 65535 or hlen > body_len or <uint64_t>name_len + body_len > RECORD_MAX_BYTES - SEALED_EXTRA_BYTES:
            raise ValueError("the subject has more than 65535 bytes, or the message more than 64 MiB")
        n = name_len + body_len
        length = n + self.record_extra
        if (s.size + length > self.segment_bytes and s.count) or s.count >= GAP_MAX:
            self.files.roll(seq)
            s = self.files.active
        # The steps that can fail come first.
        if s.count == s.cap:
            s.reserve(1)
        out = &s.memory if self.memory else &self.tail.out
        p = out_reserve(out, length)
        if subjects.table[subject_id].seen != s.serial:
            subjects.seen_in(s, subject_id)
        subjects.appended(subject_id, seq)
        head.length = length
        head.kind = MESSAGE
        head.state = self.record_state
        head.flags = flags
        head.subject_len = <uint16_t>name_len
        head.mark = RECORD_MARK
        head.hlen = hlen
        head.seq = seq
        head.ts_ns = ts_ns
        memcpy(p, &head, RECORD_HEAD_BYTES)
        memcpy(p + RECORD_HEAD_BYTES, name, name_len)
        memcpy(p + RECORD_HEAD_BYTES + name_len, body, body_len)
        if self.checks:
            seal_record(p, length, s.salt)
        elif self.record_state:
            memset(p + RECORD_HEAD_BYTES + n, 0, TAG_BYTES)
        out.len += length
        push(s, <uint32_t>s.size, subject_id, n | (HAS_HEADERS if hlen else 0))
        n += self.size_extra + (self.header_extra if hlen else 0)
        appended(s, length, n, ts_ns)
        self.msgs += 1
        self.bytes += n
        use(self.quota, n)
        self.appended += 1
        accepted(self.span, seq, ts_ns)
        self.subject_ids = subjects.count
        self.subject_count = subjects.live
        if not self.memory and self.tail.out.len - self.tail.written > EARLY_BYTES:
            self.files.write_early()
        return seq

    cdef int skip_to(self, uint64_t next_seq) except -1:
        cdef uint64_t gap
        if self.state.condition != TAKES or (self.disk is not None and self.disk.spent):
            self.files.refuse()
        if next_seq <= self.span.last_seq:
            raise ValueError(f"sequence {next_seq} is taken: the last sequence is {self.span.last_seq}")
        gap = next_seq - 1 - self.span.last_seq
        if gap == 0:
            return 0
        if gap > HOLES_MAX or self.files.active.count + gap > GAP_MAX:
            self.files.roll(next_seq)
            if not self.memory:
                # Recorded in the new segment: else recovery would take the gap before it for a missing file.
                self.removals.add(next_seq - gap, gap)
        else:
            self.files.active.push_holes(<uint32_t>gap)
            if not self.memory:
                self.tail.skip(self.files.active, next_seq - gap, next_seq - 1, False)
        self.span.raise_last(next_seq - 1, 0)
        if self.msgs == 0:
            self.span.first_is(next_seq)
        return 0

    # --- read ------------------------------------------------------------------------------------

    cdef const char* record_at(self, Segment s, uint32_t i) except? NULL:
        cdef Entry* e
        cdef uint32_t length
        cdef const char* p
        cdef Head head
        if s.entries == NULL:
            self.segments.need(s)
        e = &s.entries[i]
        if self.memory:
            return s.memory.data + e.offset
        length = (e.size & SIZE_MASK) + s.extra
        if s is self.files.active and e.offset >= self.tail.base:
            return self.tail.out.data + (e.offset - self.tail.base) if e.offset - self.tail.base + length <= self.tail.out.len else NULL
        p = self.pages.get(self.segments, s, e.offset, length)
        if p == NULL or check_record(p, length, s.salt, &head) != length or head.seq != s.first + i or head.kind != MESSAGE or (
                head.state & ERASED):
            return NULL
        if s.aead is None:
            if head.state & SEALED:
                return NULL
            return p
        return open_record(s.aead, self.cipher, p, &self.unsealed)

    cdef int read(self, uint64_t seq, Record* out) except -1:
        cdef Segment s = self.reading
        cdef uint64_t i
        cdef const char* p
        cdef Head head
        if seq < self.span.first_seq or seq > self.span.last_seq:
            return 0
        if seq < s.first or seq - s.first >= s.count:
            s = self.segments.find(seq)
            if s is None:
                return 0
            self.reading = s
        i = seq - s.first
        if not is_live(s, i):
            return 0
        p = self.record_at(s, <uint32_t>i)
        if p == NULL:
            if is_live(s, i):                # need() may have rebuilt the index and found the message damaged
                self.drop_unreadable(s, <uint32_t>i)
            return 0
        memcpy(&head, p, RECORD_HEAD_BYTES)
        out.seq = seq
        out.ts_ns = head.ts_ns
        out.subject = p + RECORD_HEAD_BYTES
        out.subject_len = head.subject_len
        out.subject_id = s.entries[i].subject
        out.body = p + RECORD_HEAD_BYTES + head.subject_len
        out.hlen = head.hlen
        out.body_len = head.length - s.extra - head.subject_len
        out.flags = head.flags
        return 1

    cdef uint64_t next_live(self, uint64_t seq) noexcept:
        if seq <= self.span.first_seq:
            return self.span.first_seq if self.msgs else 0
        if seq > self.span.last_seq:
            return 0
        return self.segments.next_live(seq)

    cdef uint64_t next_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t wanted_len) except? 18446744073709551615:
        seq = max(seq, self.span.first_seq)
        stop = min(stop, self.span.last_seq)
        if seq > stop:
            return 0
        return self.segments.next_wanted(seq, stop, wanted, wanted_len)

    cdef int peek(self, uint64_t seq, uint32_t* subject_id, uint32_t* size) except -1:
        cdef Segment s
        cdef Entry* e
        if seq < self.span.first_seq or seq > self.span.last_seq:
            return 0
        s = self.segments.find(seq)
        if s is None or not is_live(s, seq - s.first):
            return 0
        self.segments.need(s)
        if not is_live(s, seq - s.first):    # need() has rebuilt the index and found the message damaged
            return 0
        e = &s.entries[seq - s.first]
        subject_id[0] = e.subject
        size[0] = (e.size & SIZE_MASK) + self.size_extra + (self.header_extra if e.size & HAS_HEADERS else 0)
        return 1

    # --- remove ----------------------------------------------------------------------------------

    cdef int remove(self, uint64_t seq) except -1:
        cdef Segment s
        if seq < self.span.first_seq or seq > self.span.last_seq:
            return 0
        s = self.segments.find(seq)
        if s is None or not is_live(s, seq - s.first):
            return 0
        if s.entries == NULL:
            self.segments.need(s)
            if not is_live(s, seq - s.first):
                return 0
        if not self.memory:
            ranges_add(&self.removals.ranges, seq, 1)        # runs once per removal: as Removals.add(), without the call
        self.drop(s, <uint32_t>(seq - s.first))
        return 1

    cdef int drop(self, Segment s, uint32_t i) except -1:
        cdef Entry* e = &s.entries[i]
        cdef uint64_t seq = s.first + i
        cdef uint32_t n = (e.size & SIZE_MASK) + self.size_extra + (self.header_extra if e.size & HAS_HEADERS else 0)
        s.drop(i, n, self.marks.write_mark + 1)
        self.msgs -= 1
        self.bytes -= n
        use(self.quota, -<int64_t>n)
        self.removed += 1
        self.subjects_table.removed(e.subject, seq)
        self.subject_count = self.subjects_table.live
        if seq == self.span.first_seq:
            self.span.first_is(self.segments.next_live(seq + 1) if self.msgs else 0)
        if s.live == 0 and s is not self.files.active and not s.damaged:
            self.retire(s)             # a damaged segment stays: its bytes are all that is left of lost messages
        return 0

    cdef int retire(self, Segment s) except -1:
        self.files.retire(s)
        if self.reading is s:
            self.reading = self.files.active
        return 0

    cdef int drop_unreadable(self, Segment s, uint32_t i) except -1:
        # record_at() found no message. An erased one was removed: that record is damaged, and the index file is older than the removal.
        cdef uint32_t length = (s.entries[i].size & SIZE_MASK) + s.extra
        cdef const char* p = self.pages.get(self.segments, s, s.entries[i].offset, length)
        cdef Head head
        if p != NULL and check_record(p, length, s.salt, &head) == length and head.seq == s.first + i and head.state & ERASED:
            return self.remove(s.first + i)
        return self.quarantine(s, i, "checksum mismatch")

    cdef int quarantine(self, Segment s, uint32_t i, str reason) except -1:
        # The record is damaged on the disk: the message counts as lost from now on. The log writes nothing about it.
        s.mark_damaged(True)
        self.removals.lost.append((s.first + i, 1, reason))
        return self.drop(s, i)

    # --- per subject -----------------------------------------------------------------------------

    cdef SubjectState* subject(self, uint32_t subject_id) except? NULL:
        return self.subjects_table.state(subject_id)

    cdef int64_t find_subject(self, const char* subject, uint32_t n) noexcept:
        return self.subjects_table.find(subject, n)

    # --- counts ----------------------------------------------------------------------------------

    cdef uint64_t live_from(self, uint64_t seq) except? 18446744073709551615:
        cdef Segment s
        cdef uint64_t total = 0
        cdef Py_ssize_t k
        if seq <= self.span.first_seq:
            return self.msgs
        for k in range(self.segments.position(seq), len(self.segments.items)):
            s = <Segment>self.segments.items[k]
            total += s.live - (s.live_below(<uint32_t>(seq - s.first)) if seq > s.first else 0)
        return total

    cdef uint64_t wanted_from(self, uint64_t seq, const uint8_t* wanted, uint32_t wanted_len) except? 18446744073709551615:
        # Counts the shorter side of seq; the total comes from the subject table.
        cdef uint64_t total = 0
        cdef uint32_t id
        if seq > self.span.last_seq:
            return 0
        if seq > self.span.first_seq and self.span.last_seq - seq < seq - self.span.first_seq:
            return self.segments.count_wanted(seq, self.span.last_seq, wanted, wanted_len)
        for id in range(min(wanted_len, self.subjects_table.count)):
            if wanted[id]:
                total += self.subjects_table.table[id].state.msgs
        if seq > self.span.first_seq:
            total -= self.segments.count_wanted(self.span.first_seq, seq - 1, wanted, wanted_len)
        return total

    cdef uint64_t seq_at(self, uint64_t ts_ns) except? 18446744073709551615:
        # Assumes ascending timestamps. In a stream where they do not ascend, the answer is one place where they pass ts_ns.
        cdef Segment s
        cdef uint32_t low, high, mid, probe
        cdef Record r
        for s in list(self.segments.items):
            if s.live == 0 or s.last_ts < ts_ns:
                continue
            low = 0
            high = s.count
            while low < high:
                mid = (low + high) >> 1
                probe = s.next_live(mid)
                while probe < s.count and not self.read(s.first + probe, &r):
                    probe = s.next_live(probe + 1)
                if probe >= high or r.ts_ns >= ts_ns:
                    high = mid
                else:
                    low = probe + 1
            low = s.next_live(low)
            if low < s.count:
                return s.first + low
        return self.span.last_seq + 1

    cdef void count_segment(self, Segment s) noexcept:
        self.msgs += s.live
        self.bytes += s.live_bytes

    cdef int count_anew(self) except -1:
        cdef Segment s
        cdef uint64_t msgs = 0, bytes = 0
        for s in self.segments.items:
            msgs += s.live
            bytes += s.live_bytes
        use(self.quota, <int64_t>bytes - <int64_t>self.bytes)
        self.removed += self.msgs - msgs
        self.msgs = msgs
        self.bytes = bytes
        self.subject_count = self.subjects_table.live
        self.span.first_is(self.segments.next_live(self.span.first_seq) if msgs else 0)
        return 0

    cdef int end_counting(self) except -1:
        self.removed = 0
        self.subject_count = self.subjects_table.live
        self.subject_ids = self.subjects_table.count
        self.segments.make_room(None)
        self.span.first_is(self.segments.next_live(1) if self.msgs else 0)
        self.marks.written(self.span.last_seq)
        return 0

    # --- the Python face -------------------------------------------------------------------------

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

    def guard_with(self, guard: object, above: int = 0) -> None:
        """Ask `guard` about messages with a sequence above `above` before their removal is written; None: ask nothing."""
        self.removals.guarded_by(guard)
        self.removals.guard_from(above)

    @property
    def first_seq(self) -> int:
        """Lowest live sequence; last_seq + 1 when the log is empty."""
        return self.span.first_seq

    @property
    def last_seq(self) -> int:
        """Highest accepted sequence; 0 for a new log."""
        return self.span.last_seq

    @property
    def last_ts_ns(self) -> int:
        """Timestamp of the last message appended; 0: none is known."""
        return self.span.last_ts_ns

    def defer(self, error: OSError, call: object) -> None:
        """The disk refused a write with `error`: `call` repeats it before the next append (None: the next write repeats it)."""
        self.files.defer(error, call)

    @property
    def first_ts_ns(self) -> int:
        """Timestamp of the first live message; 0 when there is none, or when it cannot be read."""
        cdef Record r
        try:
            return r.ts_ns if self.msgs and self.read(self.span.first_seq, &r) else 0
        except OSError:
            return 0

    def sync_start(self) -> tuple[list[int], int]:
        """Begin a sync for a worker thread: (handles to fdatasync, the `upto` for sync_done). No handles: nothing to do."""
        cdef int handles[16]
        cdef uint64_t upto = self.marks.synced_seq
        cdef int k, n = self.files.sync_begin(handles, 16, &upto)
        return [handles[k] for k in range(n)], upto

    def sync_done(self, upto: int, error: int = 0) -> None:
        """End the sync of sync_start. `error`: its errno; then this call and every append raise LogClosed until mend() succeeds."""
        self.files.sync_end(upto, error)

    def add(self, ts_ns: int, subject: str, payload: bytes, headers: bytes = b"") -> int:
        """Append one message; return its sequence."""
        cdef bytes name = subject.encode("utf-8", "surrogateescape")
        cdef bytes body = headers + payload
        return self.append(ts_ns, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name), PyBytes_AS_STRING(body),
                           len(headers), PyBytes_GET_SIZE(body), 0)

    def get(self, seq: int) -> object:
        """One message; None when there is no live message with this sequence."""
        cdef Record r
        if seq < 1 or seq > self.span.last_seq or not self.read(seq, &r):
            return None
        return StoredMessage(seq, r.ts_ns, r.subject[:r.subject_len].decode("utf-8", "surrogateescape"),
                             r.body[:r.hlen], r.body[r.hlen:r.body_len])

    def join(self, Quota quota) -> None:
        """Count the bytes of the log in `quota` from now on, and no longer in the previous one; None: in no quota."""
        if quota is None:
            quota = Quota()
        use(self.quota, -<int64_t>self.bytes)
        self.quota = quota
        use(quota, <int64_t>self.bytes)

    def skip(self, next_seq: int) -> None:
        """The next message gets the sequence `next_seq`; the sequences that are skipped have no message."""
        self.skip_to(next_seq)

    def flush(self) -> None:
        """Write everything accepted to the file."""
        self.files.write()

    def fsync(self) -> None:
        """Write everything accepted to the file, and sync it."""
        self.files.sync()

    def at_time(self, ts_ns: int) -> int:
        """The lowest live sequence with this timestamp or a later one; last_seq + 1 when there is none."""
        return self.seq_at(min(max(ts_ns, 0), (1 << 63) - 1))

    def deleted_count(self) -> int:
        """The number of sequences between first_seq and last_seq without a live message."""
        return self.span.last_seq + 1 - self.span.first_seq - self.msgs

    def size_of(self, seq: int) -> int:
        """The accounted size of a live message (its part of `bytes`); 0 when there is none."""
        cdef uint32_t id, size
        return size if 0 < seq <= self.span.last_seq and self.peek(seq, &id, &size) else 0
