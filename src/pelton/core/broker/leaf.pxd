"""One leaf node connection, on either side: the lines from the other server, and the interest and messages sent to it."""
from libc.stdint cimport int64_t
from pelton.core.broker.reactor cimport Connection, Task
from pelton.core.broker.remote_servers cimport RemoteServer
from pelton.core.broker.router cimport Message
from pelton.core.protocol.overlaps cimport Patterns
from pelton.core.protocol.wire cimport Op, Reader


cdef class LeafPermissions:
    """The subjects that are allowed (None: all), without those that are denied."""
    cdef Patterns allow, deny                      # `allow` None: all
    cdef bint open                                 # everything is allowed
    cdef bint system                               # every denied pattern begins with `$`
    cdef bint allows(self, const char* subject, size_t n) noexcept  # a literal subject
    cdef bint allows_interest(self, bytes pattern)


cdef class Telling(Task):
    cdef Leaf leaf                                           # None: it is at its end
    cdef list left                                           # the interest at join(), as RemoteServers.join gives it
    cdef Py_ssize_t at                                       # how much of `left` is done
    cdef dict touched                                        # keys that have changed since the last lines -> whether of a queue group
    cdef set told                                            # the keys that the server was told of
    cdef bint step(self) except -1                           # one slice; False: it was the last one
    cdef int tell(self, bint all_told) except -1
    cdef int end(self) except -1


cdef class Leaf(RemoteServer):
    cdef object events                                       # the Events of server/leaf: CONNECT, INFO, -ERR, violations
    cdef public LeafPermissions sending                      # subjects of messages that may be sent to the other server
    cdef public LeafPermissions asking                       # interest that may be told to the other server; on the leaf's side also the messages that may come
    cdef public LeafPermissions receiving                    # messages that may come from a leaf, which knows these permissions: a violation closes it
    cdef dict wanted                                         # key -> number of subscribers on this server (core/broker/router); None before join()
    cdef public bint awaits_connect                          # it has to send CONNECT; until then only INFO is allowed beside it
    cdef Telling telling                                     # tells the interest that there was at join(); None: all is told
    cdef int message(self, Op* op) except -1
    cdef int add(self, Op* op) except -1
    cdef bint room_for(self, int64_t cost) noexcept
    cdef int failed(self, int code) except -1
