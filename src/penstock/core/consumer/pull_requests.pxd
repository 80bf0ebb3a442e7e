"""Pull requests of a consumer: reading one from its bytes, and the queue of those that wait."""
cimport cython
from libc.stdint cimport int64_t, uint64_t
from penstock.core.protocol.subjects cimport Route


cdef struct PullSpec:
    int64_t batch              # messages; below 1: one is delivered all the same
    int64_t max_bytes          # 0: no limit
    int64_t expires_ns         # 0: never
    int64_t heartbeat_ns       # 0: none
    bint no_wait
    bint json                  # came as an object: priority groups ask for theirs
    # priority groups; texts point into the request, or into what parse_pull() keeps until it is called again
    bint special               # one of these is set
    const char* group
    size_t group_len
    const char* client         # the id
    size_t client_len
    int64_t priority, min_pending, min_ack_pending


@cython.final
cdef class PullRequest:
    cdef bytes reply           # where messages and statuses go
    cdef Route route           # who listens there, as last looked up
    cdef int64_t left          # messages still to send
    cdef int64_t bytes_left    # 0: no limit
    cdef uint64_t expires_ns   # 0: never
    cdef uint64_t heartbeat_ns
    cdef uint64_t beat_ns      # when the next heartbeat is due
    cdef uint64_t delivered
    cdef bint no_wait
    # priority groups
    cdef bytes group           # b"": none
    cdef bytes client          # pin id; b"": none
    cdef int64_t priority, min_pending, min_ack_pending
    cdef PullRequest next


@cython.final
cdef class PullQueue:
    """First in, first out; a request that got a message and wants more goes to the end (of those of its priority)."""
    cdef readonly bint prioritized             # lower priorities come first
    cdef PullRequest head, tail
    cdef readonly size_t count
    cdef readonly int64_t wanted               # messages that all of them still want
    cdef size_t impatient                      # requests with no_wait
    cdef uint64_t due_ns                       # no expiry or heartbeat is due before this (0: none at all)
    cdef int order_by_priority(self, bint prioritized) except -1
    cdef int add(self, PullRequest r) except -1
    cdef int served(self, uint64_t now_ns) except -1       # the head got a message: it goes to the end, or leaves when it has all
    cdef int place(self, PullRequest r) except -1
    cdef PullRequest pop(self)                             # the head leaves
    cdef int rotate(self) except -1                        # the head goes to the end (of all)
    cdef int promote(self, PullRequest before) except -1   # the one behind `before` becomes the head
    cdef PullRequest detach(self)                          # empties the queue; the requests hang on each other by `next`


# 1: read; 0: not a request
cdef int parse_pull(const char* p, size_t n, PullSpec* spec) except -1
