"""Copies the messages of a pull consumer from received bytes into columns.

A message costs no Python object: its sequence and timestamp are read off the ack subject, its subject, headers and
payload are copied once, behind those of the message before::

    HMSG logs.a 7 $JS.ACK.LOGS.c.1.42.42.1700000000000000000.58 12 17        seq 42, timestamp 1700000000000000000
    NATS/1.0.... hello                                                        subject  headers  payload

    payload_data      hello|world|...        payload_offsets   0 5 10 ...    (the layout of an Arrow binary column)

Knows nothing of sockets or Arrow. Arrow can use the buffers without a copy.
"""
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from pelton.core.base.buffer cimport parse_u63
from pelton.core.protocol.wire cimport OP_MORE, OP_MSG, Op, Parser, read_op

cdef enum:
    ACK_TOKENS = 9
    ACK_TOKENS_LONG = 11
    BYTES_MAX = 1 << 30             # so that offsets always fit 31 bits, the last message included


cdef class Buffer:
    """Bytes that grow at the end and are read through the buffer protocol, without a copy."""

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def view(self, str format="B"):
        """The bytes as values of a struct format: "q" for int64, "i" for int32."""
        return memoryview(self).cast(format)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data if self.data != NULL else <char*>b"", <Py_ssize_t>self.size, 1, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.views -= 1

    cdef char* room(self, size_t n) except NULL:
        cdef size_t cap
        cdef char* data
        if self.views:
            raise BufferError("columns that were handed out can not grow")
        if self.cap - self.size < n:
            cap = self.cap * 2 if self.cap * 2 >= self.size + n else self.size + n
            if cap < 4096:
                cap = 4096
            data = <char*>realloc(self.data, cap)
            if data == NULL:
                raise MemoryError(f"no room for a column of {cap} bytes")
            self.data = data
            self.cap = cap
        data = self.data + self.size
        self.size += n
        return data

    cdef void cut(self, size_t size) noexcept:
        self.size = size


cdef inline int put_i64(Buffer to, int64_t value) except -1:
    memcpy(to.room(8), &value, 8)
    return 0


cdef inline int put_i32(Buffer to, int32_t value) except -1:
    memcpy(to.room(4), &value, 4)
    return 0


cdef inline int put_bytes(Buffer data, Buffer offsets, const char* p, size_t n) except -1:
    if n:
        memcpy(data.room(n), p, n)
    return put_i32(offsets, <int32_t>data.size)


cdef bint parse_ack(const char* reply, size_t n, int64_t* numbers) noexcept nogil:
    cdef size_t[ACK_TOKENS_LONG + 1] starts
    cdef size_t i
    cdef int count = 1
    cdef int first, k
    if n < 8 or memcmp(reply, b"$JS.ACK.", 8) != 0:
        return False
    starts[0] = 0
    for i in range(n):
        if reply[i] == c'.':
            if count == ACK_TOKENS_LONG:            # further tokens do not matter
                starts[count] = i + 1
                count += 1
                break
            starts[count] = i + 1
            count += 1
    if count == ACK_TOKENS:
        first = 4
        starts[count] = n + 1
    elif count == ACK_TOKENS_LONG:
        first = 6
        starts[count] = n + 1
    elif count > ACK_TOKENS_LONG:
        first = 6
    else:
        return False
    for k in range(5):
        numbers[k] = parse_u63(reply + starts[first + k], starts[first + k + 1] - 1 - starts[first + k])
        if numbers[k] < 0:
            return False
    return True


