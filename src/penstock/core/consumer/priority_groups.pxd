"""Priority groups of a pull consumer: which of the requests that wait may have the next message."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.broker.router cimport Message
from penstock.core.consumer.pull_requests cimport PullRequest, PullSpec


cdef enum Policy:
    NO_PRIORITY = 0
    OVERFLOW = 1               # requests say how much must be waiting before they want any
    PINNED = 2                 # one client gets everything, until it stops asking
    PRIORITIZED = 3            # requests have priorities


cdef enum Verdict:
    TAKES = 0
    WAITS = 1                  # not this one, not now
    WRONG_PIN = 2              # it believes that it is pinned, and is not


@cython.final
cdef class PriorityGroups:
    cdef readonly int policy
    cdef readonly tuple names              # bytes
    cdef uint64_t pin_ttl_ns
    cdef readonly bytes pin                # the client that is pinned; b"": none
    cdef readonly bytes pinned_group
    cdef readonly uint64_t pinned_ns       # since when
    cdef uint64_t pin_until_ns             # it must ask again before this; 0: nobody is pinned
    cdef Out block
    cdef str refusal(self, PullSpec* spec)                         # None: it may wait
    cdef bint is_pin(self, const char* p, size_t n) noexcept
    cdef int asked(self, PullSpec* spec, uint64_t now_ns) noexcept # a request that was not refused
    cdef int judge(self, PullRequest r, uint64_t ahead, uint64_t unacknowledged) noexcept      # a Verdict
    cdef bint claims(self, PullRequest r) noexcept                 # nobody is pinned: this one's client will be
    cdef int assign(self, PullRequest r, bytes pin, uint64_t now_ns) except -1
    cdef int mark(self, Message* m) except -1                      # say in its headers who is pinned


cdef str needless(PullSpec* spec)          # refusal() of a consumer without groups
