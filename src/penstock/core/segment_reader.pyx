"""Segment files read without a log: nothing is written, mended on disk, or kept open.

    SegmentReader    one file, record by record; damaged bytes are a step of their own
    SegmentScan      what one file holds, and which of its messages live
    LogReader        all of a folder: the newest segment is looked at first, since removals are told in the segment of a
                     message or a newer one; one segment's bytes are in memory at a time, of the others a bit per message

What is found is what core/recovery finds when it opens the log: the same live messages, the same sequences lost. A segment
whose index file holds is taken from it when asked so (`quick`), as an opening does; damage inside it is then not seen.

Sealed bytes: an `Opener` gives the plain subject and body of a record. Everything else works without one, since offsets,
sequences and checksums are those of what is in the file.

Knows nothing of servers, of streams' configuration, or of who asks.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset
from penstock.core.columns cimport Columns
from penstock.core.disk cimport Disk
from penstock.core.packed cimport Packed, open_packed
from penstock.core.record cimport (
    ERASED, GAP_MAX, MESSAGE, MORE, RECORD_EXTRA_BYTES, RECORD_HEAD_BYTES, REMOVE, SEGMENT_HEAD_BYTES, SKIP, Head, Range, Ranges,
    check_record, get_segment_head, is_packed_head, mend_segment_head, plausible, ranges_add, ranges_free, ranges_sort, resync,
)
from penstock.core.segment cimport Segment, SegmentList
from penstock.core.sidecar cimport Sidecar, read_ranges, read_sidecar
from penstock.core.subject_table cimport SubjectTable
from penstock.core.subjects cimport subject_matches

from penstock.core.lost import without

cdef enum:
    ACCOUNTED_BYTES = 30          # of a message besides subject, headers and payload, as core/log counts
    HEADERS_BYTES = 4


cdef inline bint bit(const uint8_t* bits, uint64_t i) noexcept:
    return (bits[i >> 3] >> (i & 7)) & 1


def is_segment_name(name: str) -> bool:
    """Whether a file name is a segment's: 20 digits and `.seg`."""
    return len(name) == 24 and name.endswith(".seg") and name[:20].isascii() and name[:20].isdigit()


cdef class Opener:
    """For files that hold plain bytes."""

    cdef bint open_record(self, SegmentReader segment, const char* record, Head* head, const char** subject, const char** body) except -1:
        subject[0] = record + RECORD_HEAD_BYTES
        body[0] = subject[0] + head.subject_len
        return True


# --- one file ------------------------------------------------------------------------------------

cdef class SegmentReader:
    """The records of one segment, one after the other."""

    def __init__(self, Disk disk, str path, uint64_t first) -> None:
        """Read the file; OSError."""
        self.path = path
        self.first = self.expected = first
        self.load(disk)

    cdef int load(self, Disk disk) except -1:
        cdef int handle = disk.open(self.path, False)
        cdef char* head
        cdef uint64_t named = 0
        cdef int64_t got
        cdef Packed packed
        try:
            self.stored = self.size = disk.size(handle)
            self.data = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>max(self.stored, <uint64_t>SEGMENT_HEAD_BYTES))
            head = PyBytes_AS_STRING(self.data)
            got = disk.read_at(handle, head, SEGMENT_HEAD_BYTES, 0)
            self.unmade = got < SEGMENT_HEAD_BYTES
            if not self.unmade and not get_segment_head(head, got, &named, &self.salt):
                self.mended = mend_segment_head(head, &named, &self.salt)
                self.headless = not self.mended
            self.headless = self.headless or self.unmade or named != self.first
            if not self.unmade and is_packed_head(head) and (self.mended or not self.headless):
                packed = open_packed(disk, handle)
                self.packed = True
                self.size = packed.size
                self.data = PyBytes_FromStringAndSize(NULL, packed.size)
                got = packed.read_at(disk, handle, PyBytes_AS_STRING(self.data), packed.size, 0)
            elif not self.unmade:
                got += disk.read_at(handle, head + SEGMENT_HEAD_BYTES, self.stored - SEGMENT_HEAD_BYTES, SEGMENT_HEAD_BYTES)
        finally:
            disk.close(handle)
        self.p = PyBytes_AS_STRING(self.data)
        self.end = <size_t>got
        self.at = min(<size_t>SEGMENT_HEAD_BYTES, self.end)
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
        return self.data[at:end]

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


