"""Columns of messages from direct gets, and from consumers without payloads or with ack subjects.

A consumer without payloads adds a last header line with the size of the payload; a direct get adds last lines that describe the
message. The columns read these lines and leave them out, so that the rest is the message as it was stored::

    NATS/1.0 / K: v / Nats-Msg-Size: 5                                                  a consumer with headers_only

    NATS/1.0 / K: v / Nats-Stream: S / Nats-Subject: s.a / Nats-Sequence: 7             a direct get
        / Nats-Time-Stamp: 2026-10-16T23:04:01.5Z / Nats-Num-Pending: 2 / Nats-Last-Sequence: 6

The place of a line tells it from a header of the same name in the message itself. Knows nothing of requests.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy
from pelton.core.base.buffer cimport parse_u63
from pelton.core.bulk.columns cimport Buffer, Columns, parse_ack
from pelton.core.protocol.wire cimport Op

cdef enum:
    FIRST_BYTES = 10                # NATS/1.0 CR LF
    NS = 1000000000


cdef size_t last_line(const char* block, size_t end, const char* name, size_t name_len, size_t* value) noexcept nogil:
    cdef size_t at = end
    if end < FIRST_BYTES + name_len + 2:
        return 0
    while at > FIRST_BYTES and block[at - 1] != c'\n':
        at -= 1
    if block[at - 1] != c'\n' or end - at < name_len + 2 or memcmp(block + at, name, name_len) != 0:
        return 0
    if block[at + name_len] != c':' or block[at + name_len + 1] != c' ':
        return 0
    value[0] = at + name_len + 2
    return at


cdef inline bint is_block(const char* block, size_t n) noexcept nogil:
    return n >= FIRST_BYTES + 4 and memcmp(block + n - 4, b"\r\n\r\n", 4) == 0


cdef inline int digits(const char* p, int n) noexcept nogil:
    # n decimal digits; -1 when one of them is none.
    cdef int value = 0
    cdef int i
    for i in range(n):
        if not c'0' <= p[i] <= c'9':
            return -1
        value = value * 10 + (p[i] - c'0')
    return value


cdef int64_t parse_time(const char* p, size_t n) noexcept nogil:
    cdef int64_t year, month, day, days, seconds, fraction = 0
    cdef int hour, minute, second
    cdef size_t i = 20
    cdef int64_t unit = NS
    if n < 20 or p[4] != c'-' or p[7] != c'-' or p[10] != c'T' or p[13] != c':' or p[16] != c':' or p[n - 1] != c'Z':
        return -1
    year, month, day = digits(p, 4), digits(p + 5, 2), digits(p + 8, 2)
    hour, minute, second = digits(p + 11, 2), digits(p + 14, 2), digits(p + 17, 2)
    if year < 1970 or month < 1 or month > 12 or day < 1 or day > 31 or hour < 0 or minute < 0 or second < 0 or year > 2261:
        return -1
    if n > 20:
        if p[19] != c'.' or n > 30:
            return -1
        for i in range(20, n - 1):
            if not c'0' <= p[i] <= c'9':
                return -1
            unit //= 10
            fraction += (p[i] - c'0') * unit
    # days since 1970, of a year that begins in March
    if month <= 2:
        year -= 1
        month += 12
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719468
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    return seconds * NS + fraction


cdef size_t without_line(char* block, size_t at) noexcept nogil:
    # The block ends before the line at `at`: its length then, 0 when no header is left.
    if at <= FIRST_BYTES:
        return 0
    block[at] = c'\r'
    block[at + 1] = c'\n'
    return at + 2


cdef class WireColumns(Columns):
    """Messages of a consumer with their ack subjects, or without their payloads; see the stub."""

    def __cinit__(self):
        cdef int32_t zero = 0
        self.payload_sizes = Buffer()
        self.reply_offsets = Buffer()
        self.reply_data = Buffer()
        memcpy(self.reply_offsets.room(4), &zero, 4)

    cdef bint add(self, Op* op) except -1:
        cdef int64_t[5] numbers
        cdef int64_t size
        cdef int32_t end
        cdef size_t at, value = 0
        cdef size_t hlen = op.hlen
        if not (op.reply_len and parse_ack(op.reply, op.reply_len, numbers)):
            self.put_status(op)
            return False
        if self.headers_only:
            size = op.body_len - op.hlen
            at = last_line(op.body, hlen - 4, b"Nats-Msg-Size", 13, &value) if is_block(op.body, hlen) else 0
            if at:
                size = parse_u63(op.body + value, op.hlen - 4 - value)
                hlen = without_line(<char*>op.body, at)
            memcpy(self.payload_sizes.room(8), &size, 8)
            self.put_parts(op.subject, op.subject_len, op.body, hlen, NULL, 0, numbers)
        else:
            self.put(op.subject, op.subject_len, op.body, op.hlen, op.body_len, numbers)
        if self.replies:
            memcpy(self.reply_data.room(op.reply_len), op.reply, op.reply_len)
            end = <int32_t>self.reply_data.size
            memcpy(self.reply_offsets.room(4), &end, 4)
        return True

    cdef int64_t payload_bytes(self, size_t row) noexcept:
        if self.headers_only:
            return (<int64_t*>self.payload_sizes.data)[row]
        return Columns.payload_bytes(self, row)

    def append(self, str subject, str reply, bytes headers, bytes payload) -> bool:
        """Refused: messages come by `feed` only."""
        raise TypeError("messages come by feed")

    def truncate(self, int64_t stop_seq) -> int:
        """As that of Columns."""
        dropped = Columns.truncate(self, stop_seq)
        if dropped and self.headers_only:
            self.payload_sizes.cut(self.count * 8)
        if dropped and self.replies:
            self.reply_offsets.cut((self.count + 1) * 4)
            self.reply_data.cut(<size_t>(<int32_t*>self.reply_offsets.data)[self.count])
        return dropped


cdef class DirectColumns(Columns):
    """Messages that direct gets brought; see the stub."""

    def __cinit__(self):
        self.stream = b""
        self.reply = b""

    cdef bint add(self, Op* op) except -1:
        cdef int64_t[5] numbers
        cdef char* block = <char*>op.body
        cdef size_t end = op.hlen - 4
        cdef size_t at = 0
        cdef size_t subject = 0, subject_len = 0, value = 0
        if self.reply and (op.subject_len != <size_t>len(self.reply)
                           or memcmp(op.subject, <const char*>self.reply, op.subject_len) != 0):
            return False
        numbers[1] = numbers[2] = numbers[3] = numbers[4] = 0
        if is_block(block, op.hlen):
            at = last_line(block, end, b"Nats-Last-Sequence", 18, &value)
            if at:
                end = at - 2
                at = last_line(block, end, b"Nats-Num-Pending", 16, &value)
            if at:
                numbers[4] = parse_u63(block + value, end - value)
                end = at - 2
                at = last_line(block, end, b"Nats-Time-Stamp", 15, &value)
            if at:
                numbers[3] = parse_time(block + value, end - value)
                end = at - 2
                at = last_line(block, end, b"Nats-Sequence", 13, &value)
            if at:
                numbers[1] = parse_u63(block + value, end - value)
                end = at - 2
                at = last_line(block, end, b"Nats-Subject", 12, &value)
            if at:
                subject, subject_len = value, end - value
                end = at - 2
                at = last_line(block, end, b"Nats-Stream", 11, &value)
        if not at or numbers[1] <= 0 or numbers[3] < 0:
            self.put_status(op)
            return False
        if end - value != <size_t>len(self.stream) or memcmp(block + value, <const char*>self.stream, end - value) != 0:
            self.foreign = True
            return False
        self.put_parts(block + subject, subject_len, block, without_line(block, at), op.body + op.hlen, op.body_len - op.hlen, numbers)
        return True
