"""A client's operations: CONNECT, PUB, SUB, UNSUB, PING; verbose, pedantic, -ERR texts, limits.

The protocol defines the texts and which of them close the connection. The `connect` callback decides which clients may connect,
ConnectionPermissions what a connection may do. Knows nothing of sockets; streams are sinks like any other.

While the authenticator decides about a CONNECT (`connect` returned PENDING), the server reads nothing more from the connection; an
adapter that continues to feed may leave AWAITING_BYTES.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy
from pelton.core.base.quoting import quoted
from pelton.core.broker.reactor cimport Connection, Reactor, ProtocolHandler
from pelton.core.broker.router cimport Message, Router, Subscription, subscription_cost
from pelton.core.protocol.permissions cimport SUB_ALLOWED, SUB_FILTERED, SUB_REFUSED
from pelton.core.protocol.subjects cimport Route, subject_literal, subject_valid
from pelton.core.protocol.wire cimport (
    BAD_LINE, BAD_OP, BAD_PAYLOAD, OP_CONNECT, OP_INFO, OP_MORE, OP_PING, OP_PONG, OP_PUB, OP_SUB,
    OP_UNSUB, Op, Reader, read_op, reader_room,
)

cdef enum:
    STATUS_MAX = 4200                   # a 503 status with its subject (a subject fits a control line)
    TOKENS_MOST = 4096                  # of a subscription: a trie takes no more
    AWAITING_BYTES = 2097152            # input of a connection whose CONNECT is being decided
    SHOWN_MAX = 100                     # logged bytes of a line that can't be parsed
    WORD_MAX = 20                       # ... of one with an unknown operation

PENDING = object()


cdef class Sessions(ProtocolHandler):
    """The server's side of every connection.

    `connect(connection, text)` is called on CONNECT with the JSON text. It sets the connection's flags and returns the Router to use; None
    after it has written -ERR and closed the connection itself; or PENDING: admit() is called after the decision.
    """

    def __init__(self, Reactor reactor, connect, Router default_router, bint auth_required=False) -> None:
        self.reactor = reactor
        self.connect = connect
        self.default_router = default_router
        self.auth_required = auth_required
        reactor.use_handler(self)

    def accept(self, object transport=None) -> Connection:
        """Make a connection that is fed by hand, or by an adapter (a transport has write(bytes) and close())."""
        cdef Connection c = Connection(self.reactor, transport)
        self.welcome(c)
        return c

    def welcome(self, Connection c) -> None:
        """Give a new connection its router; without required authentication it may publish and subscribe at once."""
        c.enter(self.default_router, not self.auth_required)
        c.limit_subscriptions(self.max_subscriptions or -1)

    def feed(self, Connection connection, bytes data) -> None:
        """Process bytes that this client sent, split anywhere."""
        cdef Reader* r = &connection.reader
        if connection.closed or connection.closing:
            return
        memcpy(reader_room(r, len(data)), PyBytes_AS_STRING(data), len(data))
        r.end += len(data)
        if not connection.stalled:
            self.reactor.serve(connection, r)
        elif connection.awaiting and r.end - r.pos > AWAITING_BYTES:
            connection.fail(b"Authorization Violation", "Authentication Failure")

    def hold(self) -> None:
        """From now on stop reading from a connection at its first publish."""
        if self.held is None:
            self.held = []

    def go_on(self) -> None:
        """Undo hold(): the held operations run in the reactor's next turn, in order."""
        cdef Connection c
        cdef list held = self.held or []
        self.held = None
        for c in held:
            c.wake()

    def eof(self, Connection connection) -> None:
        """The client has closed its side of the connection."""
        self.reactor.hang_up(connection, "Client Closed")

    def admit(self, Connection connection, Router router) -> None:
        """Give the decision that PENDING announced: the caller has set the flags. The connection goes on in the next turn.
        Does nothing when the connection has closed.
        """
        if connection.closed or connection.closing or not connection.awaiting:
            return
        connection.decided()
        self.join(connection, router)
        connection.wake()

    def recheck(self, Connection connection) -> int:
        """The permissions of the connection have changed: end the subscriptions that they do not allow, tell the client; return how many."""
        cdef Subscription s
        cdef int ended = 0, verdict
        if connection.allowed is None or connection.closed:
            return 0
        connection.set_permissions(connection.allowed)
        filtered = False
        for s in list(connection.subscriptions.values()):
            verdict = connection.allowed.rules.may_subscribe(s.subject, s.queue)
            filtered = filtered or verdict == SUB_FILTERED
            if verdict == SUB_REFUSED:
                (<Router>connection.router).unsubscribe(s)
                ended += 1
                self.violation(connection, f"{refused_text(s.subject, s.queue)} (sid {quoted(s.sid)})")
        connection.check_deliveries(filtered)
        return ended

    cdef int join(self, Connection c, Router router) except -1:
        """Make the connection a client of this router; a second CONNECT starts without subscriptions."""
        if c.connected or router is not c.router:
            c.change_router(router)
        elif c.allowed is not None and c.subscriptions:
            self.recheck(c)                    # the subscriptions that it made before CONNECT
        c.accepted()
        if c.verbose:
            c.put(b"+OK\r\n", 5)
        return 0

    cdef int operate(self, Connection c, Reader* r) except -1:
        cdef Op op
        cdef int kind
        cdef size_t pos
        cdef bint whole = False            # a complete operation was read
        c.heard()
        r.headers = c.headers
        while not c.stalled and not c.closed and not c.closing:
            pos = r.pos
            kind = read_op(r, &op)
            if self.held is not None and kind == OP_PUB and c.ready:
                r.pos = pos                    # the operation is read again when it may run
                r.need = 0
                c.stall()
                self.held.append(c)
                break
            if self.reactor.trace_log is not None and kind > OP_MORE and shows(c, kind):
                self.show(c, kind, &op)
            if kind == OP_PUB and c.ready:
                self.publish(c, &op)
                if self.reactor.budget.slow and self.reactor.budget.used_up() and not c.stalled:
                    c.pause()
            elif kind == OP_MORE:
                break
            elif kind < 0:
                self.failed(c, r, kind)
            elif kind == OP_CONNECT:
                c.time_connect()
                router = self.connect(c, PyBytes_FromStringAndSize(op.body, op.body_len))
                r.headers = c.headers
                r.max_line = c.reader.max_line
                r.max_payload = c.reader.max_payload
                if router is PENDING:
                    c.await_decision()
                elif router is not None and not c.closed and not c.closing:
                    self.join(c, <Router?>router)
            elif not c.ready:
                if self.let_in(c, r):
                    r.pos = pos                # the operation is read again, with the limits of the guest
                    r.need = 0
            elif kind == OP_PING:
                c.put(b"PONG\r\n", 6)
                if c.first_ping() and self.on_first_pong is not None:
                    self.on_first_pong(c)
            elif kind == OP_PONG:
                c.note_pong()
            elif kind == OP_SUB:
                self.subscribe(c, &op)
            elif kind == OP_UNSUB:
                self.unsubscribe(c, &op)
            elif kind == OP_INFO:
                self.informed(c, PyBytes_FromStringAndSize(op.body, op.body_len))
            whole = True
        if r.pos == r.end or c.stalled:
            c.no_partial()
        else:
            c.note_partial(whole)
        return 0

    cdef bint let_in(self, Connection c, Reader* r) except -1:
        """Whether a client without CONNECT may come in as a guest; if not, the client gets -ERR."""
        router = None if self.on_guest is None else self.on_guest(c)
        if c.closed or c.closing:
            return False
        if router is None:
            self.broken(c, "authentication error: no CONNECT before the first operation")
            c.fail(b"Authorization Violation", "Authentication Failure")
            return False
        c.change_router(<Router?>router)
        r.max_line = c.reader.max_line
        r.max_payload = c.reader.max_payload
        return True

    cdef int show(self, Connection c, int kind, Op* op) except -1:
        """Pass an operation to the trace log, rewritten from its parsed parts."""
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
        self.reactor.trace_log.received(c, b" ".join([word for word in line if word]), body, op.hlen)
        return 0

    def informed(self, Connection c, bytes text) -> None:
        """A client's INFO has no effect, but it must be JSON."""
        from json import loads
        try:
            fits = type(loads(text)) in (dict, type(None))
        except (ValueError, RecursionError):
            fits = False
        if not fits:
            self.broken(c, "parse error: INFO is not the expected JSON")
            c.finish("Parse Error")

    cdef int failed(self, Connection c, Reader* r, int code) except -1:
        line = PyBytes_FromStringAndSize(r.data + r.pos, min(r.end - r.pos, <size_t>SHOWN_MAX))
        if code == BAD_OP:
            self.broken(c, "parse error: unknown operation or payload without its end: " + quoted(first_word(line)))
            c.fail(b"Unknown Protocol Operation", "Protocol Violation")
        elif code == BAD_LINE:
            self.broken(c, f"parse error: maximum control line of {r.max_line} exceeded: {quoted(first_word(line))}")
            c.fail(b"maximum control line exceeded", "Maximum Control Line Exceeded")
        elif code == BAD_PAYLOAD:
            self.broken(c, f"parse error: maximum payload of {r.max_payload} exceeded: {quoted(first_line(line))}")
            c.fail(b"Maximum Payload Violation", "Maximum Message Payload Exceeded")
        else:
            self.broken(c, "parse error: arguments that can not be: " + quoted(first_line(line)))
            c.finish("Parse Error")
        return 0

    cdef int broken(self, Connection c, str text) except -1:
        if self.on_broken is not None:
            self.on_broken(c, text)
        return 0

    cdef int publish(self, Connection c, Op* op) except -1:
        cdef Message m
        cdef Router router = <Router>c.router
        cdef bytes mapped = None
        c.count_in(op.body_len)
        if c.pedantic and not subject_literal(op.subject, op.subject_len):
            self.deny(c, b"Invalid Publish Subject")
        m.subject = op.subject
        m.subject_len = op.subject_len
        m.reply = op.reply
        m.reply_len = op.reply_len
        m.body = op.body
        m.hlen = op.hlen
        m.body_len = op.body_len
        if router.mapping is not None:         # permissions are checked for the mapped subject
            mapped = map_subject(router, &m)
        if c.allowed is not None or special(m.subject) or (m.reply_len >= 4 and special(m.reply)):
            if self.check_publish(c, &m):
                return 0
        if c.verbose:
            c.put(b"+OK\r\n", 5)
        if m.hlen and (router.traces or asks_for_trace(m.body, m.hlen)) and self.message_trace is not None:
            return self.trace(c, router, &m, op.subject[:op.subject_len], mapped)
        if router.publish(c, &m) == 0 and m.reply_len and c.no_responders:
            self.no_responders(c, router, &m)
        return 0

    cdef int trace(self, Connection c, Router router, Message* m, bytes asked, bytes mapped) except -1:
        """Publish a message that asks for a trace: the message trace decides how, and gets the events afterwards."""
        cdef int took
        verdict = self.message_trace.begin(
            c,
            asked.decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(m.body, m.hlen),
            m.body_len,
        )
        if verdict is False:
            return 0
        if mapped is not None and verdict is not None:
            verdict.events.append(("sm", mapped.decode("utf-8", "surrogateescape")))
        self.reactor.set_trace(verdict)
        try:
            took = router.publish(c, m)
        finally:
            self.reactor.set_trace(None)
        if verdict is not None:
            self.message_trace.end(c, verdict)
        if took == 0 and m.reply_len and c.no_responders:
            self.no_responders(c, router, m)
        return 0

    cdef int check_publish(self, Connection c, Message* m) except -1:
        """1 when the client may not publish: by its permissions, or because only the server uses that subject or reply."""
        if (
            (c.allowed is not None and not c.allowed.publishable(m.subject, m.subject_len, self.reactor.now_ns))
            or reserved_subject(m.subject, m.subject_len)
        ):
            self.violation(c, "Permissions Violation for Publish to " + quoted(m.subject[:m.subject_len]))
            return 1
        if m.reply_len and reserved_reply(m.reply, m.reply_len):
            self.violation(c, "Permissions Violation for Publish with Reply of " + quoted(m.reply[:m.reply_len]))
            return 1
        return 0

    cdef int violation(self, Connection c, str text) except -1:
        self.deny(c, text.encode())
        if self.on_violation is not None:
            self.on_violation(c, text)
        return 0

    def deny(self, Connection c, bytes text) -> None:
        """Send an -ERR that leaves the connection open."""
        c.write(b"-ERR '" + text + b"'\r\n")

    cdef int no_responders(self, Connection c, Router router, Message* m) except -1:
        """Send 503 to the publisher, on its own plain subscription that matches the reply subject."""
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

    def nobody(self, Connection c, bytes subject, bytes reply) -> None:
        """A held message of the client turned out to have no receiver: send 503 if the client asked for it."""
        cdef Message m
        m.subject = PyBytes_AS_STRING(subject)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(subject)
        m.reply = PyBytes_AS_STRING(reply)
        m.reply_len = <uint32_t>PyBytes_GET_SIZE(reply)
        if not c.closed:
            self.no_responders(c, <Router>c.router, &m)

    cdef int subscribe(self, Connection c, Op* op) except -1:
        cdef Router router = <Router>c.router
        cdef int verdict
        cdef bytes subject = op.subject[:op.subject_len]
        queue = op.queue[:op.queue_len] if op.queue_len else b""
        sid = op.sid[:op.sid_len]
        verdict = SUB_ALLOWED if c.allowed is None else c.allowed.rules.may_subscribe(subject, queue)
        if verdict == SUB_REFUSED or queue == b"_sys_":
            self.violation(c, refused_text(subject, queue))
            return 0
        tokens = subject.count(b".") + 1
        if tokens > TOKENS_MOST or self.max_sub_tokens and tokens > self.max_sub_tokens:
            self.violation(c, f"Permissions Violation for Subscription to {quoted(subject)}, too many tokens")
            return 0
        if c.max_subscriptions >= 0 and len(c.subscriptions) >= c.max_subscriptions:
            self.deny(c, b"maximum subscriptions exceeded")
            return 0
        if sid not in c.subscriptions:         # a second SUB with the same sid is ignored
            if not subject_valid(op.subject, op.subject_len):
                self.deny(c, b"Invalid Subject")
                return 0
            if not self.room_for(c, subscription_cost(subject, queue, sid)):
                self.deny(c, b"maximum subscriptions exceeded")
                return 0
            if verdict == SUB_FILTERED:
                c.check_deliveries(True)
            router.subscribe(c, subject, queue, sid)
        if c.verbose:
            c.put(b"+OK\r\n", 5)
        return 0

    cdef bint room_for(self, Connection c, int64_t cost) noexcept:
        """Whether the memory for subscriptions, of the server and of this connection, allows one more."""
        cdef int64_t most = self.reactor.max_subscription_bytes
        return most == 0 or (self.reactor.subscription_bytes + cost <= most and c.subscription_bytes + cost <= most // 2)

    cdef int unsubscribe(self, Connection c, Op* op) except -1:
        cdef Subscription s = c.subscriptions.get(op.sid[:op.sid_len])
        if s is not None:
            if op.max > 0 and <uint64_t>op.max > s.delivered:
                s.end_after(<uint64_t>op.max)
            else:
                (<Router>c.router).unsubscribe(s)
        if c.verbose:
            c.put(b"+OK\r\n", 5)
        return 0


cdef bint asks_for_trace(const char* headers, uint32_t n) noexcept:
    """Whether a line of the header block begins like Nats-Trace-Dest; the message trace parses it."""
    cdef const char* end = headers + n
    cdef const char* line = headers
    while True:
        line = <const char*>memchr(line, c'\n', <size_t>(end - line))
        if line == NULL:
            return False
        line += 1
        if end - line < 15:
            return False
        if line[0] == c'N' and line[5] == c'T' and memcmp(line, b"Nats-Trace-Dest", 15) == 0:
            return True


cdef bytes map_subject(Router router, Message* m):
    """Apply the account's mappings to the message's subject; return the bytes that m.subject points to then."""
    cdef bytes target
    subject = PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape")
    found = router.mapping(subject)
    if found is subject:
        return None
    target = b"" if found is None else (<str?>found).encode("utf-8", "surrogateescape")
    m.subject = PyBytes_AS_STRING(target)
    m.subject_len = <uint32_t>PyBytes_GET_SIZE(target)
    return target


cdef bytes first_line(bytes data):
    """The first line of an operation whose arguments are no secret."""
    return data.partition(b"\n")[0].rstrip(b"\r")


cdef bytes first_word(bytes data):
    """The name of an operation without its arguments: those of a broken CONNECT may have a password."""
    cdef int n = 0
    while n < len(data) and n < WORD_MAX and data[n] not in b" \t\r\n{}[]\"':=,/":
        n += 1
    return data[:n]


cdef bint shows(Connection c, int kind) noexcept:
    """Whether an operation runs now: that of a guest is read again after the guest has come in."""
    return c.ready or kind == OP_CONNECT


cdef inline bint special(const char* p) noexcept nogil:
    """Whether a subject may be one of the server's own; inboxes are not checked any further. A byte follows every subject."""
    return p[0] == c'$' or (p[0] == c'_' and p[1] != c'I')


cdef str refused_text(bytes subject, bytes queue):
    text = "Permissions Violation for Subscription to " + quoted(subject)
    return f"{text} using queue {quoted(queue)}" if queue else text


cdef bint reserved_subject(const char* p, uint32_t n) noexcept:
    """Whether it is a subject between servers."""
    return routed_reply(p, n) or (n >= 5 and memcmp(p, b"$NRG.", 5) == 0)


cdef bint routed_reply(const char* p, uint32_t n) noexcept:
    """Whether it is a reply subject between clusters, in the present or the old form."""
    return (n > 5 and memcmp(p, b"_GR_.", 5) == 0) or (n > 4 and memcmp(p, b"$GR.", 4) == 0)


cdef bint reserved_reply(const char* p, uint32_t n) noexcept:
    """Whether it is a reply subject that only the server gives out."""
    return (n > 8 and memcmp(p, b"$JS.ACK.", 8) == 0) or (n >= 4 and memcmp(p, b"_R_.", 4) == 0) or routed_reply(p, n)
