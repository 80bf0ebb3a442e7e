"""What a client's operations do: CONNECT, PUB, SUB, UNSUB, PING; verbose, pedantic, -ERR texts, limits.

The texts and which of them close the connection are the protocol's; who may connect is decided by
the `connect` callback. Knows nothing of sockets, and of streams only that they are somebody's sinks.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from penstock.core.hub cimport Connection, Hub, Operator
from penstock.core.router cimport Message, Router, Subscription
from penstock.core.subjects cimport Route, subject_literal, subject_valid
from penstock.core.wire cimport (
    BAD_LINE, BAD_OP, BAD_PAYLOAD, OP_CONNECT, OP_MORE, OP_PING, OP_PONG, OP_PUB, OP_SUB,
    OP_UNSUB, Op, Reader, read_op, reader_room,
)

cdef enum:
    STATUS_MAX = 4200                   # a 503 status with the subject it is about (a subject fits a control line)


cdef class Sessions(Operator):
    """The server's side of every connection.

    connect(connection, text) is called on CONNECT with the JSON text; it sets the connection's flags and returns the Router to
    use, or None after it has itself written -ERR and closed.
    """

    def __init__(self, Hub hub, connect, Router default_router, bint auth_required=False) -> None:
        self.hub = hub
        self.connect = connect
        self.default_router = default_router
        self.auth_required = auth_required
        hub.operator = self

    def accept(self, object transport=None) -> Connection:
        """A connection that is fed by hand, or by an adapter (a transport has write(bytes) and close())."""
        cdef Connection c = Connection(self.hub)
        c.transport = transport
        self.welcome(c)
        return c

    def welcome(self, Connection c) -> None:
        """Give a new connection its router; it may publish and subscribe at once when nobody has to log in."""
        c.router = self.default_router
        c.ready = not self.auth_required

    def feed(self, Connection connection, bytes data) -> None:
        """Bytes that this client sent; any split."""
        cdef Reader* r = &connection.reader
        if connection.closed or connection.closing:
            return
        memcpy(reader_room(r, len(data)), PyBytes_AS_STRING(data), len(data))
        r.end += len(data)
        if not connection.stalled:
            self.hub.serve(connection, r)

    def eof(self, Connection connection) -> None:
        """The client has closed its side."""
        self.hub.hang_up(connection, "Client Closed")

    cdef int operate(self, Connection c, Reader* r) except -1:
        cdef Op op
        cdef int kind
        c.last_ns = self.hub.now_ns
        r.headers = c.headers
        while not c.stalled and not c.closed and not c.closing:
            kind = read_op(r, &op)
            if self.hub.tracer is not None and kind > OP_MORE:
                self.show(c, kind, &op)
            if kind == OP_PUB and c.ready:
                self.publish(c, &op)
            elif kind == OP_MORE:
                break
            elif kind < 0:
                self.failed(c, kind)
            elif kind == OP_CONNECT:
                router = self.connect(c, PyBytes_FromStringAndSize(op.body, op.body_len))
                r.headers = c.headers
                if router is not None and not c.closed and not c.closing:
                    if router is not c.router:
                        c.router.forget(c)
                        c.router = <Router?>router
                    if c.verbose:
                        c.put(b"+OK\r\n", 5)
            elif not c.ready:
                c.fail(b"Authorization Violation", "Authentication Failure")
            elif kind == OP_PING:
                c.put(b"PONG\r\n", 6)
            elif kind == OP_PONG:
                c.pings_out = 0
            elif kind == OP_SUB:
                self.subscribe(c, &op)
            elif kind == OP_UNSUB:
                self.unsubscribe(c, &op)
        return 0

    cdef int show(self, Connection c, int kind, Op* op) except -1:
        """Let the tracer see an operation, written anew from what was read of it."""
        words = {OP_PUB: b"HPUB" if op.hlen else b"PUB", OP_SUB: b"SUB", OP_UNSUB: b"UNSUB", OP_CONNECT: b"CONNECT",
                 OP_PING: b"PING", OP_PONG: b"PONG"}
        line = [words.get(kind, b"")]
        body = None
        if kind == OP_PUB:
            line += [op.subject[:op.subject_len], op.reply[:op.reply_len], b"%d" % op.hlen if op.hlen else b"", b"%d" % op.body_len]
            body = PyBytes_FromStringAndSize(op.body, op.body_len)
        elif kind == OP_SUB:
            line += [op.subject[:op.subject_len], op.queue[:op.queue_len], op.sid[:op.sid_len]]
        elif kind == OP_UNSUB:
            line += [op.sid[:op.sid_len], b"%d" % op.max if op.max else b""]
        elif kind == OP_CONNECT:
            line.append(PyBytes_FromStringAndSize(op.body, op.body_len))
        self.hub.tracer.received(c, b" ".join([word for word in line if word]), body, op.hlen)
        return 0

    cdef int failed(self, Connection c, int code) except -1:
        if code == BAD_OP:
            c.fail(b"Unknown Protocol Operation", "Protocol Violation")
        elif code == BAD_LINE:
            c.fail(b"maximum control line exceeded", "Maximum Control Line Exceeded")
        elif code == BAD_PAYLOAD:
            c.fail(b"Maximum Payload Violation", "Maximum Message Payload Exceeded")
        else:
            c.finish("Parse Error")
        return 0

    cdef int publish(self, Connection c, Op* op) except -1:
        cdef Message m
        cdef Router router = <Router>c.router
        cdef Hub hub = self.hub
        c.in_msgs += 1
        c.in_bytes += op.body_len
        hub.in_msgs += 1
        hub.in_bytes += op.body_len
        if op.reply_len > 4 and (op.reply[0] == c'$' or op.reply[0] == c'_') and reserved_reply(op.reply, op.reply_len):
            self.deny(c, b'Permissions Violation for Publish with Reply of "' + op.reply[:op.reply_len] + b'"')
            return 0
        if op.subject_len > 5 and op.subject[0] == c'$' and memcmp(op.subject, b"$NRG.", 5) == 0:
            self.deny(c, b'Permissions Violation for Publish to "' + op.subject[:op.subject_len] + b'"')
            return 0
        if c.verbose:
            c.put(b"+OK\r\n", 5)
        if c.pedantic and not subject_literal(op.subject, op.subject_len):
            self.deny(c, b"Invalid Publish Subject")
        m.subject = op.subject
        m.subject_len = op.subject_len
        m.reply = op.reply
        m.reply_len = op.reply_len
        m.body = op.body
        m.hlen = op.hlen
        m.body_len = op.body_len
        if router.publish(c, &m) == 0 and m.reply_len and c.no_responders:
            self.no_responders(c, router, &m)
        return 0

    def deny(self, Connection c, bytes text) -> None:
        """An error that leaves the connection open."""
        c.write(b"-ERR '" + text + b"'\r\n")

    cdef int no_responders(self, Connection c, Router router, Message* m) except -1:
        """A 503 to the publisher itself, on its own plain subscription that matches the reply subject."""
        cdef Route route = router.trie.match(m.reply, m.reply_len)
        cdef Subscription s
        cdef Message status
        cdef char text[STATUS_MAX + 64]
        cdef char* p = text
        cdef int i
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription and (<Subscription>item).connection is c:
                s = <Subscription>item
                memcpy(p, b"NATS/1.0 503\r\nNats-Subject: ", 28)
                p += 28
                memcpy(p, m.subject, min(m.subject_len, <uint32_t>STATUS_MAX))
                p += min(m.subject_len, <uint32_t>STATUS_MAX)
                memcpy(p, b"\r\n\r\n", 4)
                p += 4
                status.subject = m.reply
                status.subject_len = m.reply_len
                status.reply = NULL
                status.reply_len = 0
                status.body = text
                status.hlen = status.body_len = <uint32_t>(p - text)
                router.deliver(s, None, &status)
                break
        return 0

    cdef int subscribe(self, Connection c, Op* op) except -1:
        cdef Router router = <Router>c.router
        subject = op.subject[:op.subject_len]
        queue = op.queue[:op.queue_len] if op.queue_len else b""
        sid = op.sid[:op.sid_len]
        if not subject_valid(op.subject, op.subject_len):
            self.deny(c, b"Invalid Subject")
            return 0
        if queue == b"_sys_":
            self.deny(c, b'Permissions Violation for Subscription to "' + subject + b'" using queue "_sys_"')
            return 0
        if self.max_subscriptions and len(c.subscriptions) >= self.max_subscriptions and sid not in c.subscriptions:
            self.deny(c, b"maximum subscriptions exceeded")
            return 0
        if sid not in c.subscriptions:         # a second SUB with the same sid: the first one stays
            router.subscribe(c, subject, queue, sid)
        if c.verbose:
            c.put(b"+OK\r\n", 5)
        return 0

    cdef int unsubscribe(self, Connection c, Op* op) except -1:
        cdef Subscription s = c.subscriptions.get(op.sid[:op.sid_len])
        if s is not None:
            if op.max > 0 and <uint64_t>op.max > s.delivered:
                s.max = <uint64_t>op.max
            else:
                (<Router>c.router).unsubscribe(s)
        if c.verbose:
            c.put(b"+OK\r\n", 5)
        return 0


cdef bint reserved_reply(const char* p, uint32_t n) noexcept:
    """Reply subjects that only the server hands out."""
    return (n >= 8 and memcmp(p, b"$JS.ACK.", 8) == 0) or memcmp(p, b"_R_.", 4) == 0 or memcmp(p, b"_GR_.", 5) == 0
