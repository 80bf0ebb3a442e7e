"""One leaf node connection, on either side: the lines from the other server, and the interest and messages sent to it.

    LS+ subject [queue weight]     LS- subject [queue]           interest: core/protocol/wire draws the lines
    LMSG, HMSG                                                   messages
    INFO, CONNECT, -ERR                                          handed to `events`, never per message

Each side tells the other its interest: a subject once, however many subscribers it has; a queue group with the number of its members. A
leaf (a *spoke*: the side that connected, or that is configured as one) tells its hub of its own clients and its own leaf nodes; a hub tells
of all. Interest in `$LDS.` goes to every server: a server that is offered its own loop subject has found a loop.

Before `join` only the negotiation is understood. Knows nothing of sockets, of which servers may connect, or when to connect again.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp, memcpy
from pelton.core.base.buffer cimport out_waiting, put_u64
from pelton.core.broker.reactor cimport Connection, Task
from pelton.core.broker.remote_servers cimport RemoteServer, RemoteServers
from pelton.core.broker.router cimport Message, Subscription, subscription_cost
from pelton.core.protocol.overlaps cimport Patterns
from pelton.core.protocol.subjects cimport subject_has_wildcard, subject_valid
from pelton.core.protocol.wire cimport (
    BAD_LINE, BAD_OP, BAD_PAYLOAD, OP_CONNECT, OP_ERR, OP_INFO, OP_MORE, OP_MSG, OP_PING, OP_PONG, OP_SUB, OP_UNSUB,
    ROLE_LEAF, Op, Reader, read_op,
)

cdef enum:
    LINES = 16                         # a line between servers may be this many times as long as a client's
    TOKENS_MAX = 4096                  # as in core/protocol/subjects
    LINE_ROOM = 96                     # an LMSG line without subject, reply and queues
    HIGH_WATER = 1048576               # as in core/broker/router: output above this stalls the publishers
    STUCK_NS = 100000000
    COLLIDE_STEPS = 1000               # a wildcard that takes more steps to compare is allowed: each message is checked


cdef Patterns patterns_of(object texts):
    found = Patterns()
    for pattern in texts:
        found.add(pattern, 0)
    return found


cdef class LeafPermissions:
    """The subjects that are allowed, without those that are denied; patterns as str. ``allow`` None: all subjects are allowed."""

    def __init__(self, allow=None, deny=()) -> None:
        deny = list(deny)
        self.allow = None if allow is None else patterns_of(allow)
        self.deny = patterns_of(deny)
        self.open = allow is None and not deny
        self.system = allow is None and all([pattern.startswith("$") for pattern in deny])

    cdef bint allows(self, const char* subject, size_t n) noexcept:
        if self.open or (self.system and subject[0] != c'$'):
            return True
        if self.deny.matches(subject, n):
            return False
        return self.allow is None or self.allow.matches(subject, n)

    cdef bint allows_interest(self, bytes pattern):
        # Of a wildcard, one allowed subject is enough: messages on denied subjects are not sent.
        cdef const char* p = PyBytes_AS_STRING(pattern)
        cdef size_t n = PyBytes_GET_SIZE(pattern)
        if self.open or (self.system and p[0] != c'$'):
            return True
        if self.deny.covered(p, n):
            return False
        if self.allow is None or self.allow.covered(p, n):
            return True
        return subject_has_wildcard(p, n) and self.allow.met(p, n, COLLIDE_STEPS, None) != 0

    @property
    def steps(self) -> int:
        """Tokens looked at so far, for tests that they are few."""
        return self.deny.steps + (0 if self.allow is None else self.allow.steps)

    def allows_subject(self, str subject) -> bool:
        """Whether a literal subject is allowed."""
        s = subject.encode("utf-8", "surrogateescape")
        return self.allows(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))


class Events:
    """Callbacks of a Leaf, to be overridden in a subclass. None of them is called per message."""

    def info(self, leaf, text) -> None:
        """The other server sent INFO."""

    def connect(self, leaf, text) -> None:
        """The other server sent CONNECT."""

    def error(self, leaf, text) -> None:
        """The other server sent -ERR."""

    def pong(self, leaf) -> None:
        """The other server answered a PING."""

    def loop(self, leaf) -> None:
        """The other server offers this server's own loop subject."""

    def violation(self, leaf, kind, subject) -> None:
        """The other server violated a permission that it knows."""


