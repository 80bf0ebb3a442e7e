"""Publishes rows of columns and reads their acks, without a Python object per message.

Each message has a number, which ends its reply subject. The window holds its bytes until the answer with that number comes, so that they
can be sent again. A window with tokens puts one before each number, and takes no answer without it: nobody who answers one message can
forge the ack of another::

    held    | HPUB a.b INBOX.41 ... | HPUB a.c INBOX.42 ... | HPUB a.b INBOX.43 ... |
            ^ base                                          ^ sent                  (behind it: not taken yet)
    slots     41: row 40, position, size, answered    42: ...     a ring, found by number

    answer    MSG INBOX.42 7 26    {"stream":"S","seq":17}        plain acks are counted,
              HMSG INBOX.43 7 ...  NATS/1.0 503                   anything else goes to `failures` with its message

Knows the layout of Arrow columns, but nothing of Arrow or of sockets. The caller decides what a refusal means.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy

from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve, parse_u63, put_u64
from pelton.core.protocol.subjects cimport subject_literal
from pelton.core.protocol.wire cimport OP_MORE, OP_MSG, Op, Parser, read_op

SEND = 0
SKIP = 1
UNNUMBERED = 2

TOO_LARGE = 1
BAD_SUBJECT = 2
LONG_SUBJECT = 3

cdef enum:
    DIGITS_MAX = 20
    ROWS_MAX = 1 << 24


cdef class Column:
    """A column of texts; see publish_window.pyi."""

    def __cinit__(self, data, offsets=None, size_t count=0):
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.views = 1
        self.fixed = offsets is None
        self.count = count
        if not self.fixed:
            PyObject_GetBuffer(offsets, &self.offsets, PyBUF_SIMPLE)
            self.views = 2
            if <size_t>self.offsets.len < (count + 1) * sizeof(int32_t):
                raise ValueError(f"{count} rows need {count + 1} offsets")

    def __dealloc__(self):
        if self.views > 0:
            PyBuffer_Release(&self.data)
        if self.views > 1:
            PyBuffer_Release(&self.offsets)

    cdef int at(self, size_t i, Slice* found) except -1:
        cdef const int32_t* offsets
        if self.fixed:
            found.p = <const char*>self.data.buf
            found.n = <size_t>self.data.len
            return 0
        if i >= self.count:
            raise IndexError(f"row {i} of {self.count}")
        offsets = <const int32_t*>self.offsets.buf
        if offsets[i] < 0 or offsets[i + 1] < offsets[i] or offsets[i + 1] > self.data.len:
            raise ValueError(f"the offsets of row {i} lie outside of the data")
        found.p = <const char*>self.data.buf + offsets[i]
        found.n = <size_t>(offsets[i + 1] - offsets[i])
        return 0


cdef class Rows:
    """One batch of rows to publish; see publish_window.pyi."""

    def __init__(self, Column subjects, Column payloads, Column lines, *, int64_t first, size_t count, bytes how=b""):
        for column in (subjects, payloads, lines):
            if column is not None and not (<Column>column).fixed and (<Column>column).count < count:
                raise ValueError(f"a column of {column.count} rows, but there are {count}")
        if how and <size_t>PyBytes_GET_SIZE(how) != count:
            raise ValueError(f"{len(how)} marks for {count} rows")
        self.subjects = subjects
        self.payloads = payloads
        self.lines = lines
        self.first = first
        self.count = count
        self.how = how


cdef inline char* put(char* to, const char* p, size_t n) noexcept nogil:
    if n:
        memcpy(to, p, n)
    return to + n


cdef class Encoder:
    """Rows as operations; see publish_window.pyi."""

    def __init__(self, *, bytes common=b"", bytes numbered=b"", bytes reply=b"", int64_t max_payload, size_t max_line=4096):
        self.common = common
        self.numbered = numbered
        self.reply = reply
        self.max_payload = max_payload
        cdef size_t rest = <size_t>PyBytes_GET_SIZE(reply) + TOKEN + 3 * (DIGITS_MAX + 1)
        self.max_subject = max_line - rest if max_line > rest else 0
        self.refused = []

    def operations(self, Rows rows, size_t start, size_t stop, uint64_t number) -> tuple:
        """(bytes, messages) of the rows from start to before stop, numbered from `number` on; see publish_window.pyi."""
        cdef Out out
        cdef size_t i
        cdef uint64_t first = number
        out.data = NULL
        out.off = out.len = out.cap = 0
        try:
            for i in range(start, stop):
                number += self.write(&out, rows, i, number, number)
            return (PyBytes_FromStringAndSize(out.data, out.len) if out.len else b""), number - first
        finally:
            out_free(&out)

    def check(self, Rows rows, uint64_t number) -> None:
        """Refuse what cannot be sent, and send nothing; see publish_window.pyi."""
        cdef size_t i
        for i in range(rows.count):
            self.write(NULL, rows, i, number, number)

    cdef bint are_alike(self, Rows rows) noexcept:
        return (rows.subjects.fixed and rows.payloads.fixed and rows.lines is None and not rows.how
                and not self.common and not self.numbered and PyBytes_GET_SIZE(self.reply) > 0
                and <size_t>rows.subjects.data.len <= self.max_subject
                and <int64_t>rows.payloads.data.len <= self.max_payload)

    cdef int write(self, Out* out, Rows rows, size_t i, uint64_t number, uint64_t line_number,
                   const char* token=NULL) except -1:
        cdef Slice subject
        cdef Slice payload
        cdef Slice lines
        cdef uint8_t how = <uint8_t>PyBytes_AS_STRING(rows.how)[i] if rows.how else SEND
        cdef int64_t row = rows.first + <int64_t>i
        cdef char digits[DIGITS_MAX]
        cdef size_t digits_len = 0
        cdef size_t headers = 0
        cdef size_t numbered = 0
        cdef char* to
        if how == SKIP:
            return 0
        rows.subjects.at(i, &subject)
        rows.payloads.at(i, &payload)
        lines.p, lines.n = NULL, 0
        if rows.lines is not None:
            rows.lines.at(i, &lines)
        if self.numbered and how != UNNUMBERED:
            digits_len = put_u64(digits, line_number) - digits
            numbered = <size_t>PyBytes_GET_SIZE(self.numbered) + digits_len + 2
        if numbered or lines.n or self.common:
            headers = 10 + <size_t>PyBytes_GET_SIZE(self.common) + lines.n + numbered + 2
        if <int64_t>(headers + payload.n) > self.max_payload:
            self.refused.append((row, TOO_LARGE, headers + payload.n))
            return 0
        if not rows.subjects.fixed and (not subject_literal(subject.p, subject.n) or memchr(subject.p, 0, subject.n) != NULL):
            self.refused.append((row, BAD_SUBJECT, subject.n))
            return 0
        if subject.n > self.max_subject:
            self.refused.append((row, LONG_SUBJECT, subject.n))
            return 0
        if out == NULL:
            return 1
        to = out_reserve(out, 5 + subject.n + 1 + <size_t>PyBytes_GET_SIZE(self.reply) + TOKEN + 3 * (DIGITS_MAX + 1) + 2
                         + headers + payload.n + 2)
        to = put(to, b"HPUB " if headers else b"PUB ", 5 if headers else 4)
        to = put(to, subject.p, subject.n)
        to[0] = c' '
        to += 1
        if self.reply:
            to = put(to, PyBytes_AS_STRING(self.reply), <size_t>PyBytes_GET_SIZE(self.reply))
            if token != NULL:
                to = put(to, token, TOKEN)
            to = put_u64(to, number)
            to[0] = c' '
            to += 1
        if headers:
            to = put_u64(to, headers)
            to[0] = c' '
            to += 1
        to = put_u64(to, headers + payload.n)
        to = put(to, b"\r\n", 2)
        if headers:
            to = put(to, b"NATS/1.0\r\n", 10)
            to = put(to, PyBytes_AS_STRING(self.common), <size_t>PyBytes_GET_SIZE(self.common))
            to = put(to, lines.p, lines.n)
            if numbered:
                to = put(to, PyBytes_AS_STRING(self.numbered), <size_t>PyBytes_GET_SIZE(self.numbered))
                to = put(to, digits, digits_len)
                to = put(to, b"\r\n", 2)
            to = put(to, b"\r\n", 2)
        to = put(to, payload.p, payload.n)
        to = put(to, b"\r\n", 2)
        out.len = <size_t>(to - out.data)
        return 1


cdef class PublishWindow:
    """The window of messages that wait for an answer; see publish_window.pyi."""

    def __cinit__(self, Encoder encoder, size_t rows_max, size_t bytes_max, tokens=None):
        cdef size_t capacity = 1
        if not 1 <= rows_max <= ROWS_MAX or bytes_max < 1:
            raise ValueError(f"a window has room for 1 to {ROWS_MAX} messages and 1 byte or more: {rows_max}, {bytes_max}")
        while capacity < rows_max:
            capacity *= 2
        self.slots = <Slot*>calloc(capacity, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError(f"no room for a window of {rows_max} messages")
        self.mask = capacity - 1
        self.encoder = encoder
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.tokens = tokens
        self.drawn = b""
        self.oldest = self.next_number = 1
        self.failures = []

    def __dealloc__(self):
        free(self.slots)
        out_free(&self.held)
        out_free(&self.head)
        out_free(&self.tail)
        out_free(&self.ack)

    def __len__(self):
        return self.outstanding

    @property
    def held_bytes(self) -> int:
        """Bytes of messages from the oldest without an answer on."""
        return self.held.len - self.held.off

    @property
    def full(self) -> bool:
        """Whether an answer must come before another message may go."""
        return self.is_full()

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were put and not taken yet."""
        return self.base + (self.held.len - self.held.off) - self.sent

    cdef bint is_full(self) noexcept:
        return (self.next_number - self.oldest >= self.rows_max
                or (self.held.len > self.held.off and self.held.len - self.held.off >= self.bytes_max))

    cdef const char* next_token(self, Slot* slot) except? NULL:
        if self.tokens is None:
            return NULL
        if self.token_at + TOKEN > <size_t>PyBytes_GET_SIZE(self.drawn):
            self.drawn = self.tokens()
            self.token_at = 0
            if PyBytes_GET_SIZE(self.drawn) < TOKEN:
                raise ValueError(f"a token has {TOKEN} bytes, got {len(self.drawn)}")
        memcpy(slot.token, PyBytes_AS_STRING(self.drawn) + self.token_at, TOKEN)
        self.token_at += TOKEN
        return slot.token

    cdef bytes operation(self, Slot* slot):
        return PyBytes_FromStringAndSize(self.held.data + self.held.off + (slot.at - self.base), slot.size)

    def put(self, Rows rows, size_t start, size_t bytes_wanted) -> int:
        """Write rows from start on until the window is full or so many bytes can be taken; the first row not looked at."""
        return start + <size_t>self.put_some(rows, start, rows.count, bytes_wanted)

    cdef int64_t put_some(self, Rows rows, size_t start, size_t most, size_t bytes_wanted) except -1:
        cdef size_t i = start
        cdef size_t stop = rows.count if rows.count < start or most >= rows.count - start else start + most
        cdef size_t before
        cdef const char* token
        cdef Slot* slot
        if self.encoder.are_alike(rows):
            return self.put_alike(rows, i, stop, bytes_wanted)
        while i < stop and not self.is_full() and self.base + (self.held.len - self.held.off) - self.sent < bytes_wanted:
            before = self.held.len - self.held.off      # writing may move the bytes, not how many there are
            slot = &self.slots[self.next_number & self.mask]
            token = self.next_token(slot)
            if self.encoder.write(&self.held, rows, i, self.next_number, <uint64_t>(rows.first + <int64_t>i), token):
                slot.row = rows.first + <int64_t>i
                slot.at = self.base + before
                slot.size = self.held.len - self.held.off - before
                slot.seq = 0
                slot.answered = False
                self.next_number += 1
                self.outstanding += 1
            i += 1
        return <int64_t>(i - start)

    cdef int64_t put_alike(self, Rows rows, size_t start, size_t stop, size_t bytes_wanted) except -1:
        # Rows that differ in the end of their reply alone: a head and a tail for all of them.
        cdef Slice subject
        cdef Slice payload
        cdef size_t reply = <size_t>PyBytes_GET_SIZE(self.encoder.reply)
        cdef size_t head, tail, before
        cdef size_t i = start
        cdef char* to
        cdef const char* token
        cdef Slot* slot
        rows.subjects.at(0, &subject)
        rows.payloads.at(0, &payload)
        self.head.len = self.tail.len = 0
        out_put(&self.head, b"PUB ", 4)
        out_put(&self.head, subject.p, subject.n)
        out_put(&self.head, b" ", 1)
        out_put(&self.head, PyBytes_AS_STRING(self.encoder.reply), reply)
        to = put_u64(put(out_reserve(&self.tail, DIGITS_MAX + 5 + payload.n), b" ", 1), payload.n)
        to = put(put(to, b"\r\n", 2), payload.p, payload.n)
        self.tail.len = <size_t>(put(to, b"\r\n", 2) - self.tail.data)
        head, tail = self.head.len, self.tail.len
        while i < stop and not self.is_full() and self.base + (self.held.len - self.held.off) - self.sent < bytes_wanted:
            before = self.held.len - self.held.off
            slot = &self.slots[self.next_number & self.mask]
            token = self.next_token(slot)
            to = put(out_reserve(&self.held, head + TOKEN + DIGITS_MAX + tail), self.head.data, head)
            if token != NULL:
                to = put(to, token, TOKEN)
            to = put_u64(to, self.next_number)
            self.held.len = <size_t>(put(to, self.tail.data, tail) - self.held.data)
            slot.row = rows.first + <int64_t>i
            slot.at = self.base + before
            slot.size = self.held.len - self.held.off - before
            slot.seq = 0
            slot.answered = False
            self.next_number += 1
            self.outstanding += 1
            i += 1
        return <int64_t>(i - start)

    def take(self) -> bytes:
        """The bytes not taken yet, to be sent now."""
        cdef size_t n
        cdef const char* p = self.untaken(&n)
        self.taken()
        return PyBytes_FromStringAndSize(p, n) if n else b""

    cdef const char* untaken(self, size_t* n) noexcept:
        n[0] = <size_t>(self.base + (self.held.len - self.held.off) - self.sent)
        return self.held.data + self.held.len - n[0]

    cdef void taken(self) noexcept:
        self.sent = self.base + (self.held.len - self.held.off)

    def again(self) -> bytes:
        """The bytes of every message without an answer, in order; nothing is left to take."""
        cdef list parts = []
        cdef uint64_t number = self.oldest
        cdef Slot* slot
        while number != self.next_number:
            slot = &self.slots[number & self.mask]
            if not slot.answered:
                parts.append(self.operation(slot))
            number += 1
        self.sent = self.base + (self.held.len - self.held.off)
        return b"".join(parts)

    def unanswered(self) -> list:
        """(number, row, operation) of every message without an answer, in order."""
        cdef list found = []
        cdef uint64_t number = self.oldest
        cdef Slot* slot
        while number != self.next_number:
            slot = &self.slots[number & self.mask]
            if not slot.answered:
                found.append((number, slot.row, self.operation(slot)))
            number += 1
        return found

    def settle(self, uint64_t number) -> None:
        """The stream has this message: it waits for no answer any more."""
        if self.oldest <= number < self.next_number and not self.slots[number & self.mask].answered:
            self.acked += 1
            self.duplicates += 1
            self.settled(number, 0)

    cdef int settled(self, uint64_t number, int64_t seq) except -1:
        cdef Slot* slot = &self.slots[number & self.mask]
        slot.answered = True
        slot.seq = seq
        self.outstanding -= 1
        if number == self.oldest:
            self.move_floor()
        return 0

    cdef int move_floor(self) except -1:
        cdef Slot* slot
        cdef uint64_t keep_from = self.base + (self.held.len - self.held.off)
        while self.oldest != self.next_number and self.slots[self.oldest & self.mask].answered:
            slot = &self.slots[self.oldest & self.mask]
            if slot.seq > self.floor_seq:
                self.floor_seq = slot.seq
            self.oldest += 1
        if self.oldest != self.next_number:
            keep_from = self.slots[self.oldest & self.mask].at
        if keep_from > self.sent:
            keep_from = self.sent
        self.held.off += <size_t>(keep_from - self.base)
        self.base = keep_from
        if self.held.off == self.held.len:
            self.held.off = self.held.len = 0
        return 0

    cdef int answer(self, Op* op) except -1:
        cdef size_t at = op.subject_len
        cdef int64_t number
        cdef int64_t seq = 0
        cdef bint duplicate = False
        cdef Slot* slot
        cdef const char* token = NULL
        while at and op.subject[at - 1] != c'.':
            at -= 1
        if self.tokens is not None:
            if op.subject_len - at <= TOKEN:
                return 0
            token = op.subject + at
            at += TOKEN
        number = parse_u63(op.subject + at, op.subject_len - at)
        if number < <int64_t>self.oldest or number >= <int64_t>self.next_number:
            return 0
        slot = &self.slots[<size_t>number & self.mask]
        if slot.answered or (token != NULL and memcmp(token, slot.token, TOKEN) != 0):
            return 0
        if self.acknowledges(op.body + op.hlen, op.body_len - op.hlen, &seq, &duplicate):
            self.acked += 1
            self.duplicates += duplicate
        else:
            self.failures.append((
                slot.row,
                self.operation(slot),
                PyBytes_FromStringAndSize(op.body, op.hlen),
                PyBytes_FromStringAndSize(op.body + op.hlen, op.body_len - op.hlen),
            ))
        self.settled(<uint64_t>number, seq)
        return 0

    cdef bint acknowledges(self, const char* p, size_t n, int64_t* seq, bint* duplicate) except -1:
        # Acks of one stream differ in their digits alone: what comes before them is compared with the last ack.
        cdef size_t at = self.ack.len
        if at and n > at + 1 and p[n - 1] == c'}' and memcmp(p, self.ack.data, at) == 0:
            seq[0] = parse_u63(p + at, n - 1 - at)
            if seq[0] > 0:
                return True
        if not read_ack(p, n, seq, duplicate):
            return False
        at = n - 1
        while at and c'0' <= p[at - 1] <= c'9':
            at -= 1
        self.ack.len = 0
        if at >= 6 and at < n - 1 and p[n - 1] == c'}' and memcmp(p + at - 6, b'"seq":', 6) == 0:
            out_put(&self.ack, p, at)
        return True

    def feed(self, Parser parser, int64_t sid, data) -> list:
        """Parse data; answers are taken, every other operation is returned; WireError as Parser.feed raises it."""
        cdef Op op
        cdef int kind
        cdef list others = []
        parser.take_in(data)
        while True:
            kind = read_op(&parser.reader, &op)
            if kind == OP_MORE:
                return others
            if kind == OP_MSG and parse_u63(op.sid, op.sid_len) == sid:
                self.answer(&op)
                continue
            event = parser.event_of(&op) if kind > 0 else None
            if event is None:
                parser.fail(kind, others)
            others.append(event)


