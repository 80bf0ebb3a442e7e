"""Who receives messages, and the message on its way: what core/broker/router brings together."""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.broker.reactor cimport Connection, Task
from penstock.core.protocol.subjects cimport Route


cdef enum:
    UNSERVED_MAX = 16                              # queue groups of a message that are gathered before other servers are asked


cdef struct Message:
    # A message on its way. Pointers live as long as the call they are handed to: who keeps something copies it.
    const char* subject
    uint32_t subject_len
    const char* reply
    uint32_t reply_len
    const char* body               # headers then payload
    uint32_t hlen
    uint32_t body_len


cdef class Sink:
    """An internal receiver of messages (a stream, the API, an ack desk)."""
    cdef public bint as_client         # of a consumer's deliveries: sees the message's own subject, as a client does
    # 1: taken; 0: not mine after all (counts as nobody there). source is None for server-made messages.
    cdef int take(self, Connection source, Message* m) except -1
    # The same for a message that is traced (reactor.trace): says there what becomes of it; takes nothing when only that is asked for.
    cdef int traced(self, Connection source, Message* m) except -1
    # Of what stands for subscribers elsewhere (core/broker/service_imports); any other sink can always take something.
    cdef bint elsewhere
    cdef int ready(self, Task waiter) except -1        # as Router.readiness
    # What stands for those who listen on one literal subject, in one queue group unless that is b""; None: there is nothing.
    cdef Sink bound(self, const char* subject, size_t n, bytes queue)


cdef class Border:
    """What an account shares with others (core/broker/service_imports)."""
    cdef int changed(self, bytes subject, bint came) except -1     # interest in a subject or pattern has come or gone


cdef class Subscription:
    cdef Connection connection
    cdef readonly bytes sid, subject, queue        # queue b"" for a plain one
    cdef readonly uint64_t delivered
    cdef uint64_t max                              # auto-unsubscribe after that many; 0 = never
    cdef readonly bint closed
    cdef Py_ssize_t place                          # in its queue group


# What a subscription may take of memory at most: itself, its strings, a node for each token.
cdef int64_t subscription_cost(bytes subject, bytes queue, bytes sid) noexcept


cdef class RemoteSubscription(Subscription):
    """What another server wants (core/broker/remote_servers), for whoever is behind it."""
    cdef uint32_t weight                           # members of the queue group there; 1 for a plain one


cdef class Neighbours:
    """The other servers that an account is connected to (core/broker/remote_servers)."""
    # To those on the route, and to one for each of these groups, which nobody here has served.
    cdef int send(self, Route route, Connection source, Message* m, PyObject** unserved, int n) except -1
    # The same of a consumer's message: it goes by the subject it is delivered to.
    cdef int hand(self, Route route, Message* m, bytes target, PyObject** unserved, int n) except -1
    # Interest in a subject (of a queue group, or b"") has come or gone, by so much; source: whose, None: the server's own.
    cdef int changed(self, bytes subject, bytes queue, int delta, Connection source) except -1


cdef class QueueGroup:
    cdef list members
    cdef list remote                               # RemoteSubscriptions: asked when no member here takes it; None: there are none
    cdef bytes key
    cdef bytes queue
