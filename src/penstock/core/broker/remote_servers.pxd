"""The other servers that one account is connected to: who gets a message, and who hears of interest."""
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.broker.reactor cimport Connection, ProtocolHandler
from penstock.core.broker.router cimport Message, Neighbours, QueueGroup, RemoteSubscription, Router
from penstock.core.protocol.subjects cimport Route


cdef class RemoteServer(ProtocolHandler):
    """Another server at the other end of a connection. It gets a message once, for all of its subscriptions that match."""
    cdef readonly Connection connection
    cdef readonly RemoteServers remote_servers     # None before it has joined
    cdef uint64_t mark                             # scratch of RemoteServers.send
    cdef public bint spoke                         # it is the hub of the two, and we are a leaf of it
    cdef public bint isolated                      # it does not hear of what other servers want
    cdef public bytes cluster                      # its cluster's name, b"": none. What is of a cluster does not go back there
    # A message for it, and the queue groups that it serves (names with a blank behind each; b"": plain subscribers only). 0: not sent.
    cdef int pass_on(self, Connection source, Message* m, bytes queues) except -1
    cdef int interest(self, bytes subject, bytes queue, int delta, Connection source) except -1
    cdef bint may_send(self, const char* subject, size_t n) noexcept


cdef class RemoteServers(Neighbours):
    cdef readonly Router router
    cdef readonly list members                     # that have joined
    cdef public bytes loop_subject                 # one that nobody else has: whoever offers it back is behind two of our connections
    cdef uint64_t marks
    cdef Out scratch                               # a consumer's reply and subject
    cdef RemoteSubscription choose(self, QueueGroup group, Connection source, Message* m)
    # A message from a server, for plain subscribers and the queue groups named (blanks between). How many took it.
    cdef int arrive(self, RemoteServer server, Message* m, const char* queues, uint32_t queues_len) except -1
    cdef int subscribe(self, RemoteServer server, bytes sid, bytes subject, bytes queue, uint32_t weight) except -1
