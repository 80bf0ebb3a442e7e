"""Many connections in one thread: the loop of a load."""
from libc.stdint cimport int64_t

from pelton.core.base.buffer cimport Out
from pelton.core.protocol.wire cimport Op, Parser


cdef int64_t NEVER_NS                  # the time of a turn that nothing but an arriving message brings on


cdef class Link:
    """A connection whose bytes the load writes and reads itself."""
    cdef int fd
    cdef readonly Parser parser
    cdef readonly str inbox            # a subject of this connection's own
    cdef readonly int64_t max_payload
    cdef object transport              # sends and reads when the socket's bytes are not those of the protocol; else None
    cdef object error_of               # the exception for the text of -ERR
    cdef Out out                       # bytes that the kernel has not taken
    cdef bint held                     # the kernel had no room
    cdef bint more                     # another recv may find bytes at once, perhaps some that epoll does not tell of
    cdef size_t chunk                  # of one recv
    cdef int put(self, const char* p, size_t n) except -1      # to be sent at the end of the turn
    cdef char* room(self, size_t n) except NULL                # where n bytes to be sent may be written
    cdef void wrote(self, size_t n) noexcept                   # so many of them were
    cdef int send(self, const char* p, size_t n) except -1     # at once; the rest is held
    cdef size_t some(self, const char* p, size_t n) except? 0
    cdef int push(self) except -1                              # send what is held
    cdef int receive(self) except -1                           # 1: bytes came; ConnectionResetError at the end
    cdef int receive_through(self) except -1                   # from the transport


cdef class Pace:
    """How many messages of one client may go, and when."""
    cdef int64_t sleep_ns
    cdef double per_second             # 0: no limit
    cdef int64_t start
    cdef int64_t next
    cpdef int64_t allowed(self, int64_t sent, int64_t wanted, int64_t now)
    cpdef int64_t due(self, int64_t sent)
    cpdef sent(self, int64_t now)


cdef class Role:
    """What one client of a load does: the base of all roles."""
    cdef readonly Link link
    cdef readonly int64_t quota        # after so many messages the role is over
    cdef public int64_t done           # messages of the figure, from start_ns
    cdef public int64_t start_ns
    cdef public int64_t end_ns         # to end_ns
    cdef public bint over
    cdef Out times                     # latencies: int64, nanoseconds
    cdef int64_t due                   # when the next turn is
    cdef bint asked_pong
    cpdef int64_t turn(self, int64_t now) except -1            # write what may be written; when the next turn is
    cpdef message(self, tuple operation)                       # a message that no role of the core counts
    cpdef settle(self, int64_t now)                            # bytes were taken
    cpdef pong(self, int64_t now)                              # the server has handled all that was written before ping()
    cpdef ping(self)
    cpdef finish(self, int64_t now)
    cpdef note(self, int64_t ns)                               # a latency
    cdef int take(self, Op* op, int64_t now) except -1         # an operation that came
    cdef int heed(self, Op* op) except -1                      # one that no subclass wants


cdef class Crowd:
    """All clients of a load."""
    cdef list roles
    cdef int epoll
    cdef int64_t first                 # when the first turn is due
    cdef readonly size_t unfinished
    cdef int turn_of(self, Role role, int64_t now) except -1
    cdef int turns(self, int64_t now) except -1
    cdef int feed(self, Role role, int64_t now) except -1
    cdef int watch(self, Role role, bint writable, int how) except -1
