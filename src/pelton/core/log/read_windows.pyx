"""Read windows: bytes of the segment files of one log in memory.

A window starts with 4 KiB; a read that continues at its end doubles it, up to 256 KiB. Each log has eight windows, so eight readers
can go through it at different places. The windows of all logs together hold at most TOTAL_BYTES; beyond that, logs do not read ahead.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList

cdef enum:
    AHEAD_MIN_BYTES = 4096
    AHEAD_MAX_BYTES = 262144
    TOTAL_BYTES = 67108864

cdef size_t total_bytes = 0


cdef class Pages:
    """The read windows of one log."""

    def __dealloc__(self) -> None:
        self.forget(0)

    cdef const char* get(self, SegmentList segments, Segment s, uint64_t offset, size_t n) except? NULL:
        cdef const char* p = window_at(&self.windows[self.last], s.serial, offset, n)
        cdef int k
        if p != NULL:
            return p
        for k in range(WINDOWS):
            p = window_at(&self.windows[k], s.serial, offset, n)
            if p != NULL:
                self.tick += 1
                self.windows[k].used = self.tick
                self.last = k
                return p
        return self.fill(segments, s, offset, n)

    cdef const char* fill(self, SegmentList segments, Segment s, uint64_t offset, size_t n) except? NULL:
        global total_bytes
        cdef int k, chosen = 0
        cdef Window* w
        cdef size_t want, ahead = AHEAD_MIN_BYTES
        cdef void* grown
        cdef int64_t got
        for k in range(WINDOWS):
            w = &self.windows[k]
            if w.serial == s.serial and w.offset <= offset <= w.offset + w.len:
                chosen = k
                ahead = w.ahead * 2 if w.ahead < AHEAD_MAX_BYTES else AHEAD_MAX_BYTES
                break
            if w.used < self.windows[chosen].used:
                chosen = k
        w = &self.windows[chosen]
        if total_bytes > TOTAL_BYTES:
            ahead = AHEAD_MIN_BYTES
        want = n if n > ahead else ahead
        w.serial = 0
        if want > w.cap or (w.cap > AHEAD_MAX_BYTES and want <= AHEAD_MAX_BYTES):
            grown = realloc(w.data, want)
            if grown == NULL:
                raise MemoryError
            total_bytes += want
            total_bytes -= w.cap
            w.data = <char*>grown
            w.cap = want
        got = segments.read_at(s, w.data, want, offset)
        self.tick += 1
        w.used = self.tick
        w.serial = s.serial
        w.ahead = <uint32_t>ahead
        w.offset = offset
        w.len = got
        self.last = chosen
        return w.data if <size_t>got >= n else NULL

    cdef void forget(self, uint32_t serial) noexcept:
        global total_bytes
        cdef int k
        for k in range(WINDOWS):
            if serial == 0 or self.windows[k].serial == serial:
                total_bytes -= self.windows[k].cap
                free(self.windows[k].data)
                self.windows[k].data = NULL
                self.windows[k].cap = 0
                self.windows[k].len = 0
                self.windows[k].serial = 0
                self.windows[k].used = 0
