"""Finds the headers that mean something to a stream, in one pass over the block.

A block is ``NATS/1.0 CRLF`` then ``Name: value CRLF`` lines then ``CRLF``. A value starts after the colon and the blanks that
follow it and ends before the line's CR LF. A block of another shape is no error: its headers count as absent.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp, memset
from pelton.core.base.buffer cimport Out, out_free, out_put

cdef enum:
    PREFIX = 5                 # "Nats-"
    EMPTY_BYTES = 12           # a block without a line


cdef inline Text value_of(const char* p, const char* end) noexcept nogil:
    """The value in p..end, which starts after the colon and ends at the line feed."""
    cdef Text t
    while p < end and p[0] == c' ':
        p += 1
    if end > p and (end - 1)[0] == c'\r':
        end -= 1
    t.at = p
    t.n = <uint32_t>(end - p)
    return t


cdef inline void keep(Text* slot, const char* p, const char* end, PublishHeaders* found) noexcept nogil:
    cdef Text t = value_of(p, end)
    if slot.at == NULL and t.n:                # an empty value is as good as none
        slot[0] = t
        found.present = True


cdef inline void note(uint32_t bit, const char* p, const char* end, PublishHeaders* found) noexcept nogil:
    if value_of(p, end).n:
        found.rare |= bit
        found.present = True


cdef inline void look(const char* name, size_t n, const char* p, const char* end, PublishHeaders* found) noexcept nogil:
    """One line: `name` is what stands before the colon, after Nats-; p..end the rest of the line."""
    if n == 6 and memcmp(name, b"Msg-Id", 6) == 0:
        keep(&found.message_id, p, end, found)
    elif n == 15 and memcmp(name, b"Expected-Stream", 15) == 0:
        keep(&found.stream, p, end, found)
    elif n == 22 and memcmp(name, b"Expected-Last-Sequence", 22) == 0:
        keep(&found.last_sequence, p, end, found)
    elif n == 30 and memcmp(name, b"Expected-Last-Subject-Sequence", 30) == 0:
        keep(&found.subject_sequence, p, end, found)
    elif n == 38 and memcmp(name, b"Expected-Last-Subject-Sequence-Subject", 38) == 0:
        keep(&found.subject, p, end, found)
    elif n == 20 and memcmp(name, b"Expected-Last-Msg-Id", 20) == 0:
        keep(&found.last_id, p, end, found)
    elif n == 4 and memcmp(name, b"Incr", 4) == 0:
        note(RARE_COUNTER, p, end, found)
    elif n == 3 and memcmp(name, b"TTL", 3) == 0:
        note(RARE_TTL, p, end, found)
    elif n == 6 and memcmp(name, b"Rollup", 6) == 0:
        note(RARE_ROLLUP, p, end, found)
    elif n == 8 and memcmp(name, b"Batch-Id", 8) == 0:
        note(RARE_BATCH, p, end, found)
    elif (n == 8 and memcmp(name, b"Schedule", 8) == 0) or (n == 13 and memcmp(name, b"Schedule-Next", 13) == 0) or (
            n == 9 and memcmp(name, b"Scheduler", 9) == 0):
        note(RARE_SCHEDULE, p, end, found)
    elif n == 13 and memcmp(name, b"Stream-Source", 13) == 0:
        note(RARE_SOURCE, p, end, found)
    elif n == 18 and memcmp(name, b"Schedule-Time-Zone", 18) == 0:
        found.rare |= RARE_SCHEDULE            # an empty one is wrong too
        found.present = True
    elif n == 12 and memcmp(name, b"Request-Info", 12) == 0:
        found.untidy = True


cdef void scan_headers(const char* p, uint32_t n, PublishHeaders* found) noexcept nogil:
    cdef const char* end = p + n
    cdef const char* eol
    cdef const char* colon
    memset(found, 0, sizeof(PublishHeaders))
    if n > 8 and memcmp(p, b"NATS/1.0", 8) == 0 and p[8] != c'\r':
        found.untidy = True
    while p < end:
        eol = <const char*>memchr(p, c'\n', end - p)
        if eol == NULL:
            break
        if eol - p > PREFIX and p[0] == c'N' and memcmp(p, b"Nats-", PREFIX) == 0:
            colon = <const char*>memchr(p, c':', eol - p)
            if colon != NULL:
                look(p + PREFIX, colon - p - PREFIX, colon + 1, eol, found)
        p = eol + 1


cdef int tidy(const char* p, uint32_t n, Out* out) except -1:
    cdef const char* end = p + n
    cdef const char* eol
    cdef size_t before = out.len
    cdef bint first = True, removed = False
    while p < end:
        eol = <const char*>memchr(p, c'\n', end - p)
        eol = end if eol == NULL else eol + 1
        if first and eol - p > 10 and memcmp(p, b"NATS/1.0", 8) == 0:
            out_put(out, b"NATS/1.0\r\n", 10)
        elif eol - p < 18 or memcmp(p, b"Nats-Request-Info:", 18) != 0:
            out_put(out, p, eol - p)
        else:
            removed = True
        first = False
        p = eol
    if removed and out.len - before <= EMPTY_BYTES:
        out.len = before                       # it was the only one
    return 0


cdef Text header_value(const char* p, uint32_t n, const char* name, uint32_t name_len) noexcept nogil:
    cdef const char* end = p + n
    cdef const char* eol
    cdef Text absent
    while p < end:
        eol = <const char*>memchr(p, c'\n', end - p)
        if eol == NULL:
            break
        if <size_t>(eol - p) > name_len and p[name_len] == c':' and memcmp(p, name, name_len) == 0:
            return value_of(p + name_len + 1, eol)
        p = eol + 1
    absent.at = NULL
    absent.n = 0
    return absent


cdef object text_or_none(Text t):
    return None if t.at == NULL else PyBytes_FromStringAndSize(t.at, t.n)


def scan(bytes block) -> dict:
    """What a stream sees in a header block, for tests and rare rules: names of PublishHeaders -> value or None."""
    cdef PublishHeaders h
    scan_headers(PyBytes_AS_STRING(block), <uint32_t>PyBytes_GET_SIZE(block), &h)
    return {
        "message_id": text_or_none(h.message_id), "stream": text_or_none(h.stream),
        "last_sequence": text_or_none(h.last_sequence), "subject_sequence": text_or_none(h.subject_sequence),
        "subject": text_or_none(h.subject), "last_id": text_or_none(h.last_id),
        "rare": h.rare, "untidy": bool(h.untidy),
    }


def value(bytes block, bytes name):
    """The first value of a header, byte for byte, or None."""
    return text_or_none(header_value(PyBytes_AS_STRING(block), <uint32_t>PyBytes_GET_SIZE(block),
                                     PyBytes_AS_STRING(name), <uint32_t>PyBytes_GET_SIZE(name)))


def tidied(bytes block) -> bytes:
    """The block as a stream stores it."""
    cdef Out out
    out.data = NULL
    out.off = out.len = out.cap = 0
    tidy(PyBytes_AS_STRING(block), <uint32_t>PyBytes_GET_SIZE(block), &out)
    result = PyBytes_FromStringAndSize(out.data, out.len) if out.len else b""
    out_free(&out)
    return result
