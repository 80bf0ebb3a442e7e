"""Reading segment files without a server. The readers write nothing, repair nothing on the disk and keep no file open.

    SegmentReader    reads one file record by record; damaged bytes are a step of their own
    LogReader        reads a folder: core/log/recovery opens the log on an overlay that keeps writes in memory (core/base/readonly_disk),
                     so the reader sees exactly what the next start would find. It then reads messages from the files, with the bytes
                     of one segment in memory at a time

With `quick`, a segment with a valid index file is taken from the index file, as at a start; damage inside it is not found then.
Without, every index file counts as doubtful: each record is read, and the index file is only evidence.

Knows nothing of servers or of the configuration of streams.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, crc32c, out_free
from pelton.core.base.disk cimport Disk
from pelton.core.base.readonly_disk cimport OverlayDisk
from pelton.core.bulk.columns cimport Columns
from pelton.core.log.compressed_segment cimport Packed, ends_packed, open_packed, pack
from pelton.core.log.log cimport Log, Record
from pelton.core.log.record cimport (
    ERASED, GAP_MAX, MESSAGE, RECORD_EXTRA_BYTES, RECORD_HEAD_BYTES, SEALED_HEAD_BYTES, SEGMENT_HEAD_BYTES, SKIP, check_record,
    get_segment_head, is_packed_head, is_sealed_head, mend_segment_head, put_segment_head, resync,
)
from pelton.core.log.segment cimport Segment, is_live
from pelton.core.log.subject_table cimport SubjectTable
from pelton.core.protocol.subjects cimport subject_matches

from pelton.core.log.checksum_repair import mend_record
from pelton.core.log.losses import is_segment_name
from pelton.core.log.recovery import open_log

HEAD_BYTES = SEGMENT_HEAD_BYTES

INDEX_HEAD_BYTES = 112            # core/log/index_file

cdef enum:
    DOUBT_AT = 104
    CHECK_AT = 108


# --- one file ------------------------------------------------------------------------------------

cdef class SegmentReader:
    """The records of one segment, one after the other."""

    def __init__(self, Disk disk, str path, uint64_t first, object cipher=None, *, uint64_t low=0, uint64_t high=0) -> None:
        """Read the file; OSError."""
        self.path = path
        self.low, self.high = low, high
        self.first = self.expected = first
        self.load(disk, cipher)

    cdef int load(self, Disk disk, object cipher) except -1:
        cdef int handle = disk.open(self.path, False)
        cdef char* head
        cdef uint64_t named = 0
        cdef int64_t got
        cdef Packed packed
        cdef bint good
        cdef char[SEGMENT_HEAD_BYTES] copy
        self.begins = SEGMENT_HEAD_BYTES
        try:
            self.stored = self.size = disk.size(handle)
            self.data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>max(0 if self.low else self.stored, <uint64_t>SEGMENT_HEAD_BYTES))
            head = PyBytes_AS_STRING(self.data)
            got = disk.read_at(handle, head, SEGMENT_HEAD_BYTES, 0)
            self.unmade = got < SEGMENT_HEAD_BYTES
            good = get_segment_head(head, got, &named, &self.salt)
            if not good and not self.unmade:
                # corrects a copy: `data` stays as it is in the file
                memcpy(copy, head, SEGMENT_HEAD_BYTES)
                good = self.mended = mend_segment_head(copy, &named, &self.salt)
                if good:
                    head = copy
            if good and is_sealed_head(head):
                self.sealed = True
                self.begins = SEALED_HEAD_BYTES
                self.locked = is_packed_head(head) and cipher is None
            if self.locked:
                self.packed = True
                got = 0                          # its records cannot be read
            elif good and is_packed_head(head) or not good and ends_packed(disk, handle):
                packed = open_packed(disk, handle, cipher if self.sealed else None, self.path)
                self.packed = True
                self.size = packed.size
                if good and self.low:
                    self.base = self.low
                    got = self.part_end(packed.size) - self.low
                    self.data = PyBytes_FromStringAndSize(NULL, got)
                    got = self.low + packed.read_at(disk, handle, PyBytes_AS_STRING(self.data), got, self.low)
                    return self.ready(got, named == self.first)
                self.data = PyBytes_FromStringAndSize(NULL, packed.size)
                head = PyBytes_AS_STRING(self.data)
                got = packed.read_at(disk, handle, head, packed.size, 0)
                self.mended_blocks = packed.mended
                if not good:
                    good = self.mended = get_segment_head(head, got, &named, &self.salt)
            elif good and self.low:
                self.base = self.low
                got = self.part_end(self.stored) - self.low
                self.data = PyBytes_FromStringAndSize(NULL, got)
                got = self.low + disk.read_at(handle, PyBytes_AS_STRING(self.data), got, self.low)
                return self.ready(got, named == self.first)
            elif not self.unmade:
                if self.low:
                    self.data = self.data[:SEGMENT_HEAD_BYTES] + bytes(max(0, <Py_ssize_t>self.stored - SEGMENT_HEAD_BYTES))
                head = PyBytes_AS_STRING(self.data)
                got += disk.read_at(handle, head + SEGMENT_HEAD_BYTES, self.stored - SEGMENT_HEAD_BYTES, SEGMENT_HEAD_BYTES)
            return self.ready(got, good and named == self.first)
        finally:
            disk.close(handle)

    cdef uint64_t part_end(self, uint64_t size) noexcept:
        self.low = min(self.low, size)
        return max(self.low, min(self.high, size) if self.high else size)

    cdef int ready(self, int64_t end, bint good) except -1:
        # Everything up to `end` is in memory.
        self.headless = not good
        self.p = PyBytes_AS_STRING(self.data) - self.base
        self.end = <size_t>end
        self.at = max(self.base, min(self.begins, self.end))
        return 0

    cdef int step(self) noexcept nogil:
        cdef uint32_t n
        self.record = self.at
        if self.at >= self.end:
            return AT_END
        n = check_record(self.p + self.at, self.end - self.at, self.salt, &self.head)
        if n and self.head.kind == MESSAGE and (self.head.seq < self.expected or self.head.seq - self.expected > GAP_MAX):
            n = 0
        if n == 0:
            self.at = resync(self.p, self.at, self.end, self.salt, self.expected)
            return DAMAGE
        self.at += n
        if self.head.kind == MESSAGE or (
                self.head.kind == SKIP and self.head.seq >= self.expected and self.head.seq - self.expected < GAP_MAX):
            self.expected = self.head.seq + 1
        return self.head.kind

    def piece(self, at: int, end: int) -> bytes:
        """Bytes of the segment, decompressed."""
        return self.data[at - <Py_ssize_t>self.base:end - <Py_ssize_t>self.base]

    def sound(self) -> bool:
        """Whether no damaged bytes come before the end, or before an unfinished end."""
        cdef int kind
        if self.headless:
            return self.unmade
        while True:
            kind = self.step()
            if kind == AT_END:
                return True
            if kind == DAMAGE and self.at < self.end:
                return False

    def steps(self) -> list[tuple]:
        """(kind, offset, end, sequence, time) of every record; kind 16: damaged bytes, without the last two."""
        cdef int kind
        found = []
        while True:
            kind = self.step()
            if kind == AT_END:
                return found
            if kind == DAMAGE:
                found.append((kind, self.record, self.at, 0, 0))
            else:
                found.append((kind, self.record, self.at, self.head.seq, self.head.ts_ns))


def segment_head(first: int, salt: int) -> bytes:
    """The head of a segment that is not compressed."""
    cdef Out out
    memset(&out, 0, sizeof(Out))
    try:
        put_segment_head(&out, first, salt)
        return PyBytes_FromStringAndSize(out.data, out.len)
    finally:
        out_free(&out)


def pack_segment(bytes data) -> bytes:
    """The compressed file of a segment's bytes."""
    return pack(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), None)


