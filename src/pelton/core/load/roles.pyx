"""The roles of a load: what its clients do with each message, without a Python object per message.

    Listen      MSG a.b 1 128                       done += 1
    Serve       MSG a.b 1 INBOX.x 16                PUB INBOX.x 128 ...
    Ask         PUB a.b INBOX.41 16 ...             MSG INBOX.41 1 128: request 41 is answered
    Store       PUB a.b INBOX.41 128 ...            MSG INBOX.41 1 26 {"stream":"S","seq":17}     (see bulk/publish_window)
    Pull        PUB $JS.API.CONSUMER.MSG.NEXT ...   MSG a.b 1 $JS.ACK.S.c.1.42.42.1700.5 128: PUB $JS.ACK... 4 / +ACK

    HMSG INBOX.1 1 16 16                            a status of the server ("NATS/1.0 404 ..."): for a function of the caller
    MSG INBOXc 2 0                                  an ack was confirmed

Knows what a consumer and a stream answer; what an error means is the caller's.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve, parse_u63, put_u64
from pelton.core.bulk.publish_window cimport PublishWindow, Rows
from pelton.core.load.crowd cimport NEVER_NS, Link, Pace, Role
from pelton.core.protocol.wire cimport OP_MSG, OP_PONG, Op

cdef extern from "<string.h>" nogil:
    void* memmem(const void*, size_t, const void*, size_t)

cdef enum:
    SID_COUNTED = 1
    SID_CONFIRMED = 2
    DIGITS_MAX = 20
    STATUS_AT = 9                   # "NATS/1.0 503": a blank, where other blocks end the line
    ERROR_WITHIN = 200              # bytes of an answer of the API that tell an error
    WINDOW_MAX = 1 << 24

SID = SID_COUNTED


cdef inline char* put(char* to, const char* p, size_t n) noexcept nogil:
    memcpy(to, p, n)
    return to + n


cdef inline char* put_text(char* to, bytes text) noexcept:
    return put(to, PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text))


cdef inline bint is_of(Op* op, char sid) noexcept nogil:
    return op.kind == OP_MSG and op.sid_len == 1 and op.sid[0] == c'0' + sid


cdef inline bint is_status(Op* op) noexcept nogil:
    return op.hlen > STATUS_AT and op.body[STATUS_AT - 1] == c' ' and memcmp(op.body, b"NATS/1.0", STATUS_AT - 1) == 0


cdef inline bytes headers_of(Op* op):
    return PyBytes_FromStringAndSize(op.body, op.hlen)


cdef inline bytes payload_of(Op* op):
    return PyBytes_FromStringAndSize(op.body + op.hlen, op.body_len - op.hlen)


cdef inline int64_t number_of(Op* op) noexcept nogil:
    # The last token of the subject; -1 for none.
    cdef size_t at = op.subject_len
    while at and op.subject[at - 1] != c'.':
        at -= 1
    return parse_u63(op.subject + at, op.subject_len - at)


cdef size_t room_for(size_t count) except 0:
    # A power of two with room for so many.
    cdef size_t capacity = 1
    if not 1 <= count <= WINDOW_MAX:
        raise ValueError(f"a window has room for 1 to {WINDOW_MAX} messages: {count}")
    while capacity < count:
        capacity *= 2
    return capacity


cdef int put_answer(Out* out, const char* subject, size_t n, bytes reply, bytes payload) except -1:
    cdef size_t size = <size_t>PyBytes_GET_SIZE(payload)
    cdef char* to = out_reserve(out, 4 + n + 1 + <size_t>PyBytes_GET_SIZE(reply) + 1 + DIGITS_MAX + 2 + size + 2)
    to = put(to, b"PUB ", 4)
    to = put(to, subject, n)
    to = put(to, b" ", 1)
    if reply:
        to = put(put_text(to, reply), b" ", 1)
    to = put(put_u64(to, size), b"\r\n", 2)
    to = put(put_text(to, payload), b"\r\n", 2)
    out.len = <size_t>(to - out.data)
    return 0


cdef class Listen(Role):
    """Counts what arrives on a subject; see roles.pyi."""
    cdef bint acks
    cdef Out answers

    def __init__(self, Link link, str subject, int64_t quota, *, bint acks=False):
        super().__init__(link, quota)
        self.acks = acks
        link.subscribe(subject, SID_COUNTED)

    def __dealloc__(self):
        out_free(&self.answers)

    cpdef int64_t turn(self, int64_t now) except -1:
        if self.answers.len:
            self.link.send(self.answers.data, self.answers.len)
            self.answers.len = 0
        if self.done >= self.quota and self.acks:
            self.ping()
        return NEVER_NS

    cdef int take(self, Op* op, int64_t now) except -1:
        if not is_of(op, SID_COUNTED):
            return Role.take(self, op, now)
        if is_status(op):
            return 0
        if self.done == 0:
            self.start_ns = now
        if self.done < self.quota:
            self.done += 1
        if self.acks and op.reply_len:
            put_answer(&self.answers, op.reply, op.reply_len, b"", b"+ACK")
        return 0

    cpdef settle(self, int64_t now):
        if self.done >= self.quota and not self.over and not self.acks:
            self.finish(now)


cdef class Serve(Role):
    """Answers requests; see roles.pyi."""
    cdef bytes payload
    cdef int64_t sleep_ns
    cdef int64_t ready
    cdef int64_t new                # requests since the last turn
    cdef Out answers

    def __init__(self, Link link, str subject, bytes payload, int64_t sleep_ns=0):
        super().__init__(link, NEVER_NS)
        self.payload = payload
        self.sleep_ns = sleep_ns
        link.subscribe(subject, SID_COUNTED, "q")

    def __dealloc__(self):
        out_free(&self.answers)

    cpdef int64_t turn(self, int64_t now) except -1:
        if self.answers.len == 0:
            return NEVER_NS
        if now < self.ready:
            return self.ready
        self.link.send(self.answers.data, self.answers.len)
        self.answers.len = 0
        return NEVER_NS

    cdef int take(self, Op* op, int64_t now) except -1:
        if not is_of(op, SID_COUNTED) or is_status(op):
            return Role.take(self, op, now)
        if self.start_ns == 0:
            self.start_ns = now
        self.done += 1
        self.new += 1
        if op.reply_len:
            put_answer(&self.answers, op.reply, op.reply_len, b"", self.payload)
        return 0

    cpdef settle(self, int64_t now):
        self.end_ns = now
        if self.sleep_ns and self.new:
            self.ready = (now if now > self.ready else self.ready) + self.sleep_ns * self.new
        self.new = 0


cdef class Requests:
    """The requests of a client; see roles.pyi."""
    cdef bytes subject
    cdef bytes block
    cdef bytes body
    cdef bytes tail
    cdef bint numbered
    cdef bint in_body
    cdef int64_t next
    cdef int64_t below
    cdef uint64_t lot

    def __init__(self, str subject, bytes body=b"", *, bytes lines=b"", int64_t first=0, bint numbered=False, bytes tail=None,
                 int64_t below=0, uint64_t seed=1):
        self.subject = subject.encode()
        self.block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
        self.body = body
        self.tail = tail or b""
        self.numbered = numbered and tail is None
        self.in_body = tail is not None
        self.next = first
        self.below = below
        self.lot = seed or 1

    cdef uint64_t number(self) noexcept:
        if self.below <= 0:
            self.next += 1
            return <uint64_t>(self.next - 1)
        self.lot ^= self.lot << 13              # xorshift64
        self.lot ^= self.lot >> 7
        self.lot ^= self.lot << 17
        return self.lot % <uint64_t>self.below

    cdef int write(self, Link link, bytes inbox, uint64_t request) except -1:
        """The next request, with this number in its reply subject."""
        cdef char digits[DIGITS_MAX]
        cdef size_t digits_len = <size_t>(put_u64(digits, self.number()) - digits)
        cdef size_t block = <size_t>PyBytes_GET_SIZE(self.block)
        cdef size_t size = block + <size_t>PyBytes_GET_SIZE(self.body) + <size_t>PyBytes_GET_SIZE(self.tail)
        cdef char* start
        cdef char* to
        if self.in_body:
            size += digits_len
        start = to = link.room(5 + <size_t>PyBytes_GET_SIZE(self.subject) + <size_t>PyBytes_GET_SIZE(inbox)
                               + 4 * (DIGITS_MAX + 1) + 2 + size + 2)
        to = put(to, b"HPUB " if block else b"PUB ", 5 if block else 4)
        to = put_text(to, self.subject)
        if self.numbered:
            to = put(to, digits, digits_len)
        to = put_u64(put_text(put(to, b" ", 1), inbox), request)
        if block:
            to = put_u64(put(to, b" ", 1), block)
        to = put(put_u64(put(to, b" ", 1), size), b"\r\n", 2)
        to = put_text(put_text(to, self.block), self.body)
        if self.in_body:
            to = put_text(put(to, digits, digits_len), self.tail)
        to = put(to, b"\r\n", 2)
        link.wrote(<size_t>(to - start))
        return 0


cdef class Ask(Role):
    """Sends requests, each of which has one answer; see roles.pyi."""
    cdef Requests requests
    cdef Pace pace
    cdef object refuse
    cdef bytes reply
    cdef bint api
    cdef int64_t window
    cdef int64_t* asked             # when, by the number of the request; 0: answered
    cdef size_t mask
    cdef int64_t oldest             # request without an answer
    cdef int64_t next

    def __cinit__(self, *_, int64_t window=1, **__):
        cdef size_t capacity = room_for(<size_t>window if window > 0 else 0)
        self.asked = <int64_t*>calloc(capacity, sizeof(int64_t))
        if self.asked == NULL:
            raise MemoryError(f"no room for {window} requests")
        self.mask = capacity - 1
        self.window = window

    def __init__(self, Link link, int64_t quota, Requests requests, Pace pace, *, int64_t window=1, bint api=False, refuse):
        super().__init__(link, quota)
        self.requests = requests
        self.pace = pace
        self.api = api
        self.refuse = refuse
        self.reply = f"{link.inbox}.".encode()
        link.subscribe(f"{link.inbox}.*", SID_COUNTED)

    def __dealloc__(self):
        free(self.asked)

    cpdef int64_t turn(self, int64_t now) except -1:
        if self.start_ns == 0:
            self.start_ns = now
        while self.next < self.quota and self.next - self.oldest < self.window and not self.link.held:
            if not self.pace.allowed(self.next, 1, now):
                return self.pace.due(self.next)
            self.requests.write(self.link, self.reply, <uint64_t>self.next)
            self.pace.sent(now)
            self.asked[<size_t>self.next & self.mask] = now
            self.next += 1
        return NEVER_NS

    cdef int take(self, Op* op, int64_t now) except -1:
        cdef int64_t request
        cdef int64_t* asked
        if not is_of(op, SID_COUNTED):
            return Role.take(self, op, now)
        request = number_of(op)
        if request < self.oldest or request >= self.next:
            return 0                            # another answer to a request that has one
        asked = &self.asked[<size_t>request & self.mask]
        if asked[0] == 0:
            return 0
        if is_status(op) or (self.api and tells_error(op)):
            self.refuse(headers_of(op), payload_of(op))
        self.note(now - asked[0])
        asked[0] = 0
        self.done += 1
        while self.oldest < self.next and self.asked[<size_t>self.oldest & self.mask] == 0:
            self.oldest += 1
        return 0

    cpdef settle(self, int64_t now):
        if self.done >= self.quota and not self.over:
            self.finish(now)


cdef bint tells_error(Op* op) noexcept nogil:
    cdef size_t n = op.body_len - op.hlen
    return memmem(op.body + op.hlen, n if n < ERROR_WITHIN else ERROR_WITHIN, b'"error":', 8) != NULL


cdef class AskBatches(Role):
    """Sends requests with many answers each; see roles.pyi."""
    cdef bytes subject
    cdef object request
    cdef object ended
    cdef Pace pace
    cdef int64_t batch
    cdef int64_t asked_ns
    cdef int64_t before             # done, when the last request went
    cdef bint complete

    def __init__(self, Link link, int64_t quota, str subject, request, Pace pace, *, int64_t batch, ended):
        super().__init__(link, quota)
        self.subject = subject.encode()
        self.request = request
        self.pace = pace
        self.batch = batch
        self.ended = ended
        link.subscribe(link.inbox, SID_COUNTED)

    cpdef int64_t turn(self, int64_t now) except -1:
        if self.start_ns == 0:
            self.start_ns = now
        if self.asked_ns or self.over:
            return NEVER_NS
        if not self.pace.allowed(self.done, 1, now):
            return self.pace.due(self.done)
        body = self.request(min(self.batch, self.quota - self.done))
        self.asked_ns = now
        self.before = self.done
        self.pace.sent(now)
        self.link.write(b"PUB %b %b %d\r\n%b\r\n" % (self.subject, self.link.inbox.encode(), len(body), body))
        return NEVER_NS

    cdef int take(self, Op* op, int64_t now) except -1:
        if not is_of(op, SID_COUNTED):
            return Role.take(self, op, now)
        if is_status(op):
            self.ended(headers_of(op))
            self.complete = True
            return 0
        self.done += 1
        return 0

    cpdef settle(self, int64_t now):
        if not self.complete or not self.asked_ns:
            return
        self.complete = False
        if self.done == self.before:
            raise ValueError("no more messages match")
        self.note(now - self.asked_ns)
        self.asked_ns = 0
        if self.done >= self.quota:
            self.finish(now)


cdef struct Mark:
    int64_t sent                    # messages had gone
    int64_t at                      # at this time


cdef class Store(Role):
    """Publishes into a stream with a window; see roles.pyi."""
    cdef PublishWindow window
    cdef object more
    cdef Pace pace
    cdef object refuse
    cdef size_t chunk
    cdef Rows rows
    cdef size_t at                  # the next of them
    cdef int64_t sent
    cdef Mark* marks                # of writes whose messages are not all stored
    cdef size_t mask
    cdef size_t first_mark
    cdef size_t next_mark

    def __cinit__(self, *_, **__):
        self.marks = NULL

    def __init__(self, Link link, int64_t quota, PublishWindow window, rows, Pace pace, *, size_t chunk, refuse):
        cdef size_t capacity = room_for(window.rows_max)
        super().__init__(link, quota)
        self.window = window
        self.more = rows
        self.pace = pace
        self.chunk = chunk
        self.refuse = refuse
        if self.marks == NULL:
            self.marks = <Mark*>calloc(capacity, sizeof(Mark))
            self.mask = capacity - 1
        if self.marks == NULL:
            raise MemoryError("no room for a window")
        link.subscribe(f"{link.inbox}.*", SID_COUNTED)

    def __dealloc__(self):
        free(self.marks)

    cpdef int64_t turn(self, int64_t now) except -1:
        cdef PublishWindow window = self.window
        cdef const char* p
        cdef size_t n
        cdef int64_t may, put
        if self.start_ns == 0:
            self.start_ns = now
        if self.link.held or self.sent == self.quota:
            return NEVER_NS
        while self.sent < self.quota and not window.is_full():
            may = self.pace.allowed(self.sent, self.quota - self.sent, now)
            if may == 0:
                break
            if self.rows is None or self.at >= self.rows.count:
                self.rows, self.at = self.more(self.sent)
            put = window.put_some(self.rows, self.at, <size_t>may, self.chunk)
            if put == 0:
                break
            self.at += <size_t>put
            self.sent += put
            self.pace.sent(now)
        p = window.untaken(&n)
        if n:
            self.marks[self.next_mark & self.mask].sent = self.sent
            self.marks[self.next_mark & self.mask].at = now
            self.next_mark += 1
            self.link.send(p, n)
            window.taken()
        if self.sent == self.quota or window.is_full():
            return NEVER_NS
        put = self.pace.due(self.sent)
        return put if put > now else now

    cdef int take(self, Op* op, int64_t now) except -1:
        if is_of(op, SID_COUNTED):
            return self.window.answer(op)
        return Role.take(self, op, now)

    cpdef settle(self, int64_t now):
        cdef Mark* mark
        if self.window.failures:
            self.refuse(*self.window.failures[0][1:])
        self.done = self.window.acked
        while self.first_mark != self.next_mark:
            mark = &self.marks[self.first_mark & self.mask]
            if mark.sent > self.done:
                break
            self.note(now - mark.at)
            self.first_mark += 1
        if self.done == self.quota and not self.over:
            self.finish(now)


cdef class Pull(Role):
    """Pulls the messages of a consumer, and acknowledges them; see roles.pyi."""
    cdef bytes subject
    cdef object body
    cdef object ended
    cdef bytes inbox
    cdef bytes confirms
    cdef int64_t batch
    cdef bint overlapped
    cdef bint acks
    cdef bint only_last             # one ack for all messages that came at once
    cdef bint waits                 # for the confirmation of every ack
    cdef int64_t sleep_ns
    cdef int64_t ready
    cdef int64_t open               # messages of the requests under way
    cdef int64_t asked_ns
    cdef int64_t requests
    cdef int64_t new                # messages since the last turn
    cdef int64_t confirmed
    cdef bytes request              # the last one's payload,
    cdef int64_t request_count      # and for how many messages it was
    cdef Out answers
    cdef Out last                   # reply subject of the last message, if one ack covers all

    def __init__(self, Link link, int64_t quota, str subject, body, *, int64_t batch, bint overlapped, str acks, bint confirmed, ended,
                 int64_t sleep_ns=0):
        super().__init__(link, quota)
        self.subject = subject.encode()
        self.body = body
        self.ended = ended
        self.inbox = f"{link.inbox}.".encode()
        self.batch = batch
        self.overlapped = overlapped
        self.acks = acks != "none"
        self.only_last = acks == "all"
        self.confirms = f"{link.inbox}c".encode() if confirmed and self.acks else b""
        self.waits = acks == "explicit" and bool(self.confirms)
        self.sleep_ns = sleep_ns
        link.subscribe(f"{link.inbox}.*", SID_COUNTED)
        if self.confirms:
            link.subscribe(self.confirms.decode(), SID_CONFIRMED)

    def __dealloc__(self):
        out_free(&self.answers)
        out_free(&self.last)

    cpdef int64_t turn(self, int64_t now) except -1:
        cdef int64_t room
        if self.start_ns == 0:
            self.start_ns = now
        if now < self.ready:
            return self.ready
        if self.answers.len:
            self.link.put(self.answers.data, self.answers.len)
            self.answers.len = 0
        if self.done >= self.quota:
            if not self.waits or self.confirmed >= self.done:
                self.ping()
            return NEVER_NS
        room = min(self.batch, self.quota - self.done) - self.open
        if room > 0 and self.open <= (self.batch // 2 if self.overlapped else 0):
            self.open += room
            self.asked_ns = now
            self.ask(room)
        return NEVER_NS

    cdef int ask(self, int64_t count) except -1:
        cdef size_t size
        cdef char* start
        cdef char* to
        if self.request_count != count:
            self.request = self.body(count)
            self.request_count = count
        self.requests += 1
        size = <size_t>PyBytes_GET_SIZE(self.request)
        start = to = self.link.room(4 + <size_t>PyBytes_GET_SIZE(self.subject) + 1 + <size_t>PyBytes_GET_SIZE(self.inbox)
                                    + 2 * (DIGITS_MAX + 1) + 2 + size + 2)
        to = put(put_text(put(to, b"PUB ", 4), self.subject), b" ", 1)
        to = put(put_u64(put_text(to, self.inbox), <uint64_t>self.requests), b" ", 1)
        to = put(put_u64(to, size), b"\r\n", 2)
        to = put(put_text(to, self.request), b"\r\n", 2)
        self.link.wrote(<size_t>(to - start))
        return 0

    cdef int take(self, Op* op, int64_t now) except -1:
        cdef int64_t left
        if not is_of(op, SID_COUNTED):
            if is_of(op, SID_CONFIRMED):
                self.confirmed += 1
                return 0
            return Role.take(self, op, now)
        if is_status(op):
            left = self.ended(headers_of(op))
            self.open = 0 if left < 0 or left > self.open else self.open - left
            return 0
        self.done += 1
        self.new += 1
        if self.open:
            self.open -= 1
        if not self.acks or not op.reply_len:
            return 0
        if self.only_last:
            self.last.len = 0
            return out_put(&self.last, op.reply, op.reply_len)
        return put_answer(&self.answers, op.reply, op.reply_len, self.confirms, b"+ACK")

    cpdef settle(self, int64_t now):
        if self.last.len:
            put_answer(&self.answers, self.last.data, self.last.len, self.confirms, b"+ACK")
            self.last.len = 0
        if self.new and not self.overlapped and not self.open:
            self.note(now - self.asked_ns)
        if self.sleep_ns and self.new:
            self.ready = now + self.sleep_ns * self.new
        self.new = 0