cdef inline size_t blanks(const char* p, size_t n, size_t at) noexcept nogil:
    while at < n and p[at] == c' ':
        at += 1
    return at


cdef inline size_t text_end(const char* p, size_t n, size_t at) noexcept nogil:
    # The quote that ends a text which begins at `at`; n when there is none, or an escape comes before it.
    while at < n and p[at] != c'"':
        if p[at] == c'\\':
            return n
        at += 1
    return at


cdef bint read_ack(const char* p, size_t n, int64_t* seq, bint* duplicate) noexcept nogil:
    # An object of texts, numbers and truths on one level: {"stream":"S", "domain":"D", "seq":5, "duplicate": true}
    cdef size_t at = 1
    cdef size_t key
    cdef size_t key_len
    cdef size_t value
    cdef bint stored = False
    if n < 2 or p[0] != c'{':
        return False
    while True:
        at = blanks(p, n, at)
        if at >= n or p[at] != c'"':
            return False
        key = at + 1
        at = text_end(p, n, key)
        if at >= n:
            return False
        key_len = at - key
        at = blanks(p, n, at + 1)
        if at >= n or p[at] != c':':
            return False
        at = blanks(p, n, at + 1)
        value = at
        if at < n and p[at] == c'"':
            at = text_end(p, n, at + 1)
            if at >= n:
                return False
            at += 1
        else:
            while at < n and p[at] != c',' and p[at] != c'}' and p[at] != c' ':
                if p[at] == c'{' or p[at] == c'[' or p[at] == c'"':
                    return False
                at += 1
        if key_len == 3 and memcmp(p + key, b"seq", 3) == 0:
            seq[0] = parse_u63(p + value, at - value)
            stored = seq[0] > 0
        elif key_len == 9 and memcmp(p + key, b"duplicate", 9) == 0:
            duplicate[0] = at - value >= 4 and memcmp(p + value, b"true", 4) == 0
        elif key_len == 5 and memcmp(p + key, b"error", 5) == 0:
            return False
        at = blanks(p, n, at)
        if at >= n:
            return False
        if p[at] == c'}':
            return stored
        if p[at] != c',':
            return False
        at += 1
