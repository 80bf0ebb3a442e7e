"""The answers of direct get: stored messages, with stream, subject, sequence and time in their headers.

    NATS/1.0 / headers of the message, then Nats-Stream, Nats-Subject, Nats-Sequence, Nats-Time-Stamp
    in a batch also Nats-Num-Pending (how many follow), Nats-Last-Sequence (the one before), and at its end a status 204 EOB

An answer has the messages that were accepted when the request came, and is sent when all of them are as durable as the stream promises: no
reader sees a message that a crash could take back. Until then the answer waits as bytes:

    in `out`: for each message its header length and its whole length (uint32s), headers, payload

Knows nothing of requests and permissions: the control plane handles those.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve, put_u64
from pelton.core.broker.router cimport Message
from pelton.core.log.disk_condition cimport CLOSED
from pelton.core.log.log cimport Log, Record
from pelton.core.log.queries cimport Wanted, walk, wanted_from, wanted_of
from pelton.core.stream.listeners cimport Listener
from pelton.core.stream.stream cimport Stream

cdef enum:
    LINES_ROOM = 320               # bytes of the added lines without stream name and subject
    SIZES = 8                      # bytes of the two lengths


cdef class Answers(Listener):
    """Answers direct gets of one stream."""

    def __cinit__(self):
        memset(&self.out, 0, sizeof(Out))

    def __init__(self, Stream stream) -> None:
        self.stream = stream
        self.held = []
        self.name = b"Nats-Stream: " + stream.name.encode("utf-8", "surrogateescape") + b"\r\nNats-Subject: "

    def __dealloc__(self) -> None:
        out_free(&self.out)

    def status(self, str reply, str line) -> None:
        """Answer with a status, such as `404 Message Not Found`."""
        cdef bytes text = f"NATS/1.0 {line}\r\n\r\n".encode()
        self.put_text(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        self.finish(reply)

    def failed(self, str reply, str why) -> None:
        """Answer that the disk could not read the messages, in place of the part of the answer that is composed."""
        self.out.off = self.out.len = 0
        self.barrier = 0
        self.status(reply, f"500 {why}")

    def message(self, str reply, seq: int, bint bare) -> bool:
        """Answer with one message; `bare`: without headers. False (and no answer) when there is no such message."""
        cdef Record r
        if not self.stream.log.read(seq, &r):
            return False
        self.put(&r, bare, -1, 0)
        self.finish(reply)
        return True

    def batch(self, str reply, str pattern, uint64_t seq, int64_t count, int64_t most_bytes, bint bare) -> bool:
        """Answer with up to `count` messages from `seq` on whose subjects match, then the end of the batch.

        The batch ends with the message that reaches `most_bytes` (subject, headers and payload count). False (and no answer) when there is none.
        """
        cdef Log log = self.stream.log
        cdef Wanted w = wanted_of(log, pattern, False)
        cdef Record r
        cdef uint64_t last = 0
        cdef int64_t k = 0, sent = 0, pending
        seq = max(seq, log.span.first_seq)
        pending = <int64_t>wanted_from(w, seq) if seq <= log.span.last_seq else 0
        while k < count:
            seq = walk(w, seq) if 0 < seq <= log.span.last_seq else 0
            if seq == 0:
                break
            if log.read(seq, &r):
                pending -= pending > 0 and not bare
                self.put(&r, bare, pending, last)
                k += 1
                last = seq
                sent += r.subject_len + r.body_len
                if self.enough(sent, most_bytes):
                    break
            seq += 1
        if k == 0 and count > 0:
            return False
        self.put_end(f"Nats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last}\r\n")
        self.finish(reply)
        return True

    def each(self, str reply, list seqs, uint64_t start, int64_t count, int64_t most_bytes, uint64_t upto) -> None:
        """Answer with the messages of these sequences from `start` on, then the end of the batch, which names `upto`.

        The batch has at most `count` messages (0: all), and also ends as in batch().
        """
        cdef Record r
        cdef uint64_t seq, last = 0
        cdef int64_t pending = len(seqs), k = 0, sent = 0
        for seq in seqs:
            pending -= 1
            if seq < start or not self.stream.log.read(seq, &r):
                continue
            self.put(&r, False, pending, last)
            last = seq
            sent += r.subject_len + r.body_len
            if self.enough(sent, most_bytes):
                break
            k += 1
            if k == count:
                break
        self.put_end(f"Nats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last}\r\nNats-UpTo-Sequence: {upto}\r\n")
        self.finish(reply)

    def enough(self, int64_t sent, int64_t most_bytes) -> bool:
        """Whether the batch ends here: it has reached its bytes, or half of a connection's max_pending."""
        return sent >= most_bytes or <int64_t>self.out.len >= self.stream.reactor.max_pending // 2

    def put_end(self, str lines) -> None:
        """Compose the status that ends a batch."""
        cdef bytes text = ("NATS/1.0 204 EOB\r\n" + lines + "\r\n").encode()
        self.put_text(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))

    def is_full(self) -> bool:
        """Whether a further answer may have to wait, and those that wait have reached a connection's max_pending: requests wait instead."""
        return self.held_bytes >= self.stream.reactor.max_pending and self.stream.log.span.last_seq > self.stream.committer.visible

    def when_visible(self, seq: int, then: object, size: int = 0) -> None:
        """Call then() when the stream is durable up to a sequence as promised: now, or in the delivery phase of a later turn.

        `size`: the bytes that then() holds, which count as those of answers.
        """
        if seq <= self.stream.committer.visible:
            then()
        elif self.stream.log.state.condition < CLOSED:
            self.held.append((seq, then, size))
            self.held_bytes += <int64_t>size
            self.stream.listeners.await_more(self)

    # --- composing -----------------------------------------------------------------------------------------------------

    cdef int put_text(self, const char* p, size_t n) except -1:
        cdef uint32_t sizes[2]
        sizes[0] = sizes[1] = <uint32_t>n
        out_put(&self.out, <const char*>sizes, SIZES)
        return out_put(&self.out, p, n)

    cdef int put(self, Record* r, bint bare, int64_t pending, uint64_t previous) except -1:
        cdef char* start
        cdef char* p
        cdef uint32_t sizes[2]
        self.barrier = max(self.barrier, r.seq)
        start = out_reserve(&self.out, SIZES + r.body_len + r.subject_len + PyBytes_GET_SIZE(self.name) + LINES_ROOM)
        p = start + SIZES
        if not bare:
            if r.hlen > 2:
                memcpy(p, r.body, r.hlen - 2)
                p += r.hlen - 2
            else:
                p = put_line(p, b"NATS/1.0\r\n", 10)
            p = put_line(p, PyBytes_AS_STRING(self.name), PyBytes_GET_SIZE(self.name))
            p = put_line(p, r.subject, r.subject_len)
            p = put_u64(put_line(p, b"\r\nNats-Sequence: ", 17), r.seq)
            p = put_time(put_line(p, b"\r\nNats-Time-Stamp: ", 19), r.ts_ns)
            if pending >= 0:
                p = put_u64(put_line(p, b"\r\nNats-Num-Pending: ", 20), <uint64_t>pending)
                p = put_u64(put_line(p, b"\r\nNats-Last-Sequence: ", 22), previous)
            p = put_line(p, b"\r\n\r\n", 4)
        sizes[0] = <uint32_t>(p - start) - SIZES
        memcpy(p, r.body + r.hlen, r.body_len - r.hlen)
        sizes[1] = sizes[0] + r.body_len - r.hlen
        memcpy(start, sizes, SIZES)
        self.out.len += SIZES + sizes[1]
        return 0

    # --- sending -------------------------------------------------------------------------------------------------------

    cdef int finish(self, str reply) except -1:
        """The composed messages are the answer to a request: send it, or hold it until it is durable."""
        cdef bytes to = reply.encode("utf-8", "surrogateescape")
        cdef Out out = self.out
        cdef uint64_t barrier = self.barrier
        memset(&self.out, 0, sizeof(Out))
        self.barrier = 0
        try:
            if barrier <= self.stream.committer.visible:
                self.send(to, &out)
            elif self.stream.log.state.condition < CLOSED:
                self.held.append((barrier, to, PyBytes_FromStringAndSize(out.data, out.len)))
                self.held_bytes += <int64_t>out.len
                self.stream.listeners.await_more(self)
        finally:
            out_free(&out)
        return 0

    cdef int send(self, bytes reply, Out* out) except -1:
        cdef Message m
        cdef uint32_t sizes[2]
        cdef size_t at = 0
        m.subject = PyBytes_AS_STRING(reply)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(reply)
        m.reply = NULL
        m.reply_len = 0
        while at < out.len:
            memcpy(sizes, out.data + at, SIZES)
            m.body = out.data + at + SIZES
            m.hlen = sizes[0]
            m.body_len = sizes[1]
            self.stream.router.publish(None, &m)
            at += SIZES + sizes[1]
        return 0

    cdef int run(self) except -1:
        """Messages became visible: send the answers that are durable now."""
        cdef Out out
        cdef list held = self.held
        cdef bytes text
        self.held = []
        memset(&out, 0, sizeof(Out))
        for one in held:
            if one[0] > self.stream.committer.visible:
                self.held.append(one)
            elif isinstance(one[2], int):
                self.held_bytes -= <int64_t>one[2]
                one[1]()
            else:
                text = one[2]
                out.data = PyBytes_AS_STRING(text)
                out.len = PyBytes_GET_SIZE(text)
                self.held_bytes -= <int64_t>out.len
                self.send(one[1], &out)
        if self.held and self.stream.log.state.condition < CLOSED:
            self.stream.listeners.await_more(self)
        return 0


