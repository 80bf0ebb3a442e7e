"""The subjects of one log.

Counts are kept at every append and removal. `first` and `last` are made exact when asked for: after the removal of the
first message of a subject its next one is looked for in the index. That is cheap for few subjects and for subjects with
one message, and would be a long scan for, say, a million subjects with two messages each. So the entries looked at are
counted, and when they pass four times the live messages the table starts to keep the live sequences of each subject that
has more than one (8 bytes per live message, plus 24 per such subject), built in one pass over the index.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset
from penstock.core.buffer cimport hash_bytes
from penstock.core.maps cimport BytesMap
from penstock.core.segment cimport Segment, SegmentList, is_live

cdef enum:
    ARENA_BYTES = 16384
    DEBT_FREE = 65536


cdef class SubjectTable:
    """Subject -> id -> live count, first, last."""

    def __init__(self, SegmentList segments) -> None:
        self.segments = segments
        self.ids = BytesMap()
        self.arena = []
        self.debt_free = DEBT_FREE

    def __dealloc__(self) -> None:
        cdef uint32_t id
        for id in range(self.count):
            self.forget(&self.table[id])
        free(self.table)

    cdef int64_t find(self, const char* name, uint32_t n) noexcept:
        cdef uint64_t* id = self.ids.find(name, n, hash_bytes(name, n))
        return <int64_t>id[0] if id != NULL else -1

    cdef uint32_t intern(self, const char* name, uint32_t n) except? 4294967295:
        return self.intern_hashed(name, n, hash_bytes(name, n))

    cdef uint32_t intern_hashed(self, const char* name, uint32_t n, uint64_t h) except? 4294967295:
        cdef uint64_t* id = self.ids.find(name, n, h)
        cdef void* grown
        cdef uint32_t cap
        cdef Subject* s
        if id != NULL:
            return <uint32_t>id[0]
        if self.count == self.cap:
            cap = self.cap * 2 if self.cap else 4
            grown = realloc(self.table, cap * sizeof(Subject))
            if grown == NULL:
                raise MemoryError
            self.table = <Subject*>grown
            self.cap = cap
        s = &self.table[self.count]
        memset(s, 0, sizeof(Subject))
        s.state.name = self.keep_name(name, n)
        s.state.name_len = n
        self.ids.put(name, n, h, self.count)
        self.count += 1
        return self.count - 1

    cdef const char* keep_name(self, const char* name, uint32_t n) except NULL:
        cdef char* p
        cdef bytes chunk
        if n > self.arena_left or self.arena_at == NULL:
            # The first chunk is small: most logs have few subjects.
            self.arena_left = 256 if not self.arena else ARENA_BYTES
            if n > self.arena_left:
                self.arena_left = n
            chunk = PyBytes_FromStringAndSize(NULL, self.arena_left)
            self.arena.append(chunk)
            self.arena_at = PyBytes_AS_STRING(chunk)
        p = self.arena_at
        memcpy(p, name, n)
        self.arena_at += n
        self.arena_left -= n
        return p

    cdef int appended(self, uint32_t id, uint64_t seq) except -1:
        cdef Subject* s = &self.table[id]
        if s.state.msgs == 0:
            s.state.first = seq
            s.stale = 0
            self.live += 1
        elif self.tracking:
            self.remember(s, seq)
        s.state.last = seq
        s.stale &= ~LAST_STALE
        s.state.msgs += 1
        self.total += 1
        return 0

    cdef void removed(self, uint32_t id, uint64_t seq) noexcept:
        cdef Subject* s = &self.table[id]
        s.state.msgs -= 1
        self.total -= 1
        if s.state.msgs == 0:
            self.live -= 1
            s.stale = 0
            self.forget(s)
            return
        if seq == s.state.first:
            s.state.first = seq + 1
            s.stale |= FIRST_STALE
        if seq == s.state.last:
            s.state.last = seq - 1
            s.stale |= LAST_STALE
        if s.state.msgs == 1 and s.stale != (FIRST_STALE | LAST_STALE):
            if s.stale & FIRST_STALE:
                s.state.first = s.state.last
            elif s.stale & LAST_STALE:
                s.state.last = s.state.first
            elif s.state.first != s.state.last:
                return
            s.stale = 0
            self.forget(s)

    cdef void reset(self) noexcept:
        cdef uint32_t id
        for id in range(self.count):
            self.table[id].state.msgs = 0
            self.table[id].stale = 0
            self.forget(&self.table[id])
        self.live = 0
        self.total = 0

    cdef SubjectState* state(self, uint32_t id) except? NULL:
        cdef Subject* s
        if id >= self.count or self.table[id].state.msgs == 0:
            return NULL
        s = &self.table[id]
        if s.stale:
            self.repair(s, id)
        return &s.state

    cdef int repair(self, Subject* s, uint32_t id) except -1:
        cdef uint64_t found
        if not self.tracking and self.debt > self.debt_free + 4 * self.total:
            self.track()
        if self.tracking and s.history != NULL:
            self.repair_by_history(s)
            return 0
        if s.stale & FIRST_STALE:
            found = self.segments.next_of(s.state.first, id, &self.debt)
            if found == 0:
                raise AssertionError("a subject's live messages are not in the index")
            s.state.first = found
        if s.stale & LAST_STALE:
            found = self.segments.prev_of(s.state.last, id, &self.debt)
            if found == 0:
                raise AssertionError("a subject's live messages are not in the index")
            s.state.last = found
        s.stale = 0
        return 0

    cdef uint64_t next_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615:
        cdef SubjectState* state = self.state(id)
        cdef History* h
        cdef uint32_t low, high, mid
        if state == NULL or seq > state.last:
            return 0
        if seq <= state.first:
            return state.first
        if seq == state.last:
            return seq
        h = self.history_of(id)
        if h == NULL:
            return self.segments.next_of(seq, id, &self.debt)
        low = h.at
        high = h.end
        while low < high:
            mid = (low + high) >> 1
            if h.seqs[mid] < seq:
                low = mid + 1
            else:
                high = mid
        while not self.alive(h.seqs[low]):
            low += 1
        return h.seqs[low]

    cdef uint64_t last_upto(self, uint32_t id, uint64_t seq) except? 18446744073709551615:
        cdef SubjectState* state = self.state(id)
        cdef History* h
        cdef uint32_t low, high, mid
        if state == NULL or seq < state.first:
            return 0
        if seq >= state.last:
            return state.last
        if seq == state.first:
            return seq
        h = self.history_of(id)
        if h == NULL:
            return self.segments.prev_of(seq, id, &self.debt)
        low = h.at
        high = h.end
        while low < high:
            mid = (low + high) >> 1
            if h.seqs[mid] <= seq:
                low = mid + 1
            else:
                high = mid
        while not self.alive(h.seqs[low - 1]):
            low -= 1
        return h.seqs[low - 1]

    cdef uint64_t live_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615:
        cdef SubjectState* state = self.state(id)
        cdef uint64_t n = 0
        cdef History* h
        cdef uint32_t low, high, mid, k
        if state == NULL or seq > state.last:
            return 0
        if seq <= state.first:
            return state.msgs
        h = self.history_of(id)
        if h == NULL:
            seq = self.next_from(id, seq)
            while seq:
                n += 1
                seq = self.next_from(id, seq + 1)
            return n
        low = h.at
        high = h.end
        while low < high:
            mid = (low + high) >> 1
            if h.seqs[mid] < seq:
                low = mid + 1
            else:
                high = mid
        for k in range(low, h.end):
            n += self.alive(h.seqs[k])
        return n

    cdef History* history_of(self, uint32_t id) except? NULL:
        # NULL: histories are not kept (yet).
        if not self.tracking and self.debt > self.debt_free + 4 * self.total:
            self.track()
        return self.table[id].history if self.tracking else NULL

    cdef bint alive(self, uint64_t seq) except -1:
        cdef Segment segment = self.segments.find(seq)
        return segment is not None and is_live(segment, seq - segment.first)

    cdef int repair_by_history(self, Subject* s) except -1:
        cdef History* h = s.history
        cdef uint32_t k, n
        while h.at < h.end and not self.alive(h.seqs[h.at]):
            h.at += 1
        while h.at < h.end and not self.alive(h.seqs[h.end - 1]):
            h.end -= 1
        if h.at == h.end:
            raise AssertionError("a subject's live messages are not in its history")
        s.state.first = h.seqs[h.at]
        s.state.last = h.seqs[h.end - 1]
        s.stale = 0
        if h.end - h.at > 16 + 2 * s.state.msgs:
            n = 0
            for k in range(h.at, h.end):
                if self.alive(h.seqs[k]):
                    h.seqs[n] = h.seqs[k]
                    n += 1
            h.at = 0
            h.end = n
        return 0

    cdef int track(self) except -1:
        # One pass over all live entries; from then on append and repair keep the histories.
        cdef Segment segment
        cdef Subject* s
        cdef uint32_t i, id
        try:
            for segment in list(self.segments.items):
                if segment.live == 0:
                    continue
                self.segments.need(segment)
                i = segment.next_live(0)
                while i < segment.count:
                    id = segment.entries[i].subject
                    s = &self.table[id]
                    if s.state.msgs > 1:
                        self.push(s, segment.first + i)
                    i = segment.next_live(i + 1)
        except BaseException:
            for id in range(self.count):
                self.forget(&self.table[id])
            raise
        self.tracking = True
        return 0

    cdef int remember(self, Subject* s, uint64_t seq) except -1:
        # Called before `seq` is counted. Without a history the subject has one live message, and that is its last.
        if s.history == NULL:
            self.push(s, s.state.last)
        return self.push(s, seq)

    cdef int push(self, Subject* s, uint64_t seq) except -1:
        cdef History* h = s.history
        cdef uint32_t cap
        cdef void* grown
        if h == NULL:
            h = <History*>calloc(1, sizeof(History))
            if h == NULL:
                raise MemoryError
            s.history = h
        if h.end == h.cap:
            if h.at > (h.cap >> 1):
                memmove(h.seqs, h.seqs + h.at, (h.end - h.at) * sizeof(uint64_t))
                h.end -= h.at
                h.at = 0
            else:
                cap = h.cap * 2 if h.cap else 4
                grown = realloc(h.seqs, cap * sizeof(uint64_t))
                if grown == NULL:
                    raise MemoryError
                h.seqs = <uint64_t*>grown
                h.cap = cap
        h.seqs[h.end] = seq
        h.end += 1
        return 0

    cdef void forget(self, Subject* s) noexcept:
        if s.history != NULL:
            free(s.history.seqs)
            free(s.history)
            s.history = NULL