cdef class Columns:
    """One batch of messages as columns; see columns.pyi."""

    def __cinit__(self, size_t rows_max=65536, size_t bytes_max=67108864):
        if rows_max == 0 or bytes_max == 0 or bytes_max > BYTES_MAX:
            raise ValueError(f"a batch has 1 row or more and 1 to {BYTES_MAX} bytes: {rows_max}, {bytes_max}")
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.seq = Buffer()
        self.timestamp_ns = Buffer()
        self.subject_offsets = Buffer()
        self.subject_data = Buffer()
        self.headers_offsets = Buffer()
        self.headers_data = Buffer()
        self.payload_offsets = Buffer()
        self.payload_data = Buffer()
        self.last_pending = -1
        self.statuses = []
        self.inbox = b""
        put_i32(self.subject_offsets, 0)
        put_i32(self.headers_offsets, 0)
        put_i32(self.payload_offsets, 0)

    def __len__(self):
        return self.count

    @property
    def nbytes(self):
        """Bytes of subjects, headers and payloads."""
        return self.subject_data.size + self.headers_data.size + self.payload_data.size

    @property
    def full(self):
        """Whether no further message is taken."""
        return self.is_full()

    cdef bint is_full(self) noexcept:
        return (self.count >= self.rows_max
                or self.subject_data.size + self.headers_data.size + self.payload_data.size >= self.bytes_max)

    cdef int put(self, const char* subject, size_t subject_len, const char* body, size_t hlen, size_t body_len,
                 const int64_t* numbers) except -1:
        return self.put_parts(subject, subject_len, body, hlen, body + hlen, body_len - hlen, numbers)

    cdef int put_parts(self, const char* subject, size_t subject_len, const char* headers, size_t hlen, const char* payload,
                       size_t payload_len, const int64_t* numbers) except -1:
        put_i64(self.seq, numbers[1])
        put_i64(self.timestamp_ns, numbers[3])
        put_bytes(self.subject_data, self.subject_offsets, subject, subject_len)
        put_bytes(self.headers_data, self.headers_offsets, headers, hlen)
        put_bytes(self.payload_data, self.payload_offsets, payload, payload_len)
        self.count += 1
        self.last_seq = numbers[1]
        self.last_consumer_seq = numbers[2]
        self.last_pending = numbers[4]
        return 0

    cdef bint add(self, Op* op) except -1:
        cdef int64_t[5] numbers
        cdef size_t inbox = <size_t>PyBytes_GET_SIZE(self.inbox)
        if inbox and op.subject_len >= inbox and memcmp(op.subject, PyBytes_AS_STRING(self.inbox), inbox) == 0:
            self.put_status(op)
            return False
        if op.reply_len and parse_ack(op.reply, op.reply_len, numbers):
            self.put(op.subject, op.subject_len, op.body, op.hlen, op.body_len, numbers)
            return True
        self.put_status(op)
        return False

    cdef int put_status(self, Op* op) except -1:
        # Keeps a status message; other messages come from clients that publish to our inbox.
        if op.hlen >= 12 and memcmp(op.body, b"NATS/1.0 ", 9) == 0:
            self.statuses.append((
                PyBytes_FromStringAndSize(op.subject, op.subject_len).decode("utf-8", "surrogateescape"),
                PyBytes_FromStringAndSize(op.body, op.hlen),
            ))
        return 0

    cdef int64_t payload_bytes(self, size_t row) noexcept:
        cdef int32_t* at = <int32_t*>self.payload_offsets.data
        return at[row + 1] - at[row]

    def feed(self, Parser parser, int64_t sid, data) -> list:
        """Parse data; messages of the subscription become rows, every other operation is returned.

        Stops when the batch is full: the rest stays in the parser, for the next batch to go on with feed(parser, sid, b"").
        """
        cdef Op op
        cdef int kind
        cdef list others = []
        parser.take_in(data)
        while not self.is_full():
            kind = read_op(&parser.reader, &op)
            if kind == OP_MORE:
                break
            if kind == OP_MSG and parse_u63(op.sid, op.sid_len) == sid:
                self.add(&op)
                continue
            event = parser.event_of(&op) if kind > 0 else None
            if event is None:
                parser.fail(kind, others)
            others.append(event)
        return others

    def append(self, str subject, str reply, bytes headers, bytes payload) -> bool:
        """Add one message that came another way; False when it is not from a consumer."""
        cdef int64_t[5] numbers
        cdef bytes s = subject.encode("utf-8", "surrogateescape")
        cdef bytes r = reply.encode("utf-8", "surrogateescape")
        cdef bytes body = headers + payload
        if not parse_ack(PyBytes_AS_STRING(r), <size_t>PyBytes_GET_SIZE(r), numbers):
            return False
        self.put(PyBytes_AS_STRING(s), <size_t>PyBytes_GET_SIZE(s), PyBytes_AS_STRING(body),
                 <size_t>PyBytes_GET_SIZE(headers), <size_t>PyBytes_GET_SIZE(body), numbers)
        return True

    def truncate(self, int64_t stop_seq) -> int:
        """Drop the rows from the first whose sequence is stop_seq or higher; returns how many were dropped."""
        cdef size_t keep = 0
        cdef size_t dropped
        cdef int64_t* seq = <int64_t*>self.seq.data
        if self.seq.views or self.payload_offsets.views:
            raise BufferError("columns that were handed out can not shrink")
        while keep < self.count and seq[keep] < stop_seq:
            keep += 1
        dropped = self.count - keep
        if dropped:
            self.count = keep
            self.seq.cut(keep * 8)
            self.timestamp_ns.cut(keep * 8)
            shorten(self.subject_data, self.subject_offsets, keep)
            shorten(self.headers_data, self.headers_offsets, keep)
            shorten(self.payload_data, self.payload_offsets, keep)
        return dropped

    def rows(self) -> list:
        """The messages as tuples (seq, timestamp_ns, subject, headers, payload)."""
        cdef size_t i
        cdef int64_t* seq = <int64_t*>self.seq.data
        cdef int64_t* timestamp = <int64_t*>self.timestamp_ns.data
        cdef list found = []
        for i in range(self.count):
            found.append((
                seq[i],
                timestamp[i],
                piece(self.subject_data, self.subject_offsets, i).decode("utf-8", "surrogateescape"),
                piece(self.headers_data, self.headers_offsets, i),
                piece(self.payload_data, self.payload_offsets, i),
            ))
        return found


cdef int shorten(Buffer data, Buffer offsets, size_t keep) noexcept:
    offsets.cut((keep + 1) * 4)
    data.cut(<size_t>(<int32_t*>offsets.data)[keep])
    return 0


cdef bytes piece(Buffer data, Buffer offsets, size_t i):
    cdef int32_t* at = <int32_t*>offsets.data
    return PyBytes_FromStringAndSize(data.data + at[i] if data.data != NULL else NULL, at[i + 1] - at[i])
