"""The other servers that one account is connected to: which servers get a message, and which are told of interest."""
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.broker.reactor cimport Connection, ProtocolHandler
from pelton.core.broker.router cimport Message, Neighbours, QueueGroup, RemoteSubscription, Router
from pelton.core.protocol.subjects cimport Route


cdef class RemoteServer(ProtocolHandler):
    """The server at the other end of a connection. It gets a message once, for all of its subscriptions that match."""
    cdef readonly Connection connection
    cdef readonly RemoteServers remote_servers     # None before join()
    cdef uint64_t mark                             # scratch of RemoteServers.send
    cdef public bint spoke                         # it is the hub of the two, and this server is its leaf
    cdef public bint isolated                      # it is not told of other servers' interest
    cdef public bytes cluster                      # its cluster's name, b"": none; messages and interest of a cluster are not sent back to it
    # Send a message, with the queue groups that the server is to serve (names, each followed by a blank; b"": plain subscribers). 0: not sent.
    cdef int pass_on(self, Connection source, Message* m, bytes queues) except -1
    cdef int interest(self, bytes subject, bytes queue, int delta, Connection source) except -1
    cdef bint may_send(self, const char* subject, size_t n) noexcept


cdef class RemoteServers(Neighbours):
    cdef readonly Router router
    cdef readonly list members                     # the servers that have joined
    cdef public bytes loop_subject                 # a subject that only this server has: a server that offers it is behind two connections of this one
    cdef public int at_once                        # subscriptions that a server which joins is told of in one turn
    cdef uint64_t marks
    cdef Out scratch                               # reply and subject of a consumer's delivery
    cdef RemoteSubscription choose(self, QueueGroup group, Connection source, Message* m)
    # A message from a server, for plain subscribers and the queue groups named (blanks between); the number of receivers that took it.
    cdef int arrive(self, RemoteServer server, Message* m, const char* queues, uint32_t queues_len) except -1
    # The server takes part from now on. Returns all the interest there is, to tell it: a Subscription, or (RemoteSubscription, its
    # weight now), or (pattern, number of the server's own receivers). Later changes are told by `changed`.
    cdef list join(self, RemoteServer server)
    cdef int subscribe(self, RemoteServer server, bytes sid, bytes subject, bytes queue, uint32_t weight) except -1