# --- a folder ------------------------------------------------------------------------------------

cdef class SegmentScan:
    """One segment as the log has it, and its damage."""


def doubted(head: bytes) -> bytes:
    """The head of an index file, marked as doubtful; other bytes are returned unchanged."""
    cdef uint32_t crc
    if len(head) < INDEX_HEAD_BYTES:
        return head
    made = head[:DOUBT_AT] + (1).to_bytes(4, "little")
    crc = crc32c(PyBytes_AS_STRING(head), CHECK_AT, 0)
    if head[CHECK_AT:INDEX_HEAD_BYTES] != int(crc).to_bytes(4, "little"):
        return head
    crc = crc32c(PyBytes_AS_STRING(made), CHECK_AT, 0)
    return made + int(crc).to_bytes(4, "little")


cdef class LogReader:
    """The messages of a folder as an opening would find them, and a position in them."""

    def __init__(self, Disk disk, str folder, *, bint quick=False, bint survey=True, progress=None, cipher=None,
                 bint numbered=False) -> None:
        """Open it; see the stub."""
        cdef list names = disk.list_dir(folder)
        cdef dict by_first = {}
        cdef Segment segment
        cdef SegmentScan s
        cdef Py_ssize_t k
        self.disk = disk
        self.folder = folder
        self.overlay = OverlayDisk(disk, forget=".idx", progress=progress)
        if not quick:
            for name in names:
                if name.endswith(".idx") and is_segment_name(name[:20] + ".seg") and len(name) == 24:
                    path = f"{folder}/{name}"
                    self.overlay.patch(path, doubted(self.overlay.read_start(path, INDEX_HEAD_BYTES)))
        self.cipher = cipher
        self.log = open_log(folder, self.overlay, create=False, cipher=cipher, numbered=numbered)
        self.wanted = {}
        self.patterns = ()
        self.segments = []
        self.seek(1)
        if not survey:
            return
        for segment in self.log.segments.items + self.log.files.retired.items:
            by_first[segment.first] = segment
        self.segments = [self.facts_of(int(name[:20]), by_first) for name in names if is_segment_name(name)]
        for k in range(len(self.segments)):
            s = <SegmentScan>self.segments[k]
            segment = by_first.get(s.first)
            if segment is None or segment.damaged or k == len(self.segments) - 1:
                self.find_faults(s, segment, (<SegmentScan>self.segments[k + 1]).first if k + 1 < len(self.segments) else 0)

    cdef SegmentScan facts_of(self, uint64_t first, dict by_first):
        cdef SegmentScan s = SegmentScan()
        cdef Segment segment = by_first.get(first)
        cdef int handle
        s.first = first
        s.path = f"{self.folder}/{first:020d}.seg"
        s.faults = []
        handle = self.disk.open(s.path, False)
        try:
            s.size = s.stored = self.disk.size(handle)
        finally:
            self.disk.close(handle)
        if segment is None:
            s.headless = True
            return s
        s.count, s.live, s.live_bytes, s.salt = segment.count, segment.live, segment.live_bytes, segment.salt
        s.packed = segment.packed is not None
        if s.packed:
            s.size = segment.packed.size
        return s

    cdef int find_faults(self, SegmentScan s, Segment segment, uint64_t following) except -1:
        # Finds the damaged bytes of a segment and the lost sequences that belong to them.
        cdef SegmentReader r = SegmentReader(self.disk, s.path, s.first, self.cipher)
        cdef int kind = DAMAGE
        cdef uint64_t low = s.first
        cdef list run = []
        s.mended = r.mended or (r.headless and s.salt != 0)
        s.headless = r.headless and not s.mended
        s.packed, s.size, s.mended_blocks = r.packed, r.size, r.mended_blocks
        if s.headless:
            if not r.unmade:
                s.faults.append((0, r.end, self.lost_in(s.first, following or self.log.span.last_seq + 1), False))
            return 0
        r.salt = s.salt if s.salt else r.salt
        while kind != AT_END:
            kind = r.step()
            if kind == DAMAGE:
                fixed = mend_record(r.data[r.record:r.at], r.salt)
                run.append((r.record, r.at, fixed is not None))
                continue
            if kind == AT_END:
                r.expected = following or self.log.span.last_seq + 1
            elif kind == MESSAGE:
                r.expected = r.head.seq
            if run and r.expected > low or kind == AT_END or kind == MESSAGE:
                lost = self.lost_in(low, r.expected)
                for at, end, mendable in run:
                    s.faults.append((at, end, lost, mendable))
                    lost = []
                run = []
            if kind == MESSAGE:
                r.expected = r.head.seq + 1
            low = r.expected
        return 0

    def lost_in(self, uint64_t low, uint64_t high) -> list:
        """The parts of `lost` from sequence `low` on, below `high`."""
        parts = []
        for first, count, reason in self.log.lost:
            if count == 0 and low <= first <= high:
                parts.append((first, 0, reason))
            elif first < high and first + count > low:
                start = max(first, low)
                parts.append((start, min(first + count, high) - start, reason))
        return parts

    @property
    def lost(self) -> list:
        """Runs of lost sequences: (first sequence, count, reason)."""
        return self.log.lost

    def live_sum(self, uint64_t first) -> int:
        """A checksum of the sequences of the live messages of a segment."""
        cdef Segment s = self.log.segments.find(first)
        cdef uint64_t seq
        cdef uint32_t total = 0, i
        if s is None:
            return 0
        i = s.next_live(0)
        while i < s.count:
            seq = s.first + i
            total = crc32c(<const char*>&seq, 8, total)
            i = s.next_live(i + 1)
        return total

    def close(self) -> None:
        """Close the files that are open; the reader cannot be used afterwards."""
        self.current = None
        self.log.files.close_handles()

    # --- messages --------------------------------------------------------------------------------

    def seek(self, uint64_t seq) -> None:
        """The next fill begins with the first message of that sequence or a higher one."""
        self.next_seq = seq
        self.current = None
        self.index = self.log.segments.position(seq) - 1

    cdef bint find_segment(self, uint64_t upto) except -1:
        # Makes `current` read the segment of next_seq, or the next one with messages; False: there is none.
        cdef Segment s
        cdef list items = self.log.segments.items
        cdef uint64_t low = 0, high = 0
        cdef uint32_t i
        while self.index + 1 < len(items):
            self.index += 1
            s = <Segment>items[self.index]
            if upto and s.first > upto:
                self.index -= 1
                break
            if s.live and s.first + s.count > self.next_seq:
                i = self.part_of(s, upto, &low, &high)
                self.current = SegmentReader(
                    self.overlay, self.log.segments.path(s, ".seg"), s.first, self.cipher, low=low, high=high)
                self.current.salt = s.salt
                if self.current.base:
                    self.current.expected = s.first + i
                self.segment = s
                return True
        self.current = None
        return False

    cdef uint32_t part_of(self, Segment s, uint64_t upto, uint64_t* low, uint64_t* high) except? 4294967295:
        # Sets the byte range of the messages from next_seq to `upto`, if that is a part of the segment; returns the index of the first.
        cdef uint32_t i, k = s.count
        low[0] = high[0] = 0
        if self.next_seq <= s.first and (upto == 0 or upto >= s.first + s.count - 1):
            return 0
        self.log.segments.need(s)
        i = s.next_live(<uint32_t>(self.next_seq - s.first) if self.next_seq > s.first else 0)
        if i >= s.count or s.entries[i].offset < s.begins:
            return 0
        if upto and upto >= s.first and upto - s.first + 1 < s.count:
            k = <uint32_t>(upto - s.first + 1)
            while k < s.count and s.entries[k].offset == 0:
                k += 1
        if k < s.count and s.entries[k].offset <= s.entries[i].offset:
            return 0
        low[0] = s.entries[i].offset
        high[0] = s.entries[k].offset if k < s.count else 0
        return i

    cdef bint wants(self, const char* subject, size_t n) except -1:
        cdef bytes name = PyBytes_FromStringAndSize(subject, n)
        cdef bytes pattern
        known = self.wanted.get(name)
        if known is None:
            known = False
            for pattern in self.patterns:
                known = known or subject_matches(subject, n, PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern))
            if len(self.wanted) > 100000:
                self.wanted.clear()
            self.wanted[name] = known
        return known

    def fill(self, Columns columns, *, uint64_t upto=0, tuple patterns=(), uint64_t since_ns=0, uint64_t until_ns=0,
             bint payloads=True) -> bool:
        """Add live messages until the columns are full; see the stub."""
        cdef Segment s
        cdef SegmentReader r
        cdef int kind
        cdef uint64_t i
        cdef int64_t[5] numbers
        cdef const char* subject
        cdef Record opened
        cdef uint32_t length
        memset(numbers, 0, sizeof(numbers))
        if patterns != self.patterns:
            self.patterns = patterns
            self.wanted = {}
        while not columns.is_full():
            if self.current is None and not self.find_segment(upto):
                return False
            r = self.current
            s = self.segment
            kind = r.step()
            if kind == AT_END:
                self.current = None
                if r.base and r.high:
                    self.next_seq = max(self.next_seq, upto + 1)
                    self.index -= 1                      # the next read begins with the rest of this segment
                    return False
                continue
            if kind == DAMAGE and (r.at < r.end or s is not self.log.files.active):
                self.damages += 1
            if kind != MESSAGE or r.head.seq < self.next_seq:
                continue
            i = r.head.seq - s.first
            if i >= s.count or not is_live(s, i) or r.head.state & ERASED:
                continue
            if upto and r.head.seq > upto:
                r.at = r.record                      # the next read begins with this record
                r.expected = r.head.seq
                return False
            if r.head.ts_ns < since_ns or (until_ns and r.head.ts_ns >= until_ns):
                continue
            if r.sealed:
                if not self.log.read(r.head.seq, &opened):
                    self.damages += 1
                    continue
                subject, length = opened.subject, opened.body_len
            else:
                subject = r.p + r.record + RECORD_HEAD_BYTES
                length = r.head.length - RECORD_EXTRA_BYTES - r.head.subject_len
            if self.patterns and not self.wants(subject, r.head.subject_len):
                continue
            if not payloads:
                length = r.head.hlen
            numbers[1] = <int64_t>r.head.seq
            numbers[3] = <int64_t>r.head.ts_ns
            columns.put(subject, r.head.subject_len, subject + r.head.subject_len, r.head.hlen, length, numbers)
            self.next_seq = r.head.seq + 1
        return True

    def fill_subjects(self, Columns columns, *, uint64_t upto=0, tuple patterns=()) -> bool:
        """Add sequences and subjects alone, from the entries; see the stub."""
        cdef list items = self.log.segments.items
        cdef SubjectTable table = self.log.subjects_table
        cdef Segment s
        cdef uint32_t i
        cdef uint32_t id
        cdef uint64_t seq
        cdef int64_t[5] numbers
        cdef const char* name
        memset(numbers, 0, sizeof(numbers))
        if patterns != self.patterns:
            self.patterns = patterns
            self.wanted = {}
        k = self.log.segments.position(self.next_seq)
        while k < len(items):
            s = <Segment>items[k]
            if upto and s.first > upto:
                return False
            self.log.segments.need(s)
            i = s.next_live(<uint32_t>(self.next_seq - s.first) if self.next_seq > s.first else 0)
            while i < s.count:
                seq = s.first + i
                if upto and seq > upto:
                    return False
                if columns.is_full():
                    return True
                id = s.entries[i].subject
                name = table.table[id].state.name
                self.next_seq = seq + 1
                if not self.patterns or self.wants(name, table.table[id].state.name_len):
                    numbers[1] = <int64_t>seq
                    columns.put(name, table.table[id].state.name_len, name, 0, 0, numbers)
                i = s.next_live(i + 1)
            self.next_seq = max(self.next_seq, s.first + s.count)
            k += 1
        return False
