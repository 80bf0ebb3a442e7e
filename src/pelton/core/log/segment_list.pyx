"""The segments of one log in order: finding the one of a sequence, their open files and entry arrays, and looking for live messages.

The entry arrays of sealed segments are dropped from memory and read back from the index file (core/log/index_file) when they are
needed; the least recently used ones go first.

Knows nothing of subject names, recovery or removal policy.
"""
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from pelton.core.base.buffer cimport crc32c
from pelton.core.base.disk cimport Disk
from pelton.core.log.encryption cimport open_entries
from pelton.core.log.segment cimport HAS_HEADERS, Entry, Segment, is_live, used_at

cdef enum:
    LOADED_LIMIT_BYTES = 4194304         # entry arrays of sealed segments kept in memory ...
    LOADED_LIMIT_MAX_BYTES = 67108864    # ... the limit grows up to this with random reads
    INDEX_HEAD_BYTES = 112               # head of an index file (core/log/index_file); the entries follow it


cdef class SegmentList:
    """The segments of one log, in order of their sequences."""

    def __cinit__(self) -> None:
        self.items = []
        self.loaded_limit = LOADED_LIMIT_BYTES

    def __init__(self, Disk disk=None, str folder=None, cipher=None) -> None:
        self.disk = disk
        self.folder = folder
        self.cipher = cipher

    cdef int rebuild_with(self, object rebuild) except -1:
        self.rebuild = rebuild
        return 0

    cdef void number(self, Segment s) noexcept:
        self.serials += 1
        s.number(self.serials)

    cdef void count_entries(self, Segment s) noexcept:
        self.loaded_bytes += s.count * sizeof(Entry)

    cdef void forget_entries(self, Segment s) noexcept:
        s.drop_entries()
        self.loaded_bytes -= s.count * sizeof(Entry)

    cdef void activate(self, Segment s) noexcept:
        self.active = s

    cdef str path(self, Segment s, str suffix):
        return f"{self.folder}/{s.first:020d}{suffix}"

    cdef int add(self, Segment s) except -1:
        self.serials += 1
        s.number(self.serials)
        self.items.append(s)
        self.active = s
        return 0

    cdef int discard(self, Segment s) except -1:
        # Takes a segment off the list and frees its arrays; the file stays.
        cdef Py_ssize_t k
        for k in range(len(self.items)):
            if self.items[k] is s:
                del self.items[k]
                break
        if s.entries != NULL and s.sealed and self.disk is not None:
            self.loaded_bytes -= s.count * sizeof(Entry)
        s.drop_entries()
        return 0

    cdef Py_ssize_t position(self, uint64_t seq) noexcept:
        cdef Py_ssize_t low = 0, high = PyList_GET_SIZE(self.items), mid = self.hint
        cdef Segment s
        if mid < high:
            s = <Segment>PyList_GET_ITEM(self.items, mid)
            if seq >= s.first and seq - s.first < s.count:
                return mid
        while low < high:
            mid = (low + high) >> 1
            s = <Segment>PyList_GET_ITEM(self.items, mid)
            if s.first + s.count > seq:
                high = mid
            else:
                low = mid + 1
        self.hint = low
        return low

    cdef Segment find(self, uint64_t seq):
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        if k == PyList_GET_SIZE(self.items):
            return None
        s = <Segment>PyList_GET_ITEM(self.items, k)
        return s if seq >= s.first else None

    # --- entries and files of sealed segments ----------------------------------------------------

    cdef int need(self, Segment s) except -1:
        self.tick += 1
        used_at(s, self.tick)
        if s.entries == NULL and s.count:
            self.load(s)
        return 0

    cdef int load(self, Segment s) except -1:
        # Reads the entry array from the index file; when that is not valid, from the records of the segment.
        cdef uint32_t i, crc
        cdef size_t n = s.count * sizeof(Entry)
        cdef char head[INDEX_HEAD_BYTES]
        cdef Entry* entries = NULL
        cdef int handle
        cdef bint good = False
        # With many loads the limit grows; otherwise each random read would load a whole array.
        self.loads += 1
        if self.loads & 31 == 0 and self.loaded_limit < LOADED_LIMIT_MAX_BYTES:
            self.loaded_limit *= 2
        if s.has_index:
            entries = <Entry*>malloc(n)
            if entries == NULL:
                raise MemoryError
            try:
                handle = self.disk.open(self.path(s, ".idx"), False)
                try:
                    if self.disk.read_at(handle, head, INDEX_HEAD_BYTES, 0) == INDEX_HEAD_BYTES:
                        if self.disk.read_at(handle, <char*>entries, n, INDEX_HEAD_BYTES) == <int64_t>n:
                            memcpy(&crc, head + 100, 4)
                            good = crc == crc32c(<char*>entries, n, 0) and open_entries(
                                self.cipher, self.disk, handle, head, <char*>entries, n)
                finally:
                    self.disk.close(handle)
            except OSError:
                good = False
            if good:
                for i in range(s.count):
                    if entries[i].offset:
                        if entries[i].subject >= s.subject_count:
                            good = False
                            break
                        entries[i].subject = s.subjects[entries[i].subject]
                    elif is_live(s, i):      # a live message without an offset: the index file contradicts itself
                        good = False
                        break
            if not good:
                free(entries)
                s.index_lost()
        if good:
            s.give_entries(entries)
        else:
            self.rebuild(s)
        self.loaded_bytes += n
        self.make_room(s)
        return 0

    cdef int make_room(self, Segment keep) except -1:
        # Drops the least recently used entry arrays. An array that no index file has stays: to read it again would need a scan.
        cdef Segment s, oldest
        while self.loaded_bytes > self.loaded_limit:
            oldest = None
            for s in self.items:
                if s.entries != NULL and s.sealed and s.has_index and s is not keep and s is not self.active:
                    if oldest is None or s.used < oldest.used:
                        oldest = s
            if oldest is None:
                return 0
            self.loaded_bytes -= oldest.count * sizeof(Entry)
            oldest.drop_entries()
        return 0

    cdef int handle(self, Segment s) except -1:
        self.tick += 1
        used_at(s, self.tick)
        if s.handle >= 0:
            self.disk.open_files.touch(s)
            return s.handle
        return self.disk.open_again(s, self.path(s, ".seg"))

    cdef int64_t read_at(self, Segment s, char* p, size_t n, uint64_t offset) except -1:
        cdef int handle = self.handle(s)
        return self.disk.read_at(handle, p, n, offset) if s.packed is None else s.packed.read_at(self.disk, handle, p, n, offset)

    # --- looking for live messages ---------------------------------------------------------------

    cdef uint64_t next_headed(self, uint64_t seq) except? 18446744073709551615:
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef uint32_t i
        while k < PyList_GET_SIZE(self.items):
            s = <Segment>self.items[k]
            k += 1
            if s.plain:
                continue
            i = s.next_live(<uint32_t>(seq - s.first) if seq > s.first else 0)
            if i < s.count:
                self.need(s)
            while i < s.count:
                if s.entries[i].size & HAS_HEADERS:
                    return s.first + i
                i = s.next_live(i + 1)
        return 0

    cdef uint64_t next_live(self, uint64_t seq) noexcept:
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef uint32_t i
        while k < PyList_GET_SIZE(self.items):
            s = <Segment>PyList_GET_ITEM(self.items, k)
            i = s.next_live(<uint32_t>(seq - s.first) if seq > s.first else 0)
            if i < s.count:
                return s.first + i
            k += 1
        return 0

    cdef uint64_t prev_live(self, uint64_t seq) noexcept:
        # The highest live sequence <= seq, 0 if none.
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef int64_t i
        if k == PyList_GET_SIZE(self.items):
            k -= 1
        while k >= 0:
            s = <Segment>PyList_GET_ITEM(self.items, k)
            if s.count and s.first <= seq:
                i = s.prev_live(<int64_t>(seq - s.first) if seq - s.first < s.count else <int64_t>s.count - 1)
                if i >= 0:
                    return s.first + i
            k -= 1
        return 0

    cdef uint64_t next_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t n) except? 18446744073709551615:
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef uint32_t i, end, id
        while k < PyList_GET_SIZE(self.items):
            s = <Segment>self.items[k]
            k += 1
            if s.first > stop:
                break
            i = s.next_live(<uint32_t>(seq - s.first) if seq > s.first else 0)
            if i >= s.count or (i == 0 and s.sealed and not s.wants(wanted, n)):
                continue
            self.need(s)
            i = s.next_live(i)                   # load() may have rebuilt the index and found message i damaged
            end = s.count if stop - s.first >= s.count else <uint32_t>(stop - s.first) + 1
            while i < end:
                id = s.entries[i].subject
                if id < n and wanted[id]:
                    return s.first + i
                i = s.next_live(i + 1)
        return 0

    cdef uint64_t prev_wanted(self, uint64_t seq, const uint8_t* wanted, uint32_t n) except? 18446744073709551615:
        # The highest live sequence <= seq with a wanted subject, 0 if none.
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef int64_t i
        cdef uint32_t id
        if k == len(self.items):
            k -= 1
        while k >= 0:
            s = <Segment>self.items[k]
            k -= 1
            if s.first > seq or s.live == 0 or not s.wants(wanted, n):
                continue
            self.need(s)
            i = s.prev_live(<int64_t>(seq - s.first) if seq - s.first < s.count else <int64_t>s.count - 1)
            while i >= 0:
                id = s.entries[i].subject
                if id < n and wanted[id]:
                    return s.first + i
                i = s.prev_live(i - 1)
        return 0

    cdef uint64_t count_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t n) except? 18446744073709551615:
        # Live messages in [seq, stop] with a wanted subject.
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef uint32_t i, end, id
        cdef uint64_t total = 0
        while k < len(self.items):
            s = <Segment>self.items[k]
            k += 1
            if s.first > stop:
                break
            if s.live == 0 or not s.wants(wanted, n):
                continue
            self.need(s)
            i = s.next_live(<uint32_t>(seq - s.first) if seq > s.first else 0)
            end = s.count if stop - s.first >= s.count else <uint32_t>(stop - s.first) + 1
            while i < end:
                id = s.entries[i].subject
                if id < n and wanted[id]:
                    total += 1
                i = s.next_live(i + 1)
        return total

    cdef bint holds(self, Segment s, uint32_t subject) noexcept:
        cdef uint32_t k
        for k in range(s.subject_count):
            if s.subjects[k] == subject:
                return True
        return False

    cdef uint64_t next_of(self, uint64_t seq, uint32_t subject, uint64_t* cost) except? 18446744073709551615:
        # The lowest live sequence >= seq of one subject, 0 if none; adds the entries looked at to cost.
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef uint32_t i
        while k < len(self.items):
            s = <Segment>self.items[k]
            k += 1
            i = s.next_live(<uint32_t>(seq - s.first) if seq > s.first else 0)
            cost[0] += 1 + (s.subject_count >> 2)
            if i >= s.count or not self.holds(s, subject):
                continue
            self.need(s)
            i = s.next_live(i)
            while i < s.count:
                cost[0] += 1
                if s.entries[i].subject == subject:
                    return s.first + i
                i = s.next_live(i + 1)
        return 0

    cdef uint64_t prev_of(self, uint64_t seq, uint32_t subject, uint64_t* cost) except? 18446744073709551615:
        # The highest live sequence <= seq of one subject, 0 if none; adds the entries looked at to cost.
        cdef Py_ssize_t k = self.position(seq)
        cdef Segment s
        cdef int64_t i
        if k == len(self.items):
            k -= 1
        while k >= 0:
            s = <Segment>self.items[k]
            k -= 1
            cost[0] += 1 + (s.subject_count >> 2)
            if s.first > seq or s.live == 0 or not self.holds(s, subject):
                continue
            self.need(s)
            i = s.prev_live(<int64_t>(seq - s.first) if seq - s.first < s.count else <int64_t>s.count - 1)
            while i >= 0:
                cost[0] += 1
                if s.entries[i].subject == subject:
                    return s.first + i
                i = s.prev_live(i - 1)
        return 0
