"""One leaf node connection, on either side of it: what the other server sends, what it is sent."""
from libc.stdint cimport int64_t
from penstock.core.broker.reactor cimport Connection
from penstock.core.broker.remote_servers cimport RemoteServer
from penstock.core.broker.router cimport Message
from penstock.core.protocol.wire cimport Op, Reader


cdef class LeafPermissions:
    """Subjects that are allowed (None: all) but for those that are denied."""
    cdef readonly list allow, deny                 # patterns: bytes
    cdef bint open                                 # everything is allowed
    cdef bint system                               # all that is denied begins with `$`
    cdef bint allows(self, const char* subject, size_t n) noexcept  # a literal subject
    cdef bint allows_interest(self, bytes pattern)


cdef class Leaf(RemoteServer):
    cdef object events                                       # a Events of server/leaf: CONNECT, INFO, -ERR, violations
    cdef public LeafPermissions sending                      # what goes there
    cdef public LeafPermissions asking                       # what it is asked for, and from a reactor: what may come
    cdef public LeafPermissions receiving                    # what may come from a leaf: it knows, so whoever sends more is hung up on
    cdef dict wanted                                         # key -> how many here want it (core/broker/router); None before it has joined
    cdef bint joining                                        # lines wait for the end of join()
    cdef int message(self, Op* op) except -1
    cdef int add(self, Op* op) except -1
    cdef bint room_for(self, int64_t cost) noexcept
    cdef int failed(self, int code) except -1
