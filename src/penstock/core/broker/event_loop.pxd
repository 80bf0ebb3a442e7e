"""One turn of the server: its own epoll set, reads, commit, acks, consumers, sends; sync threads."""
from libc.stdint cimport uint64_t
from penstock.core.broker.reactor cimport Connection, Reactor
from penstock.core.protocol.wire cimport Reader


cdef class EventLoop(Reactor):
    cdef int epoll_fd
    cdef int timer_fd                      # armed while a connection is blocked: unsticks publishers, write deadline
    cdef int request_fd                    # pipe to the sync threads
    cdef int done_fd                       # pipe from them
    cdef Reader shared                     # input buffer of all connections without an incomplete operation
    cdef object sessions, call_soon
    cdef bint scheduled                    # call_soon(poll_once) is under way
    cdef int spins                         # tries to catch events without sleeping that are left; below 0: pauses to go
    cdef dict syncs                        # ticket -> owner
    cdef uint64_t next_ticket
    cdef dict blocked                      # id -> Connection that the kernel takes no bytes for
    cdef bint timer_armed
    cdef dict listening                    # descriptor of a listening socket -> what to call when somebody is there
    cdef bint accepting                    # such a call is under way
    cdef bint wanted                       # asyncio has something to do: don't stay
    cdef public uint64_t write_deadline_ns # a blocked connection without progress for so long is closed
    cdef int events(self, int timeout_ms) except -1
    cdef bint spin(self) noexcept
    cdef int on_readable(self, Connection c) except -1
    cdef int on_writable(self, Connection c) except -1
    cdef int ask(self, Connection c, object call) except -1
    cdef Reader* borrow(self, Connection c) noexcept
    cdef int keep_rest(self, Connection c, Reader* r) except -1
    cdef int on_arrival(self, int fd) except -1
    cdef int on_synced(self) except -1
    cdef int on_timer(self) except -1
    cdef int relieve(self) except -1
    cdef int arm(self, Connection c) except -1
    cdef int arm_timer(self, bint on) except -1
