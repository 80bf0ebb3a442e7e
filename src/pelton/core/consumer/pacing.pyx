"""The limits on the pace of deliveries: a push consumer's flow-control window, the rate limit, and replay at the original pace.

Knows nothing of messages but their size and times. The consumer asks before a delivery, and reports it afterwards.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

cdef enum:
    WINDOW_FIRST = 2097152
    WINDOW_MAX = 33554432


@cython.final
cdef class FlowWindow:
    """The window starts at 2 MiB and doubles with every answer up to 32 MiB; a request is sent when half of it is used."""

    def __init__(self) -> None:
        self.limit = WINDOW_FIRST
        self.asked = b""

    cdef bint sent(self, uint64_t n) noexcept:
        self.unconfirmed += n
        return PyBytes_GET_SIZE(self.asked) == 0 and self.unconfirmed > self.limit // 2

    cdef bint full(self) noexcept:
        return self.unconfirmed > self.limit

    cdef int ask(self, bytes subject) except -1:
        self.asked = subject
        self.covered = self.unconfirmed
        return 0

    cdef bint answered(self, const char* subject, size_t n) noexcept:
        """An answer came on a subject; False when it does not belong to the open request."""
        if n == 0 or n != <size_t>PyBytes_GET_SIZE(self.asked) or memcmp(subject, PyBytes_AS_STRING(self.asked), n) != 0:
            return False
        self.limit = min(self.limit * 2, WINDOW_MAX)
        self.unconfirmed -= min(self.covered, self.unconfirmed)
        self.covered = 0
        self.asked = b""
        return True

    def add(self, n: int) -> bool:
        """For tests: n bytes were sent; True when it is time for a request."""
        return self.sent(n)

    def request(self, bytes subject) -> None:
        """For tests: a request was sent."""
        self.ask(subject)

    def answer(self, bytes subject) -> bool:
        """For tests: an answer came; True when it counts."""
        return self.answered(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))


@cython.final
cdef class Pacing:
    """A token bucket in bytes, and the distances between stored messages."""

    def __init__(self, rate_limit_bps: int = 0, burst: int = 0, replay_until: int = 0) -> None:
        self.bytes_per_second = rate_limit_bps // 8 or (1 if rate_limit_bps else 0)
        self.burst = self.room = burst
        self.replay_until = replay_until

    cdef uint64_t hold_until(self, uint64_t seq, uint64_t ts_ns, uint64_t size, uint64_t now_ns) noexcept:
        cdef uint64_t at = 0
        cdef double need
        if seq <= self.replay_until and self.last_sent_ns and ts_ns > self.last_ts_ns:
            at = self.last_sent_ns + (ts_ns - self.last_ts_ns)
            if at <= now_ns:
                at = 0
        if self.bytes_per_second:
            if self.filled_ns == 0:
                self.filled_ns = now_ns
            self.room = min(self.burst, self.room + <double>(now_ns - self.filled_ns) * self.bytes_per_second / 1e9)
            self.filled_ns = now_ns
            # A message larger than the burst is delivered when the bucket is full, and leaves a debt.
            need = min(<double>size, self.burst) - self.room
            if need >= 0.5:                    # less than a byte is rounding
                at = max(at, now_ns + <uint64_t>(need * 1e9 / self.bytes_per_second) + 1)
        return at

    cdef int sent(self, uint64_t ts_ns, uint64_t size, uint64_t now_ns) noexcept:
        self.last_ts_ns = ts_ns
        self.last_sent_ns = now_ns
        if self.bytes_per_second:
            self.room -= size
        return 0

    cdef int resume(self, Pacing old) except -1:
        self.replay_until = old.replay_until
        self.last_ts_ns = old.last_ts_ns
        self.last_sent_ns = old.last_sent_ns
        return 0

    def hold(self, seq: int, ts_ns: int, size: int, now_ns: int) -> int:
        """For tests: when a message may be delivered (0: now)."""
        return self.hold_until(seq, ts_ns, size, now_ns)

    def tell(self, ts_ns: int, size: int, now_ns: int) -> None:
        """For tests: a message was delivered."""
        self.sent(ts_ns, size, now_ns)
