"""The server's event loop: its own epoll set, one turn after the other (read, commit, deliver, send), and the sync threads."""
from libc.stdint cimport uint64_t
from pelton.core.broker.reactor cimport Connection, Reactor
from pelton.core.protocol.wire cimport Reader


cdef class EventLoop(Reactor):
    cdef int epoll_fd
    cdef int timer_fd                      # armed while a connection is blocked: frees publishers, enforces the write deadline
    cdef int request_fd                    # pipe to the sync threads
    cdef int done_fd                       # pipe from them
    cdef Reader shared                     # input buffer that all connections without an incomplete operation share
    cdef object sessions, call_soon
    cdef bint scheduled                    # call_soon(poll_once) is under way
    cdef int spins                         # tries left to catch an event without sleeping; below 0: turns to wait until the next try
    cdef dict syncs                        # ticket -> owner
    cdef public int syncs_max              # how many of them may run or wait for a thread
    cdef uint64_t next_ticket
    cdef dict blocked                      # id -> Connection whose socket takes no bytes now
    cdef bint timer_armed
    cdef dict listening                    # descriptor of a listening socket -> function to call when a client is waiting there
    cdef bint ending                       # the server stops: stalled input stays where it is
    cdef bint accepting                    # such a function is running
    cdef bint wanted                       # asyncio has work: poll_once returns after this turn
    cdef public uint64_t write_deadline_ns # a blocked connection that makes no progress for this long is closed
    cdef int resume(self) except -1
    cdef int events(self, int timeout_ms) except -1
    cdef bint spin(self) noexcept
    cdef int on_readable(self, Connection c) except -1
    cdef int on_writable(self, Connection c) except -1
    cdef int ask(self, Connection c, object call) except -1
    cdef Reader* borrow(self, Connection c) noexcept
    cdef int keep_rest(self, Connection c, Reader* r) except -1
    cdef int on_arrival(self, int fd) except -1
    cdef int on_synced(self) except -1
    cdef int await_sync(self) except -1
    cdef bint one_sync(self) except -1
    cdef int on_timer(self) except -1
    cdef int relieve(self) except -1
    cdef int arm(self, Connection c) except -1
    cdef int arm_timer(self, bint on) except -1