cdef bint exempt(const char* p, size_t n) noexcept:
    # Subjects between servers, which need no permission: replies of services, acks.
    return (n > 4 and memcmp(p, b"_R_.", 4) == 0) or (n > 8 and memcmp(p, b"$JS.ACK.", 8) == 0)


cdef bint of_servers(bytes subject):
    return subject.startswith((b"$LDS.", b"$GR.", b"_GR_."))


cdef class Telling(Task):
    """Tells a server that joins of the interest that there was, some of it in each turn.

    Meanwhile each change is counted at once, so the number of subscribers of a subject that was not looked at yet may be below zero. What
    falls to zero is withdrawn at the end only: there may be another subscriber, who was not looked at yet.
    """

    cdef int run(self) except -1:
        if self.leaf is None:
            return 0
        return self.step()

    cdef bint step(self) except -1:
        cdef Leaf leaf = self.leaf
        cdef Py_ssize_t end = min(self.at + leaf.remote_servers.at_once, len(self.left))
        cdef Subscription s
        while self.at < end:
            item = self.left[self.at]
            self.at += 1
            if isinstance(item, Subscription):
                s = <Subscription>item
                leaf.interest(s.subject, s.queue, 1, s.connection)
            elif isinstance(item[0], Subscription):
                s = <Subscription>item[0]
                leaf.interest(s.subject, s.queue, item[1], s.connection)
            else:
                leaf.interest(item[0], b"", item[1], None)
        self.tell(self.at == len(self.left))
        return self.leaf is not None

    cdef int tell(self, bint all_told) except -1:
        """Write the lines for what has changed."""
        cdef Leaf leaf = self.leaf
        cdef dict wanted = leaf.wanted, rest = {}
        cdef list lines = []
        for key, queue in self.touched.items():
            n = wanted.get(key, 0)
            if n > 0:
                if queue or key not in self.told:
                    self.told.add(key)
                    lines.append(line_of(key, queue, n))
            elif not all_told:
                rest[key] = queue
            else:
                wanted.pop(key, None)
                if key in self.told:
                    lines.append(line_of(key, queue, 0))
        self.touched = rest
        if all_told:
            self.end()
        if lines:
            leaf.connection.write(b"".join(lines))
        return 0

    cdef int end(self) except -1:
        self.leaf.telling = None
        self.leaf = None
        self.left, self.told = [], set()
        return 0