cdef uint64_t furthest(SegmentReader r) noexcept:
    # Without its salt no record can be believed; their heads still say how far the sequences went (as in core/recovery).
    cdef size_t at = 0
    cdef Head head
    cdef uint64_t last = r.first - 1
    while at + RECORD_EXTRA_BYTES <= r.end:
        if plausible(r.p + at, r.end - at, &head) and r.first <= head.seq <= last + GAP_MAX:
            if head.seq > last:
                last = head.seq
            at += head.length
        else:
            at += 1
    return last


# --- what it holds -------------------------------------------------------------------------------

cdef class SegmentScan:
    """What a segment holds, and which of its messages live."""

    def __cinit__(self) -> None:
        self.damaged = []
        self.faults = []
        self.missing = []

    def __dealloc__(self) -> None:
        free(self.gone)
        free(self.rows)

    cdef int push(self, Head* head) except -1:
        cdef void* grown
        cdef uint64_t cap
        if self.messages == self.row_cap:
            cap = self.row_cap * 2 if self.row_cap else 1024
            grown = realloc(self.rows, cap * sizeof(Row))
            if grown == NULL:
                raise MemoryError
            self.rows = <Row*>grown
            self.row_cap = cap
        self.rows[self.messages].seq = head.seq
        self.rows[self.messages].ts_ns = head.ts_ns
        # 0: erased, nothing to count
        self.rows[self.messages].size = 0 if head.state & ERASED else (
            head.length - RECORD_EXTRA_BYTES + ACCOUNTED_BYTES + (HEADERS_BYTES if head.hlen else 0))
        self.messages += 1
        return 0

    @property
    def lost(self) -> list[tuple[int, int, str]]:
        """(first sequence, count, reason) of what damage took."""
        return [part for _, _, parts in self.faults for part in parts]


cdef object claimed(const char* p, size_t avail, uint64_t expected):
    # The sequence a damaged record says it has, when that can be; else 0.
    cdef Head head
    if plausible(p, avail, &head) and head.kind == MESSAGE and expected <= head.seq <= expected + GAP_MAX:
        return head.seq
    return 0


cdef int missed(SegmentScan s, object claim, uint64_t first, uint64_t count, list run) except -1:
    # What a run of damage before a good record (or the end) has cost.
    if claim and first <= claim and (count == 0 or claim < first + count):
        s.missing.append((claim, 1, "checksum", run[0], run[1]))
    else:
        s.missing.append((first, count, "damaged bytes", run[0], run[1]))
    return 0


cdef int survey(SegmentScan s, SegmentReader r, Ranges* ranges) except -1:
    # Every record of the segment; its removals go to `ranges`.
    cdef int kind
    cdef uint64_t expected = r.expected
    cdef object bad = None
    cdef list run = None
    s.last_seq = r.first - 1
    s.good_end = r.at
    while True:
        kind = r.step()
        if kind == AT_END:
            break
        if kind == DAMAGE:
            s.damaged.append((r.record, r.at))
            if bad is None:
                run = [r.record, r.at]
                bad = claimed(r.p + r.record, r.end - r.record, expected)
                if bad and r.packed and plausible(r.p + r.record, r.end - r.record, &r.head) and (
                        r.head.length != r.at - r.record):
                    bad = 0                      # a damaged block takes more than the record that it begins in
            run[1] = r.at
            continue
        if kind == MESSAGE:
            if bad is not None:
                missed(s, bad, expected, r.head.seq - expected, run)
            bad = None
            if not r.head.state & MORE:
                s.group_at = 0
            elif s.group_at == 0:
                s.group_at = r.record
                s.group_index = s.messages
            s.push(&r.head)
            s.erased += r.head.state & ERASED
        elif kind == REMOVE:
            s.removals += 1
            take_ranges(r.p + r.record, &r.head, ranges)
        else:
            s.skips += 1
            if r.expected != expected and bad is not None:
                missed(s, bad, expected, r.expected - expected, run)
                bad = None
        if kind != MESSAGE and bad is not None:
            s.group_at = 0            # something whole behind the damage: the group was, too
        expected = r.expected
        s.last_seq = max(s.last_seq, r.head.seq)
        s.good_end = r.at
    s.count = expected - r.first
    s.bad_end = (bad, run) if bad is not None else None
    return 0


