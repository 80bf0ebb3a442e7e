"""The receivers of messages, and the message on its way: the parts that core/broker/router brings together."""
cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.broker.reactor cimport Connection, Task
from pelton.core.protocol.subjects cimport Route


cdef enum:
    UNSERVED_MAX = 16                              # queue groups of a message that are collected before other servers are asked


cdef struct Message:
    # A message on its way. The pointers are valid during the call that gets them: to keep a message, copy it.
    const char* subject
    uint32_t subject_len
    const char* reply
    uint32_t reply_len
    const char* body               # headers then payload
    uint32_t hlen
    uint32_t body_len


cdef class Sink:
    """A receiver inside the server (a stream, the JetStream API, an import)."""
    cdef public bint as_client         # of a consumer's deliveries: gets the message's own subject, as a client does
    # 1: taken; 0: not taken (the sink does not count as a receiver). source is None for messages that the server makes.
    cdef int take(self, Connection source, Message* m) except -1
    # As take(), for a traced message: adds its events to reactor.trace; takes nothing when the trace asks only what would happen.
    cdef int traced(self, Connection source, Message* m) except -1
    # The sink stands for subscribers in another account (core/broker/service_imports); any other sink can always take a message.
    cdef bint elsewhere
    cdef void mark_elsewhere(self) noexcept
    cdef int ready(self, Task waiter) except -1        # as Router.readiness
    # The sink for the subscribers of one literal subject, in one queue group unless `queue` is b""; None: there are none.
    cdef Sink bound(self, const char* subject, size_t n, bytes queue)


cdef class Border:
    """The imports and exports of an account at its router (core/broker/service_imports)."""
    cdef int changed(self, bytes subject, bint came) except -1     # interest in a subject or pattern has come or gone


cdef class Subscription:
    cdef Connection connection
    cdef readonly bytes sid, subject, queue        # queue b"" for a plain one
    cdef readonly uint64_t delivered
    cdef uint64_t max                              # auto-unsubscribe after that many; 0 = never
    cdef readonly bint closed
    cdef Py_ssize_t place                          # in its queue group
    cdef void end(self) noexcept                   # it gets no message any more
    cdef void end_after(self, uint64_t deliveries) noexcept

    @cython.final
    cdef inline void count_delivery(self) noexcept:
        self.delivered += 1


# The most memory that a subscription may take: itself, its strings, a node of the trie for each token.
cdef int64_t subscription_cost(bytes subject, bytes queue, bytes sid) noexcept


cdef class RemoteSubscription(Subscription):
    """Interest of another server (core/broker/remote_servers), on behalf of its subscribers."""
    cdef uint32_t weight                           # members of the queue group there; 1 for a plain one
    cdef void set_weight(self, uint32_t weight) noexcept


cdef class Neighbours:
    """The other servers that an account is connected to (core/broker/remote_servers)."""
    # Send to the servers on the route, and to one server for each of the queue groups `unserved`, which no member here has served.
    cdef int send(self, Route route, Connection source, Message* m, PyObject** unserved, int n) except -1
    # As send(), for a consumer's delivery: it is sent under the deliver subject, `target`.
    cdef int hand(self, Route route, Message* m, bytes target, PyObject** unserved, int n) except -1
    # Interest in a subject (of a queue group, or b"") has changed by `delta`; source: the connection it is of, None: the server's own.
    cdef int changed(self, bytes subject, bytes queue, int delta, Connection source) except -1


cdef class QueueGroup:
    cdef list members
    cdef list remote                               # RemoteSubscriptions: asked when no member here takes the message; None: there are none
    cdef bytes key
    cdef bytes queue
    cdef int add(self, Subscription s) except -1
    cdef int add_remote(self, RemoteSubscription s) except -1
    cdef int remove(self, Subscription s) except -1
    cdef int remove_remote(self, RemoteSubscription s) except -1