cdef class Leaf(RemoteServer):
    """A connection to another server, which is this server's leaf or its hub."""

    def __init__(self, Connection connection, events, bint spoke) -> None:
        """`events` is called for INFO, CONNECT, -ERR, a loop and a violation (leaf.pyi); `spoke`: this server is the leaf."""
        super().__init__(connection)
        self.events = events
        self.spoke = spoke
        self.sending = LeafPermissions()
        self.asking = LeafPermissions()
        self.receiving = LeafPermissions()
        connection.serve_with(self, ROLE_LEAF, LINES * connection.reactor.max_line)

    def join(self, RemoteServers remote_servers) -> None:
        """Join the account after the negotiation: tell the other server all interest here, and exchange messages from now on."""
        cdef Telling telling = Telling.__new__(Telling)
        self.wanted = {}
        self.telling = telling
        self.connection.enter(remote_servers.router, True)
        telling.leaf, telling.touched, telling.told = self, {}, set()
        telling.left = remote_servers.join(self)
        if telling.step():
            self.connection.reactor.enlist_delivery(telling)

    def leave(self) -> None:
        """The connection has ended."""
        self.wanted = None
        if self.telling is not None:
            self.telling.end()
        if self.remote_servers is not None:
            self.remote_servers.leave(self)

    def wants(self) -> dict:
        """The interest told to the other server: subject, or subject and queue -> number of subscribers."""
        return {key: n for key, n in (self.wanted or {}).items() if n > 0}

    # --- from the other server -----------------------------------------------------------------------------------------
    cdef int operate(self, Connection c, Reader* r) except -1:
        cdef Op op
        cdef int kind
        c.heard()
        while not c.stalled and not c.closed and not c.closing:
            kind = read_op(r, &op)
            if kind == OP_MORE:
                break
            if self.awaits_connect and kind != OP_CONNECT and kind != OP_INFO and kind != BAD_LINE:
                c.fail(b"Authorization Violation", "Authentication Failure")
            elif kind < 0:
                self.failed(kind)
            elif kind == OP_PING:
                c.put(b"PONG\r\n", 6)
            elif kind == OP_PONG:
                c.note_pong()
                self.events.pong(self)
            elif kind == OP_INFO:
                self.events.info(self, PyBytes_FromStringAndSize(op.body, op.body_len))
            elif kind == OP_CONNECT:
                self.events.connect(self, PyBytes_FromStringAndSize(op.body, op.body_len))
            elif kind == OP_ERR:
                self.events.error(self, PyBytes_FromStringAndSize(op.body, op.body_len).strip(b" \t'"))
            elif kind == OP_MSG or kind == OP_SUB or kind == OP_UNSUB:
                if not c.ready:
                    c.fail(b"Authorization Violation", "Protocol Violation")
                elif kind == OP_MSG:
                    self.message(&op)
                    if c.reactor.budget.slow and c.reactor.budget.used_up() and not c.stalled:
                        c.pause()
                elif kind == OP_SUB:
                    self.add(&op)
                else:
                    s = c.subscriptions.get(op.sid[:op.sid_len])
                    if s is not None:
                        self.remote_servers.router.unsubscribe(s)
        return 0

    cdef int failed(self, int code) except -1:
        cdef Connection c = self.connection
        if code == BAD_OP:
            c.fail(b"Unknown Protocol Operation", "Protocol Violation")
        elif code == BAD_LINE:
            c.fail(b"maximum control line exceeded", "Maximum Control Line Exceeded")
        elif code == BAD_PAYLOAD:
            c.fail(b"Maximum Payload Violation", "Maximum Message Payload Exceeded")
        else:
            c.finish("Parse Error")
        return 0

    cdef int message(self, Op* op) except -1:
        cdef Connection c = self.connection
        cdef Message m
        c.count_in(op.body_len)
        if self.spoke:
            if not self.asking.allows(op.subject, op.subject_len) and not exempt(op.subject, op.subject_len):
                return 0
        elif not self.receiving.allows(op.subject, op.subject_len) and not exempt(op.subject, op.subject_len):
            self.events.violation(self, "Publish", op.subject[:op.subject_len])
            return 0
        m.subject = op.subject
        m.subject_len = op.subject_len
        m.reply = op.reply
        m.reply_len = op.reply_len
        m.body = op.body
        m.hlen = op.hlen
        m.body_len = op.body_len
        self.remote_servers.arrive(self, &m, op.queue, op.queue_len)
        return 0

    cdef int add(self, Op* op) except -1:
        cdef bytes subject = op.subject[:op.subject_len], queue = op.queue[:op.queue_len] if op.queue_len else b""
        cdef uint32_t weight = <uint32_t>op.max if op.max > 1 else 1
        if not subject_valid(op.subject, op.subject_len) or subject.count(b".") >= TOKENS_MAX:
            self.connection.write(b"-ERR 'Invalid Subscription'\r\n")
            return 0
        if subject == self.remote_servers.loop_subject:
            self.events.loop(self)
            return 0
        if not self.spoke and not of_servers(subject) and not subject_has_wildcard(op.subject, op.subject_len):
            if not self.sending.allows(op.subject, op.subject_len) and not exempt(op.subject, op.subject_len):
                self.events.violation(self, "Subscription", subject)
                return 0
        key = subject + b" " + queue if queue else subject
        if key not in self.connection.subscriptions and not self.room_for(subscription_cost(subject, queue, key)):
            self.connection.write(b"-ERR 'maximum subscriptions exceeded'\r\n")
            return 0
        self.remote_servers.subscribe(self, key, subject, queue, weight)
        return 0

    cdef bint room_for(self, int64_t cost) noexcept:
        """As for clients (core/broker/session): all connections share the memory for subscriptions, and one connection gets half of it."""
        cdef Connection c = self.connection
        cdef int64_t most = c.reactor.max_subscription_bytes
        return most == 0 or (c.reactor.subscription_bytes + cost <= most and c.subscription_bytes + cost <= most // 2)

    # --- to the other server -------------------------------------------------------------------------------------------
    cdef bint may_send(self, const char* subject, size_t n) noexcept:
        return self.sending.allows(subject, n)

    cdef int pass_on(self, Connection source, Message* m, bytes queues) except -1:
        cdef Connection c = self.connection
        cdef RemoteServer origin
        cdef char* start
        cdef char* p
        cdef const char* body = m.body
        cdef uint32_t hlen = m.hlen, n = m.body_len, queues_len = <uint32_t>PyBytes_GET_SIZE(queues)
        if c.closed or c.closing or not self.sending.allows(m.subject, m.subject_len):
            return 0
        if source is not None and source.handler is not None and PyBytes_GET_SIZE(self.cluster):
            origin = <RemoteServer?>source.handler
            if origin.cluster == self.cluster:
                return 0
        if hlen and not c.headers:
            body += hlen
            n -= hlen
            hlen = 0
        start = p = c.reserve(<size_t>n + m.subject_len + m.reply_len + queues_len + LINE_ROOM)
        memcpy(p, b"HMSG " if hlen else b"LMSG ", 5)
        memcpy(p + 5, m.subject, m.subject_len)
        p += 5 + m.subject_len
        p[0] = c' '
        p += 1
        if queues_len:
            p[0] = c'+' if m.reply_len else c'|'
            p[1] = c' '
            p += 2
        if m.reply_len:
            memcpy(p, m.reply, m.reply_len)
            p += m.reply_len
            p[0] = c' '
            p += 1
        memcpy(p, PyBytes_AS_STRING(queues), queues_len)
        p += queues_len
        if hlen:
            p = put_u64(p, hlen)
            p[0] = c' '
            p += 1
        p = put_u64(p, n)
        p[0] = c'\r'
        p[1] = c'\n'
        memcpy(p + 2, body, n)
        p += 2 + n
        p[0] = c'\r'
        p[1] = c'\n'
        c.count_out(n)
        c.commit(p + 2 - start)
        if source is not None and c.blocked and not source.stalled and out_waiting(&c.out) > HIGH_WATER:
            if c.reactor.now_ns - c.progress_ns < STUCK_NS:
                source.wait_for(c)
        return 1

    cdef int interest(self, bytes subject, bytes queue, int delta, Connection source) except -1:
        cdef RemoteServer other = None
        cdef bint loop = subject.startswith(b"$LDS.")
        if self.wanted is None:
            return 0
        if source is not None and source.handler is not None:
            other = <RemoteServer?>source.handler
            if self.isolated or (PyBytes_GET_SIZE(other.cluster) and other.cluster == self.cluster):
                return 0
            if self.spoke and other.spoke and not loop:
                return 0
        key = subject + b" " + queue if queue else subject
        had = self.wanted.get(key, 0)
        n = had + delta
        if self.telling is None:
            n = max(n, 0)
        if n == had:
            return 0
        if delta > 0 and not loop and not self.asking.allows_interest(subject):
            return 0
        if self.telling is not None:
            self.wanted[key] = n
            self.telling.touched[key] = bool(queue)
            return 0
        if n:
            self.wanted[key] = n
        else:
            del self.wanted[key]
        if queue or not had or not n:
            self.connection.write(line_of(key, bool(queue), n))
        return 0

    def ask_again(self) -> None:
        """The permissions for interest (`asking`) have changed: withdraw interest that is not allowed any more."""
        for key in list(self.wanted or ()):
            subject = key.partition(b" ")[0]
            if not subject.startswith(b"$LDS.") and not self.asking.allows_interest(subject):
                del self.wanted[key]
                if self.telling is None or key in self.telling.told:
                    self.connection.write(line_of(key, False, 0))
                if self.telling is not None:
                    self.telling.told.discard(key)


cdef bytes line_of(bytes key, bint queue, int n):
    if n <= 0:
        return b"LS- %b\r\n" % key
    return b"LS+ %b %d\r\n" % (key, n) if queue else b"LS+ %b\r\n" % key