cdef int take_ranges(const char* p, Head* head, Ranges* ranges) except -1:
    cdef uint32_t k, n = (head.length - RECORD_EXTRA_BYTES) // sizeof(Range)
    cdef Range r
    for k in range(n):
        memcpy(&r, p + RECORD_HEAD_BYTES + k * sizeof(Range), sizeof(Range))
        ranges_add(ranges, r.first, r.count)
    return 0


# --- a folder ------------------------------------------------------------------------------------

cdef class LogReader:
    """The segments of a folder, and a place in their messages."""

    def __cinit__(self) -> None:
        memset(&self.ranges, 0, sizeof(Ranges))

    def __dealloc__(self) -> None:
        ranges_free(&self.ranges)

    def __init__(self, Disk disk, str folder, *, bint quick=False, Opener opener=None, progress=None) -> None:
        """Look at all segments; see the stub."""
        cdef list names = [name for name in disk.list_dir(folder) if is_segment_name(name)]
        cdef Py_ssize_t k
        cdef uint64_t following = 0, first
        cdef SegmentScan s
        self.disk = disk
        self.folder = folder
        self.opener = opener if opener is not None else Opener()
        self.segments = []
        self.lost = []
        self.wanted = {}
        self.patterns = ()
        self.index = -1
        for k in range(len(names) - 1, -1, -1):
            first = int(names[k][:20])
            s = self.look(first, following, quick)
            self.segments.append(s)
            following = first
            if progress is not None:
                progress(s.stored)
        self.segments.reverse()
        self.add_up(quick)

    cdef SegmentScan look(self, uint64_t first, uint64_t following, bint quick):
        # `following`: where the next segment starts; 0: this is the last one.
        cdef SegmentScan s = SegmentScan()
        cdef SegmentReader r
        s.first = first
        s.path = f"{self.folder}/{first:020d}.seg"
        if quick and following and take_index(self, s):
            self.apply_ranges(s)
            return s
        r = SegmentReader(self.disk, s.path, first)
        s.whole = True
        s.size, s.stored, s.packed = r.size, r.stored, r.packed
        s.headless, s.mended, s.unmade = r.headless, r.mended, r.unmade
        s.last_seq = first - 1
        if r.headless and (following or not r.unmade):
            s.last_seq = furthest(r)
            s.count = 0
            s.missing.append((first, s.last_seq - first + 1, "head of the segment", 0, r.end))
            s.damaged.append((0, r.end))
            s.good_end = r.end
        elif not r.unmade:
            survey(s, r, &self.ranges)
            if following and s.bad_end is not None:
                bad, run = s.bad_end
                missed(s, bad, first + s.count, following - first - s.count if following > first + s.count else 0, run)
            elif not following:
                self.note_tail(s, r)
        ranges_sort(&self.ranges)
        self.apply_ranges(s)
        return s

    cdef int note_tail(self, SegmentScan s, SegmentReader r) except -1:
        # The last segment: what a server's start cuts off and keeps aside (core/recovery).
        cdef uint64_t expected, first
        cdef Head head
        cdef size_t at
        cdef bint group = s.group_at != 0
        if s.packed:
            if s.bad_end is not None:
                missed(s, s.bad_end[0], s.first + s.count, 0, s.bad_end[1])
            return 0
        self.last_seq = max(s.last_seq, s.first + s.count - 1)
        if group:
            s.cut = s.messages - s.group_index
            s.messages = s.group_index
            s.good_end = s.group_at
            s.count = (s.rows[s.messages].seq if s.messages < s.row_cap else s.first) - s.first
        if s.bad_end is None:
            return 0
        expected = s.first + s.count
        if s.good_end >= s.size:      # damage before records that tell removals only: nothing is cut
            return missed(s, s.bad_end[0], expected, self.last_seq + 1 - expected, s.bad_end[1])
        at = s.damaged[len(s.damaged) - 1][0]
        if plausible(r.p + at, r.end - at, &head) and head.kind == MESSAGE and expected <= head.seq <= expected + GAP_MAX:
            self.last_seq = max(self.last_seq, head.seq)
            if head.length <= r.end - at:
                first = expected if group else head.seq
                s.faults.append((at, r.end, [(first, head.seq + 1 - first, "damaged at the end")]))
        return 0

    cdef int apply_ranges(self, SegmentScan s) except -1:
        # Removes what is named so far, and forgets what no older segment needs.
        cdef size_t k, kept = 0
        cdef uint64_t i, low, high, middle, end
        cdef Range* r
        cdef list known, parts
        if s.whole:
            s.gone_bits = s.messages
            s.gone = <uint8_t*>calloc((s.gone_bits >> 3) + 1, 1)
            if s.gone == NULL:
                raise MemoryError
            for i in range(s.messages):
                if s.rows[i].size == 0:
                    s.gone[i >> 3] |= 1 << (i & 7)
        for k in range(self.ranges.count):
            r = &self.ranges.items[k]
            end = r.first + r.count
            if end <= s.first:
                continue
            if not s.whole:
                for i in range(r.first - s.first if r.first > s.first else 0, min(end - s.first, s.gone_bits)):
                    s.gone[i >> 3] |= 1 << (i & 7)
                continue
            low, high = 0, s.messages
            while low < high:
                middle = (low + high) >> 1
                if s.rows[middle].seq < r.first:
                    low = middle + 1
                else:
                    high = middle
            while low < s.messages and s.rows[low].seq < end:
                s.gone[low >> 3] |= 1 << (low & 7)
                low += 1
        if s.missing:
            known = sorted((self.ranges.items[k].first, self.ranges.items[k].first + self.ranges.items[k].count)
                           for k in range(self.ranges.count))
            s.faults[:0] = [(at, upto, without(first, count, reason, known)) for first, count, reason, at, upto in s.missing]
        tally(s)
        for k in range(self.ranges.count):
            r = &self.ranges.items[k]
            if r.first < s.first:
                self.ranges.items[kept].first = r.first
                self.ranges.items[kept].count = min(r.count, s.first - r.first)
                kept += 1
        self.ranges.count = kept
        return 0

    cdef int add_up(self, bint quick) except -1:
        cdef SegmentScan s
        for s in self.segments:
            self.msgs += s.live
            self.bytes += s.live_bytes
            self.lost.extend(s.lost)
            self.last_seq = max(self.last_seq, s.last_seq, s.first + s.count - 1)
            if s.first_live and self.first_seq == 0:
                self.first_seq = s.first_live
        if self.first_seq == 0:
            self.first_seq = self.last_seq + 1
        self.next_seq = 1
        return 0

    # --- messages --------------------------------------------------------------------------------

    def seek(self, uint64_t seq) -> None:
        """The next fill begins with the first message of that sequence or a higher one."""
        self.next_seq = seq
        self.current = None
        self.index = -1

    cdef bint find_segment(self) except -1:
        # `current` reads the segment that next_seq is in, or the next one with messages; False: there is none.
        cdef SegmentScan s
        cdef Py_ssize_t k = self.index + 1
        while k < len(self.segments):
            s = <SegmentScan>self.segments[k]
            if s.live and s.first + s.count > self.next_seq:
                self.current = SegmentReader(self.disk, s.path, s.first)
                if s.whole and s.good_end < self.current.end:
                    self.current.end = s.good_end
                self.index = k
                self.ordinal = 0
                return True
            k += 1
        self.current = None
        self.index = k - 1
        return False

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

    def fill(self, Columns columns, *, uint64_t upto=0, tuple patterns=(), uint64_t since_ns=0, uint64_t until_ns=0) -> bool:
        """Add live messages until the columns are full; see the stub."""
        cdef SegmentScan s
        cdef SegmentReader r
        cdef int kind
        cdef uint64_t i
        cdef int64_t[5] numbers
        cdef const char* subject
        cdef const char* body
        cdef bint plain = type(self.opener) is Opener
        memset(numbers, 0, sizeof(numbers))
        if patterns != self.patterns:
            self.patterns = patterns
            self.wanted = {}
        while not columns.is_full():
            if self.current is None and not self.find_segment():
                return False
            r = self.current
            s = <SegmentScan>self.segments[self.index]
            kind = r.step()
            if kind == AT_END:
                self.current = None
                continue
            if kind != MESSAGE:
                continue
            i = self.ordinal if s.whole else r.head.seq - s.first
            self.ordinal += 1
            if r.head.seq < self.next_seq or i >= s.gone_bits or bit(s.gone, i):
                continue
            if upto and r.head.seq > upto:
                r.at = r.record                      # it is still to come for who asks for more
                r.expected = r.head.seq
                self.ordinal -= 1
                return False
            if r.head.ts_ns < since_ns or (until_ns and r.head.ts_ns >= until_ns):
                continue
            if plain:
                subject = r.p + r.record + RECORD_HEAD_BYTES
                body = subject + r.head.subject_len
            elif not self.opener.open_record(r, r.p + r.record, &r.head, &subject, &body):
                self.unopened += 1
                continue
            if self.patterns and not self.wants(subject, r.head.subject_len):
                continue
            numbers[1] = <int64_t>r.head.seq
            numbers[3] = <int64_t>r.head.ts_ns
            columns.put(subject, r.head.subject_len, body, r.head.hlen, r.head.length - RECORD_EXTRA_BYTES - r.head.subject_len, numbers)
            self.next_seq = r.head.seq + 1
        return True


