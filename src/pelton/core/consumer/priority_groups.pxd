"""Priority groups of a pull consumer: which of the waiting requests may have the next message."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.broker.router cimport Message
from pelton.core.consumer.pull_requests cimport PullRequest, PullSpec


cdef enum Policy:
    NO_PRIORITY = 0
    OVERFLOW = 1               # a request names numbers that must be reached before it gets messages
    PINNED = 2                 # one client gets all messages, until it stops requesting
    PRIORITIZED = 3            # requests have priorities


cdef enum Verdict:
    TAKES = 0
    WAITS = 1                  # this request has to wait
    WRONG_PIN = 2              # the request's pin id is not the current one


@cython.final
cdef class PriorityGroups:
    cdef readonly int policy
    cdef readonly tuple names              # bytes
    cdef uint64_t pin_ttl_ns
    cdef readonly bytes pin                # the pin id of the pinned client; b"": none
    cdef readonly bytes pinned_group
    cdef readonly uint64_t pinned_ns       # when it was pinned
    cdef uint64_t pin_until_ns             # the pin ends at this time without a new request; 0: no client is pinned
    cdef Out block
    cdef str refusal(self, PullSpec* spec)                         # None: the request may wait
    cdef bint is_pin(self, const char* p, size_t n) noexcept
    cdef int asked(self, PullSpec* spec, uint64_t now_ns) noexcept # a request of the pinned client extends the pin
    cdef int judge(self, PullRequest r, uint64_t ahead, uint64_t unacknowledged) noexcept      # a Verdict
    cdef bint claims(self, PullRequest r) noexcept                 # no client is pinned: this request's client will be
    cdef int assign(self, PullRequest r, bytes pin, uint64_t now_ns) except -1
    cdef int mark(self, Message* m) except -1                      # add the pin id to the message's headers


cdef str needless(PullSpec* spec)          # refusal() of a consumer without groups
