"""What holds deliveries back: the flow-control window of a push consumer, its rate limit, and replay at the original pace."""
cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class FlowWindow:
    """Bytes sent and not confirmed by the client; it confirms by answering flow-control requests."""
    cdef readonly uint64_t limit           # more unconfirmed bytes than this: nothing is sent
    cdef readonly uint64_t unconfirmed
    cdef uint64_t covered                  # of which the request that is out will confirm
    cdef bytes asked                       # subject on which the answer to the latest request comes; b"": none is out
    cdef bint sent(self, uint64_t n) noexcept            # True: time for a request
    cdef bint full(self) noexcept
    cdef int ask(self, bytes subject) except -1
    cdef bint answered(self, const char* subject, size_t n) noexcept


@cython.final
cdef class Pacing:
    cdef uint64_t bytes_per_second         # 0: no limit
    cdef double room                       # bytes that may go now
    cdef double burst
    cdef uint64_t filled_ns                # when `room` was right
    cdef uint64_t replay_until             # messages up to this sequence keep their original distances; 0: none
    cdef uint64_t last_ts_ns               # stored time of the last one sent
    cdef uint64_t last_sent_ns
    cdef uint64_t hold_until(self, uint64_t seq, uint64_t ts_ns, uint64_t size, uint64_t now_ns) noexcept     # 0: go
    cdef int sent(self, uint64_t ts_ns, uint64_t size, uint64_t now_ns) noexcept
    cdef int resume(self, Pacing old) except -1            # the replay that another one had begun