cdef int tally(SegmentScan s) except -1:
    # Counts what lives; the rows have done their duty.
    cdef uint64_t i
    cdef Row* row
    if not s.whole:
        s.live = 0
        for i in range(s.gone_bits):
            if not bit(s.gone, i):
                s.live += 1
                s.last_live = s.first + i
                if s.first_live == 0:
                    s.first_live = s.last_live
        return 0
    for i in range(s.messages):
        if bit(s.gone, i):
            continue
        row = &s.rows[i]
        s.live += 1
        s.live_bytes += row.size
        s.last_live = row.seq
        s.last_ts_ns = row.ts_ns
        if s.first_live == 0:
            s.first_live = row.seq
            s.first_ts_ns = row.ts_ns
    free(s.rows)
    s.rows = NULL
    s.row_cap = 0
    return 0


cdef bint take_index(LogReader reader, SegmentScan s) except -1:
    # From its index file, when that holds: which messages it covers, and what it removes.
    cdef SegmentList list_of = SegmentList()
    cdef Segment segment = Segment()
    cdef char[SEGMENT_HEAD_BYTES] head
    cdef uint64_t named = 0, i
    cdef int handle
    list_of.disk = reader.disk
    list_of.folder = reader.folder
    segment.first = s.first
    handle = reader.disk.open(s.path, False)
    try:
        s.stored = segment.size = reader.disk.size(handle)
        if reader.disk.read_at(handle, head, SEGMENT_HEAD_BYTES, 0) != SEGMENT_HEAD_BYTES:
            return False
        if not get_segment_head(head, SEGMENT_HEAD_BYTES, &named, &segment.salt) or named != s.first:
            return False
        if is_packed_head(head):
            s.packed = True
            segment.size = open_packed(reader.disk, handle).size
    finally:
        reader.disk.close(handle)
    sidecar = read_sidecar(list_of, SubjectTable(list_of), segment)
    if sidecar is None or not read_ranges(list_of, segment, &reader.ranges):
        return False
    ranges_sort(&reader.ranges)
    s.size = segment.size
    s.count = s.gone_bits = segment.count
    s.live_bytes = segment.live_bytes
    s.last_seq = (<Sidecar>sidecar).last_seq
    s.gone = <uint8_t*>calloc((segment.count >> 3) + 1, 1)
    if s.gone == NULL:
        raise MemoryError
    if segment.dead != NULL:
        for i in range(segment.count):
            if (segment.dead[i >> 6] >> (i & 63)) & 1:
                s.gone[i >> 3] |= 1 << (i & 7)
    return True
