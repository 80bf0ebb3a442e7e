"""The receivers of messages: clients' subscriptions, queue groups, subscriptions of other servers, and sinks inside the server.

These classes hold data only, except for the sink in Python. Knows nothing of how a message gets to a receiver: see core/broker/router.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from pelton.core.broker.reactor cimport Connection, Reactor, Task
from pelton.core.protocol.subjects cimport Route

cdef enum:
    SUBSCRIPTION_BYTES = 640           # memory of a subscription with everything that points to it,
    TOKEN_BYTES = 192                  # and of a node of the trie


cdef class Sink:
    """A receiver inside the server (a stream, the JetStream API, an import)."""

    cdef int take(self, Connection source, Message* m) except -1:
        return 0

    cdef int ready(self, Task waiter) except -1:
        return 2

    cdef Sink bound(self, const char* subject, size_t n, bytes queue):
        return self

    cdef int traced(self, Connection source, Message* m) except -1:
        cdef Reactor reactor = source.reactor
        trace = reactor.trace
        reactor.set_trace(None)        # messages that the sink publishes in turn are not the traced message
        try:
            return 1 if trace.only else self.take(source, m)
        finally:
            reactor.set_trace(trace)

    cdef void mark_elsewhere(self) noexcept:
        self.elsewhere = True


cdef class Border:
    """The imports and exports of an account at its router (core/broker/service_imports)."""

    cdef int changed(self, bytes subject, bint came) except -1:
        return 0


cdef class CallbackSink(Sink):
    """A Sink in Python, for rare messages: callback(connection | None, subject, reply, headers, payload) -> taken."""

    cdef object callback

    def __init__(self, callback) -> None:
        self.callback = callback

    cdef int take(self, Connection source, Message* m) except -1:
        if source is not None:
            source.reactor.budget.note_slow()
        return 1 if self.callback(
            source,
            PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(m.reply, m.reply_len).decode("utf-8", "surrogateescape") if m.reply_len else "",
            PyBytes_FromStringAndSize(m.body, m.hlen),
            PyBytes_FromStringAndSize(m.body + m.hlen, m.body_len - m.hlen),
        ) else 0


cdef class Subscription:
    """One SUB of a client."""

    def __init__(self, Connection connection, bytes sid, bytes subject, bytes queue) -> None:
        self.connection = connection
        self.sid = sid
        self.subject = subject
        self.queue = queue

    cdef void end(self) noexcept:
        self.closed = True

    cdef void end_after(self, uint64_t deliveries) noexcept:
        self.max = deliveries

    @property
    def max(self) -> int:
        """The subscription ends after this many deliveries; 0: never."""
        return self.max

    def client(self) -> Connection:
        """The connection it belongs to."""
        return self.connection


cdef class RemoteSubscription(Subscription):
    """Interest of another server, on behalf of its subscribers."""

    cdef void set_weight(self, uint32_t weight) noexcept:
        self.weight = weight


cdef class Neighbours:
    """The other servers that an account is connected to."""

    cdef int send(self, Route route, Connection source, Message* m, PyObject** unserved, int n) except -1:
        return 0

    cdef int hand(self, Route route, Message* m, bytes target, PyObject** unserved, int n) except -1:
        return 0

    cdef int changed(self, bytes subject, bytes queue, int delta, Connection source) except -1:
        return 0


cdef int64_t subscription_cost(bytes subject, bytes queue, bytes sid) noexcept:
    cdef int64_t cost = SUBSCRIPTION_BYTES + TOKEN_BYTES
    cdef Py_ssize_t i
    for i in range(PyBytes_GET_SIZE(subject)):
        cost += TOKEN_BYTES if PyBytes_AS_STRING(subject)[i] == c'.' else 1
    return cost + 2 * PyBytes_GET_SIZE(queue) + PyBytes_GET_SIZE(sid)


cdef class QueueGroup:
    """The members of one queue group on one subject: each message goes to one of them."""

    def __init__(self, bytes key, bytes queue) -> None:
        self.key = key
        self.queue = queue
        self.members = []

    cdef int add(self, Subscription s) except -1:
        s.place = len(self.members)
        self.members.append(s)
        return 0

    cdef int add_remote(self, RemoteSubscription s) except -1:
        if self.remote is None:
            self.remote = []
        self.remote.append(s)
        return 0

    cdef int remove(self, Subscription s) except -1:
        cdef Subscription last = <Subscription>self.members.pop()     # the order in a group means nothing
        if last is not s:
            self.members[s.place] = last
            last.place = s.place
        return 0

    cdef int remove_remote(self, RemoteSubscription s) except -1:
        self.remote.remove(s)
        if not self.remote:
            self.remote = None
        return 0