cdef char* put_line(char* p, const char* text, size_t n) noexcept:
    memcpy(p, text, n)
    return p + n


cdef char* put_digits(char* p, uint64_t value, int digits) noexcept:
    cdef int k
    for k in range(digits - 1, -1, -1):
        p[k] = <char>(c'0' + value % 10)
        value //= 10
    return p + digits


cdef char* put_time(char* p, uint64_t ts_ns) noexcept:
    """2026-01-02T03:04:05.678Z: UTC, the fraction without trailing zeros."""
    cdef uint64_t seconds = ts_ns // 1000000000, fraction = ts_ns % 1000000000
    cdef uint64_t of_day = seconds % 86400
    # days since 0000-03-01: years begin in March, so that a leap day ends one
    cdef uint64_t days = seconds // 86400 + 719468
    cdef uint64_t era = days // 146097, of_era = days % 146097
    cdef uint64_t year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef uint64_t of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef uint64_t march_month = (5 * of_year + 2) // 153
    cdef uint64_t month = march_month + 3 if march_month < 10 else march_month - 9
    cdef int digits = 9
    p = put_digits(p, year_of_era + era * 400 + (month <= 2), 4)
    p = put_digits(put_line(p, b"-", 1), month, 2)
    p = put_digits(put_line(p, b"-", 1), of_year - (153 * march_month + 2) // 5 + 1, 2)
    p = put_digits(put_line(p, b"T", 1), of_day // 3600, 2)
    p = put_digits(put_line(p, b":", 1), of_day // 60 % 60, 2)
    p = put_digits(put_line(p, b":", 1), of_day % 60, 2)
    if fraction:
        while fraction % 10 == 0:
            fraction //= 10
            digits -= 1
        p = put_digits(put_line(p, b".", 1), fraction, digits)
    return put_line(p, b"Z", 1)
