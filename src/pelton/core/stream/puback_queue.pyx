"""PubAcks that wait until their message is as durable as its stream promises: one queue per stream, first in, first out.

A record in the queue:

    +0   u32   its size, a multiple of 8
    +4   u32   length of the reply subject
    +8   u64   barrier: the ack is sent when the stream has released this sequence
    +16  u64   the PubAck's sequence; of a caller's text: how many of its bytes are headers
    +24  u32   kind (AckKind)
    +28  u32   length of the caller's text
    +32        reply subject, then the text

Sending can call this queue again (the reply subject may be one of the stream's own), so a record leaves the queue before it is sent.
"""
import json

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, out_free, out_reserve, put_u64
from pelton.core.broker.router cimport Message, Router

cdef enum:
    REPLY_ROOM = 512           # a longer reply subject is copied to the heap
    HEAD_ROOM = 1100           # stream name and domain, escaped
    BATCH_MOST = 1000          # the most messages that one answer is about


def json_string(str text) -> str:
    """A JSON string as Go's encoder writes it: ``<``, ``>`` and ``&`` escaped, other text unchanged."""
    out = json.dumps(text, ensure_ascii=False)
    return out.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cython.final
cdef class PubAckQueue:
    """The waiting acks of one stream."""

    def __cinit__(self):
        memset(&self.records, 0, sizeof(Out))

    def __init__(self, str stream, str domain) -> None:
        name = f'"stream":{json_string(stream)}'
        where = f',"domain":{json_string(domain)}' if domain else ""
        self.head = ("{" + name + where + ',"seq":').encode()
        self.tail = ("," + name + ',"seq":0}').encode()
        self.dialect = ""
        if len(self.head) > HEAD_ROOM:
            raise ValueError("stream name or domain too long")

    def __dealloc__(self):
        out_free(&self.records)

    cdef bint speak(self, str dialect) except -1:
        changed = self.dialect != dialect
        self.dialect = dialect
        return changed

    cdef AckRecord* make(self, const char* reply, uint32_t reply_len, uint64_t barrier, size_t text_len) except NULL:
        cdef size_t size = (sizeof(AckRecord) + reply_len + text_len + 7) & ~<size_t>7
        cdef AckRecord* a = <AckRecord*>out_reserve(&self.records, size)
        a.size = <uint32_t>size
        a.reply_len = reply_len
        a.barrier = barrier
        a.text_len = <uint32_t>text_len
        memcpy(<char*>a + sizeof(AckRecord), reply, reply_len)
        self.records.len += size
        self.count += 1
        return a

    cdef int push(self, const char* reply, uint32_t reply_len, uint64_t barrier, uint64_t seq, int kind) except -1:
        cdef AckRecord* a = self.make(reply, reply_len, barrier, 0)
        a.seq = seq
        a.kind = kind
        return 0

    cdef int push_text(self, const char* reply, uint32_t reply_len, uint64_t barrier, bytes text) except -1:
        cdef AckRecord* a = self.make(reply, reply_len, barrier, PyBytes_GET_SIZE(text))
        a.seq = 0
        a.kind = ACK_TEXT
        memcpy(<char*>a + sizeof(AckRecord) + reply_len, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        return 0

    def push_message(self, bytes subject, barrier: int, bytes headers, bytes payload) -> None:
        """Queue a message with headers; it is sent in the order of the acks."""
        cdef bytes text = headers + payload
        cdef uint32_t n = <uint32_t>PyBytes_GET_SIZE(subject)
        cdef AckRecord* a = self.make(PyBytes_AS_STRING(subject), n, barrier, PyBytes_GET_SIZE(text))
        a.seq = PyBytes_GET_SIZE(headers)
        a.kind = ACK_TEXT
        memcpy(<char*>a + sizeof(AckRecord) + n, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    def stored_text(self, seq: int, bytes extra = b"") -> bytes:
        """The PubAck of a stored message, with further members."""
        return self.head + str(seq).encode() + extra + b"}"

    cdef int release(self, Router router, uint64_t upto) except -1:
        if self.releasing:
            return 0                           # a caller of this method does so already
        self.releasing = True
        try:
            while self.count and (<AckRecord*>(self.records.data + self.records.off)).barrier <= upto:
                self.send_first(router)
        finally:
            self.releasing = False
        return 0

    cdef int send_first(self, Router router) except -1:
        cdef AckRecord a = (<AckRecord*>(self.records.data + self.records.off))[0]
        cdef const char* at = self.records.data + self.records.off + sizeof(AckRecord)
        cdef char reply[REPLY_ROOM]
        cdef char text[HEAD_ROOM + 48]
        cdef Message m
        cdef char* p
        cdef object long_reply, body
        if a.reply_len <= REPLY_ROOM:
            memcpy(reply, at, a.reply_len)
            m.subject = reply
        else:
            long_reply = PyBytes_FromStringAndSize(at, a.reply_len)
            m.subject = PyBytes_AS_STRING(long_reply)
        m.subject_len = a.reply_len
        m.reply = NULL
        m.reply_len = 0
        m.hlen = 0
        if a.kind == ACK_TEXT:
            body = PyBytes_FromStringAndSize(at + a.reply_len, a.text_len)
            m.body = PyBytes_AS_STRING(body)
            m.body_len = a.text_len
            m.hlen = <uint32_t>a.seq
        elif self.dialect:
            m.body = b"+OK"
            m.body_len = 3
        else:
            memcpy(text, PyBytes_AS_STRING(self.head), PyBytes_GET_SIZE(self.head))
            p = put_u64(text + PyBytes_GET_SIZE(self.head), a.seq)
            if a.kind == ACK_DUPLICATE:
                memcpy(p, b',"duplicate": true', 18)
                p += 18
            p[0] = c'}'
            m.body = text
            m.body_len = <uint32_t>(p + 1 - text)
        self.records.off += a.size
        self.count -= 1
        if self.count == 0:
            self.records.off = self.records.len = 0
        return router.send(&m)

    cdef int refuse(self, list lost, bytes text) except -1:
        cdef Out old = self.records
        cdef size_t at = old.off
        cdef AckRecord* a
        memset(&self.records, 0, sizeof(Out))
        self.count = 0
        try:
            while at < old.len:
                a = <AckRecord*>(old.data + at)
                at += a.size
                if not is_lost(lost, a):
                    memcpy(out_reserve(&self.records, a.size), a, a.size)
                    self.records.len += a.size
                    self.count += 1
                else:
                    self.push_text(<const char*>a + sizeof(AckRecord), a.reply_len, a.barrier, text)
        finally:
            out_free(&old)
        return 0

    cdef int say(self, Router router, const char* reply, uint32_t reply_len, bytes text) except -1:
        cdef Message m
        memset(&m, 0, sizeof(Message))
        m.subject = reply
        m.subject_len = reply_len
        m.body = PyBytes_AS_STRING(text)
        m.body_len = <uint32_t>PyBytes_GET_SIZE(text)
        return router.send(&m)

    cdef bytes error(self, int code, int err_code, str description):
        if self.dialect:
            quote = '"' if self.dialect == "2019" else "'"
            return f"-ERR {quote}{description}{quote}".encode("utf-8", "replace")
        return (
            f'{{"error":{{"code":{code},"err_code":{err_code},"description":{json_string(description)}}}'.encode("utf-8", "replace")
            + self.tail
        )


cdef bint is_lost(list lost, AckRecord* a) except -1:
    # A text may be about a batch that ends at the barrier; one with headers is not about a publish.
    cdef uint64_t first = a.seq, last = a.seq
    if a.kind == ACK_TEXT:
        if a.seq or a.barrier == 0:
            return False
        last = a.barrier
        first = last - min(last, <uint64_t>BATCH_MOST) + 1
    for at, count, _ in lost:
        if first < at + count and at <= last:
            return True
    return False
