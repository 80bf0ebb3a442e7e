"""The limits on the pace of deliveries: a push consumer's flow-control window, the rate limit, and replay at the original pace."""
cimport cython
from libc.stdint cimport uint64_t


@cython.final
cdef class FlowWindow:
    """Bytes that are sent and not confirmed; the client confirms them by answering flow-control requests."""
    cdef readonly uint64_t limit           # with more unconfirmed bytes than this, nothing is sent
    cdef readonly uint64_t unconfirmed
    cdef uint64_t covered                  # bytes that the open request will confirm
    cdef bytes asked                       # answer subject of the open request; b"": none is open
    cdef bint sent(self, uint64_t n) noexcept            # True: time for a request
    cdef bint full(self) noexcept
    cdef int ask(self, bytes subject) except -1
    cdef bint answered(self, const char* subject, size_t n) noexcept


@cython.final
cdef class Pacing:
    cdef uint64_t bytes_per_second         # 0: no limit
    cdef double room                       # bytes that may be sent now
    cdef double burst
    cdef uint64_t filled_ns                # the time for which `room` was computed
    cdef uint64_t replay_until             # messages up to this sequence keep their original distances; 0: none
    cdef uint64_t last_ts_ns               # stored time of the last delivered message
    cdef uint64_t last_sent_ns
    cdef uint64_t hold_until(self, uint64_t seq, uint64_t ts_ns, uint64_t size, uint64_t now_ns) noexcept     # 0: deliver now
    cdef int sent(self, uint64_t ts_ns, uint64_t size, uint64_t now_ns) noexcept
    cdef int resume(self, Pacing old) except -1            # continue the replay that `old` has begun
