"""The index file of a sealed segment, `<first sequence>.idx`.

    head (112):   0  "PNSTKIDX"     8  u32 version=1   12  u32 salt of the segment   16  u64 first   24  u64 segment bytes
                 32  u32 count     36  u32 live        40  u64 live bytes            48  u64 last_seq
                 56  u64 the floor in its REMOVE records                             64  u64 last ts
                 72  u32 subjects  76  u32 bytes of names
                 80  u32 words of the bitmap           84  u32 ranges                88  u64 1 + messages with headers; 0: not counted
                 96  u32 crc32c of the tables         100  u32 crc32c of the entries 104 u32 1: doubtful
                108  u32 crc32c of the 108 bytes before
    entries       count x { u32 offset, u32 local subject, u32 size }       (core/log/segment: Entry)
    tables        subjects x { u32 live, u32 first, u32 last, u32 name_len }
                  names, one after the other
                  bitmap of the sequences without a live message: words x u64
                  ranges of its REMOVE records: ranges x { u64 first, u64 count }

The index file of an encrypted segment is encrypted, too (core/log/encryption).

Opening a log reads head and tables; the entries are read with the first message of the segment. The server can rebuild the file from
the segment, so it is written without fsync. It is valid only if every checksum, the salt and the size of the segment match and it is
not marked as doubtful. A segment with damage has a doubtful index file, so that each opening scans the segment.

An index file that is not valid, but has the salt of the segment, is still evidence (`read_evidence`): the sequences that it marks as
removed are removed, and the messages that it lists did exist.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from pelton.core.base.buffer cimport crc32c, hash_bytes
from pelton.core.log.encryption cimport INDEX_TAIL_BYTES, open_entries, open_tables, seal_index
from pelton.core.log.record cimport Range, Ranges, ranges_add
from pelton.core.log.segment cimport Entry, Segment, is_live
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.subject_table cimport SubjectTable

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*) nogil

cdef const char* INDEX_MAGIC = b"PNSTKIDX"
cdef enum:
    INDEX_VERSION = 1
    INDEX_HEAD_BYTES = 112
    AT_ONCE = 32


cdef class IndexFile:
    """The contents of an index file besides the entries."""


cdef class Evidence:
    """The contents of an index file whose segment has changed since, or is missing."""


cdef inline void put32(char* p, size_t at, uint32_t v) noexcept:
    memcpy(p + at, &v, 4)


cdef inline void put64(char* p, size_t at, uint64_t v) noexcept:
    memcpy(p + at, &v, 8)


cdef inline uint32_t get32(const char* p, size_t at) noexcept:
    cdef uint32_t v
    memcpy(&v, p + at, 4)
    return v


cdef inline uint64_t get64(const char* p, size_t at) noexcept:
    cdef uint64_t v
    memcpy(&v, p + at, 8)
    return v


cdef bint write_index_file(SegmentList segments, SubjectTable subjects, Segment s, uint64_t last_seq) except -1:
    # False when the disk refuses (the segment stays readable; its entries stay in memory).
    cdef bytes data
    cdef Ranges ranges
    if s.has_index and s.removes.count == 0:
        # The file is written again after removals: only the old file has the ranges.
        memset(&ranges, 0, sizeof(Ranges))
        if not read_ranges(segments, s, &ranges):
            s.index_lost()
            return False
        s.take_removes(&ranges)
    try:
        segments.need(s)
        data = encode(subjects, s, last_seq)
        if s.key_number:
            data = seal_index(segments.cipher, s.key_number, data, s.count * sizeof(Entry))
        segments.disk.write_file_atomic(segments.path(s, ".idx"), data, False)
    except OSError:
        s.index_lost()
        return False
    s.index_written()
    return True


cdef bytes encode(SubjectTable subjects, Segment s, uint64_t last_seq):
    cdef uint32_t k, id, names = 0, words = 0
    cdef size_t entries_bytes = s.count * sizeof(Entry), tables_bytes, ranges_bytes = s.removes.count * sizeof(Range)
    cdef bytes data
    cdef char* p
    cdef char* at
    cdef uint64_t headed
    for k in range(s.subject_count):
        id = s.subjects[k]
        subjects.set_local(id, k)
        names += subjects.table[id].state.name_len
    if s.dead != NULL:
        words = (s.count + 63) >> 6
    tables_bytes = s.subject_count * sizeof(LocalSubject) + names + words * 8 + ranges_bytes
    data = PyBytes_FromStringAndSize(NULL, INDEX_HEAD_BYTES + entries_bytes + tables_bytes)
    p = PyBytes_AS_STRING(data)
    memset(p, 0, INDEX_HEAD_BYTES)
    at = p + INDEX_HEAD_BYTES
    if entries_bytes:
        memcpy(at, s.entries, entries_bytes)
    headed = put_rows(subjects, s, <Entry*>at, <LocalSubject*>(at + entries_bytes))
    at += entries_bytes + s.subject_count * sizeof(LocalSubject)
    for k in range(s.subject_count):
        id = s.subjects[k]
        memcpy(at, subjects.table[id].state.name, subjects.table[id].state.name_len)
        at += subjects.table[id].state.name_len
    if words:
        memcpy(at, s.dead, words * 8)
        at += words * 8
    if ranges_bytes:
        memcpy(at, s.removes.items, ranges_bytes)
    put_fields(p, s, last_seq, names, words, headed)
    put32(p, 96, crc32c(p + INDEX_HEAD_BYTES + entries_bytes, tables_bytes, 0))
    put32(p, 100, crc32c(p + INDEX_HEAD_BYTES, entries_bytes, 0))
    put32(p, 108, crc32c(p, 108, 0))
    s.note_headers(headed)
    return data


cdef uint64_t put_rows(SubjectTable subjects, Segment s, Entry* e, LocalSubject* rows) except? 18446744073709551615:
    """Fill the rows of the subjects and set local subject numbers in the entries; return the number of messages with headers."""
    cdef uint32_t k, i
    cdef uint64_t headed = 0
    cdef LocalSubject* row
    memset(rows, 0, s.subject_count * sizeof(LocalSubject))
    for k in range(s.subject_count):
        rows[k].name_len = subjects.table[s.subjects[k]].state.name_len
    for i in range(s.count):
        if e[i].offset == 0:
            continue
        k = subjects.table[e[i].subject].local
        if k >= s.subject_count or s.subjects[k] != e[i].subject:
            raise AssertionError(f"message {s.first + i} has a subject that its segment does not name")
        e[i].subject = k
        headed += e[i].size >> 31
        if is_live(s, i):
            row = &rows[k]
            if row.live == 0:
                row.first = i
            row.last = i
            row.live += 1
    return headed


cdef void put_fields(char* p, Segment s, uint64_t last_seq, uint32_t names, uint32_t words, uint64_t headed) noexcept:
    """Fill the head except for its checksums."""
    memcpy(p, INDEX_MAGIC, 8)
    put32(p, 8, INDEX_VERSION)
    put32(p, 12, s.salt)
    put64(p, 16, s.first)
    put64(p, 24, s.size)
    put32(p, 32, s.count)
    put32(p, 36, s.live)
    put64(p, 40, s.live_bytes)
    put64(p, 48, last_seq)
    put64(p, 56, s.removed_below)
    put64(p, 64, s.last_ts)
    put32(p, 72, s.subject_count)
    put32(p, 76, names)
    put32(p, 80, words)
    put32(p, 84, <uint32_t>s.removes.count)
    put64(p, 88, headed + 1)


cdef IndexFile open_index_file(SegmentList segments, Segment s, char* head, bint evidence=False):
    # Head and tables of an index file that belongs to s (salt, first and size match), or None. For evidence only `first` and the
    # salt must match, and only `first` if s.salt is 0 (not known).
    cdef int handle
    cdef uint64_t at, n, tags
    cdef IndexFile found = IndexFile()
    cdef uint64_t size
    try:
        handle = segments.disk.open(segments.path(s, ".idx"), False)
    except OSError:
        return None
    try:
        size = segments.disk.size(handle)
        if segments.disk.read_at(handle, head, INDEX_HEAD_BYTES, 0) != INDEX_HEAD_BYTES:
            return None
        if memcmp(head, INDEX_MAGIC, 8) != 0 or get32(head, 8) - INDEX_VERSION > 1 or get32(head, 108) != crc32c(head, 108, 0):
            return None
        if not evidence and (get32(head, 8) != INDEX_VERSION) != (s.key_number != 0):
            return None
        if get64(head, 16) != s.first or (get32(head, 12) != s.salt and not (evidence and s.salt == 0)):
            return None
        if get64(head, 48) >> 63 or (s.first + get32(head, 32)) >> 63:
            return None
        if not evidence and (get64(head, 24) != s.size or get32(head, 104)):
            return None
        at = INDEX_HEAD_BYTES + <uint64_t>get32(head, 32) * sizeof(Entry)
        if at > size:
            return None
        n = size - at
        tags = INDEX_TAIL_BYTES if get32(head, 8) != INDEX_VERSION else 0
        if n != (tags + <uint64_t>get32(head, 72) * sizeof(LocalSubject) + get32(head, 76) + <uint64_t>get32(head, 80) * 8
                 + <uint64_t>get32(head, 84) * sizeof(Range)):
            return None
        found.tables = PyBytes_FromStringAndSize(NULL, n)
        if segments.disk.read_at(handle, PyBytes_AS_STRING(found.tables), n, at) != <int64_t>n:
            return None
    except OSError:
        return None
    finally:
        segments.disk.close(handle)
    n -= tags
    if get32(head, 96) != crc32c(PyBytes_AS_STRING(found.tables), n, 0):
        return None
    if tags:
        found.tables = open_tables(segments.cipher, head, found.tables)
        if found.tables is None:
            return None
    found.rows = <const LocalSubject*>PyBytes_AS_STRING(found.tables)
    found.row_count = get32(head, 72)
    found.range_count = get32(head, 84)
    found.ranges_at = n - found.range_count * sizeof(Range)
    found.last_seq = get64(head, 48)
    return found


cdef int intern_some(SubjectTable subjects, Segment s, const LocalSubject* rows, uint32_t n, const char** name, const char* end) except -2:
    # Interns the next n names; -1: they do not fit. With a million subjects each look-up waits for memory, so several look-ups overlap.
    cdef uint64_t hashes[AT_ONCE]
    cdef int64_t likely[AT_ONCE]
    cdef const char* p = name[0]
    cdef uint32_t k
    for k in range(n):
        if rows[k].name_len > <size_t>(end - p):
            return -1
        hashes[k] = hash_bytes(p, rows[k].name_len)
        subjects.look_at(hashes[k])
        p += rows[k].name_len
    for k in range(n):
        likely[k] = subjects.look_closer(hashes[k])
    for k in range(n):
        if likely[k] >= 0:
            prefetch(subjects.table[likely[k]].state.name)
    for k in range(n):
        subjects.join(s, subjects.intern_hashed(name[0], rows[k].name_len, hashes[k]))
        name[0] += rows[k].name_len
    return 0


cdef bint rows_fit(IndexFile found, uint32_t count, uint64_t live) noexcept:
    """Whether the numbers of each subject lie within the segment; searches rely on that."""
    cdef const LocalSubject* row
    cdef uint32_t k
    cdef uint64_t total = 0
    for k in range(found.row_count):
        row = &found.rows[k]
        if row.live and (row.first > row.last or row.last >= count or row.live > row.last - row.first + 1):
            return False
        total += row.live
    return total == live


cdef IndexFile read_index_file(SegmentList segments, SubjectTable subjects, Segment s):
    cdef char head[INDEX_HEAD_BYTES]
    cdef IndexFile found = open_index_file(segments, s, head)
    cdef const char* name
    cdef const char* end
    cdef uint32_t k, n, words, count
    if found is None:
        return None
    words = get32(head, 80)
    count = get32(head, 32)
    if words and words != (count + 63) >> 6:
        return None
    name = PyBytes_AS_STRING(found.tables) + found.row_count * sizeof(LocalSubject)
    end = name + get32(head, 76)
    k = 0
    while k < found.row_count:
        n = min(found.row_count - k, <uint32_t>AT_ONCE)
        if intern_some(subjects, s, found.rows + k, n, &name, end) < 0:
            subjects.leave(s)
            return None
        k += n
    if not rows_fit(found, count, get32(head, 36)):
        s.keep_subjects(0)
        return None
    if words:
        s.take_dead(end, words)
    s.take_index(count, get32(head, 36), get64(head, 40), get64(head, 64), get64(head, 88) == 1, get64(head, 56))
    return found


cdef int doubt_index_file(SegmentList segments, Segment s) except -1:
    # Marks an index file as doubtful, so that later openings scan the segment. A torn index file is no evidence either.
    cdef char head[INDEX_HEAD_BYTES]
    cdef int handle
    if open_index_file(segments, s, head) is None:
        return 0
    put32(head, 104, 1)
    put32(head, 108, crc32c(head, 108, 0))
    handle = segments.disk.open(segments.path(s, ".idx"), False)
    try:
        segments.disk.write_at(handle, head, INDEX_HEAD_BYTES, 0)
    finally:
        segments.disk.close(handle)
    return 0


cdef Evidence read_evidence(SegmentList segments, Segment s):
    cdef char head[INDEX_HEAD_BYTES]
    cdef IndexFile found = open_index_file(segments, s, head, True)
    cdef Evidence evidence
    cdef const Range* items
    cdef const uint64_t* dead = NULL
    cdef const Entry* entries
    cdef bytes data
    cdef uint32_t k, i, words, count
    cdef int handle
    cdef bint live, was = False
    if found is None:
        return None
    count = get32(head, 32)
    words = get32(head, 80)
    if words and words != (count + 63) >> 6:
        return None
    data = PyBytes_FromStringAndSize(NULL, count * sizeof(Entry))
    try:
        handle = segments.disk.open(segments.path(s, ".idx"), False)
        try:
            if segments.disk.read_at(handle, PyBytes_AS_STRING(data), count * sizeof(Entry), INDEX_HEAD_BYTES) != <int64_t>len(data):
                return None
            if get32(head, 100) != crc32c(PyBytes_AS_STRING(data), len(data), 0):
                return None
            if not open_entries(segments.cipher, segments.disk, handle, head, PyBytes_AS_STRING(data), len(data)):
                return None
        finally:
            segments.disk.close(handle)
    except OSError:
        return None
    evidence = Evidence()
    evidence.salt = get32(head, 12)
    evidence.count = count
    evidence.size = get64(head, 24)
    evidence.last_seq = found.last_seq
    evidence.last_ts = get64(head, 64)
    evidence.removed_below = get64(head, 56)
    evidence.live = []
    evidence.gone = []
    items = <const Range*>(PyBytes_AS_STRING(found.tables) + found.ranges_at)
    evidence.ranges = [(items[k].first, items[k].count) for k in range(found.range_count)]
    if words:
        dead = <const uint64_t*>(PyBytes_AS_STRING(found.tables) + found.row_count * sizeof(LocalSubject) + get32(head, 76))
    entries = <const Entry*>PyBytes_AS_STRING(data)
    for i in range(count):
        live = entries[i].offset != 0 and (dead == NULL or not (dead[i >> 6] >> (i & 63)) & 1)
        runs = evidence.live if live else evidence.gone
        if i and live == was:
            runs[len(runs) - 1] = (runs[len(runs) - 1][0], s.first + i + 1)
        else:
            runs.append((s.first + i, s.first + i + 1))
        was = live
    return evidence


cdef bint read_ranges(SegmentList segments, Segment s, Ranges* out) except -1:
    cdef char head[INDEX_HEAD_BYTES]
    cdef IndexFile found = open_index_file(segments, s, head)
    cdef const Range* items
    cdef uint32_t k
    if found is None:
        return False
    items = <const Range*>(PyBytes_AS_STRING(found.tables) + found.ranges_at)
    for k in range(found.range_count):
        ranges_add(out, items[k].first, items[k].count)
    return True
