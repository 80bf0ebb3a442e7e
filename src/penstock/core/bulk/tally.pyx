"""Counts the messages of a subscription and writes the answer to each, without a Python object per message.

It is the receiving half of a load: what a subscriber, a consumer that acknowledges or a service does with each message::

    MSG a.b 7 $JS.ACK.S.c.1.42.42.1700.5 128       messages += 1, payload_bytes += 128
    ...                                             PUB $JS.ACK.S.c.1.42.42.1700.5 4 / +ACK        the answer "+ACK"

    HMSG INBOX.1 7 16 16                            a status of the server ("NATS/1.0 404 ..."): kept for the caller
    MSG INBOX.confirm 8 0                           of the other subscription: an ack was confirmed

Knows nothing of sockets, and of JetStream only that the caller may answer with an ack.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

from penstock.core.base.buffer cimport Out, out_free, out_reserve, parse_u63, put_u64
from penstock.core.protocol.wire cimport OP_MORE, OP_MSG, Op, Parser, read_op

cdef enum:
    DIGITS_MAX = 20
    STATUS_AT = 9                   # "NATS/1.0 503": a blank, where other blocks end the line


cdef inline char* put(char* to, const char* p, size_t n) noexcept nogil:
    memcpy(to, p, n)
    return to + n


cdef class Tally:
    """Counts the messages of a subscription and writes an answer to each; see tally.pyi."""

    def __init__(self, bytes answer=None, *, bytes reply=b"", bint only_last=False):
        self.answer = answer
        self.reply = reply
        self.only_last = only_last
        self.statuses = []

    def __dealloc__(self):
        out_free(&self.out)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of answers that were not taken yet."""
        return self.out.len - self.out.off

    def take(self) -> bytes:
        """The answers that were not taken yet."""
        cdef bytes taken
        if self.out.len == self.out.off:
            return b""
        taken = PyBytes_FromStringAndSize(self.out.data + self.out.off, <Py_ssize_t>(self.out.len - self.out.off))
        self.out.off = self.out.len = 0
        return taken

    def feed(self, Parser parser, int64_t sid, data, int64_t confirmations_sid=0) -> list:
        """Parse data; messages of the subscriptions are counted, every other operation is returned. See tally.pyi."""
        cdef Op op
        cdef int kind
        cdef int64_t of
        cdef list others = []
        cdef bytes last = b""
        parser.take_in(data)
        while True:
            kind = read_op(&parser.reader, &op)
            if kind == OP_MORE:
                break
            if kind == OP_MSG:
                of = parse_u63(op.sid, op.sid_len)
                if of == sid:
                    if self.count(&op) and self.answer is not None and op.reply_len:
                        if self.only_last:
                            last = PyBytes_FromStringAndSize(op.reply, op.reply_len)
                        else:
                            self.put_answer(op.reply, op.reply_len)
                    continue
                if of == confirmations_sid:
                    self.confirmations += 1
                    continue
            event = parser.event_of(&op) if kind > 0 else None
            if event is None:
                parser.fail(kind, others)
            others.append(event)
        if last:
            self.put_answer(PyBytes_AS_STRING(last), <size_t>PyBytes_GET_SIZE(last))
        return others

    cdef int count(self, Op* op) except -1:
        # 1 for a message, 0 for a status.
        if op.hlen > STATUS_AT and op.body[STATUS_AT - 1] == c' ' and memcmp(op.body, b"NATS/1.0", STATUS_AT - 1) == 0:
            self.statuses.append(PyBytes_FromStringAndSize(op.body, op.hlen))
            return 0
        self.messages += 1
        self.payload_bytes += op.body_len - op.hlen
        return 1

    cdef int put_answer(self, const char* subject, size_t n) except -1:
        cdef size_t size = <size_t>PyBytes_GET_SIZE(self.answer)
        cdef size_t reply = <size_t>PyBytes_GET_SIZE(self.reply)
        cdef char* to = out_reserve(&self.out, 4 + n + 1 + reply + 1 + DIGITS_MAX + 2 + size + 2)
        to = put(to, b"PUB ", 4)
        to = put(to, subject, n)
        to = put(to, b" ", 1)
        if reply:
            to = put(to, PyBytes_AS_STRING(self.reply), reply)
            to = put(to, b" ", 1)
        to = put_u64(to, size)
        to = put(to, b"\r\n", 2)
        to = put(to, PyBytes_AS_STRING(self.answer), size)
        to = put(to, b"\r\n", 2)
        self.out.len = <size_t>(to - self.out.data)
        return 0
