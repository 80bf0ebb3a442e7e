"""How much slow work one turn does: work in Python that clients ask for, such as API requests and publishes with rules.

Queued requests get as much processor time as everything else had since their last run, and at least RUN_MIN_NS, so that a server keeps half
of its time for messages. When connections have done nothing but ask for ALONE_NS of processor time, each run may be twice as long as
the last one, up to RUN_MAX_NS: then the changes of many requests go to the disk together. A client that sends its next message when it has
the answer to the last one needs less than ALONE_NS, and finds no long run before it. Slow operations of connections have SLOW_NS in a turn;
then each of these connections waits for the next turn. Does not know what the work is.
"""
from libc.stdint cimport uint64_t
from pelton.core.base.clock cimport monotonic_ns, processor_ns

cdef enum:
    STEPS = 64                             # without a clock
    RUN_MIN_NS = 50000
    RUN_MAX_NS = 1000000
    ALONE_NS = 5000000
    SLOW_NS = 200000
    STALE_NS = 5000000


cdef class TurnBudget:
    """Counts the steps of slow work."""

    def __init__(self) -> None:
        self.most = STEPS

    cdef void begin(self) noexcept:
        self.left = self.most

    cdef bint goes_on(self) noexcept:
        self.left -= 1
        return self.left > 0

    cdef void end(self) noexcept:
        pass

    cdef bint used_up(self) noexcept:
        return self.slow >= self.most

    cdef void next_turn(self) noexcept:
        self.slow = 0


cdef class TimedBudget(TurnBudget):
    """Measures the work."""

    cdef void begin(self) noexcept:
        cdef uint64_t now = processor_ns()
        if self.others or self.least_ns == 0:
            self.others = False
            self.others_ns = now
            self.least_ns = RUN_MIN_NS
        elif now - self.others_ns > ALONE_NS:
            self.least_ns = min(2 * self.least_ns, <uint64_t>RUN_MAX_NS)
        self.allowed_ns = min(max(now - self.ended_ns, self.least_ns), <uint64_t>RUN_MAX_NS)
        self.began_ns = monotonic_ns()

    cdef bint goes_on(self) noexcept:
        return monotonic_ns() - self.began_ns < self.allowed_ns

    cdef void end(self) noexcept:
        self.ended_ns = processor_ns()

    cdef bint used_up(self) noexcept:
        cdef uint64_t now = monotonic_ns()
        if now - self.since_ns > STALE_NS:
            self.since_ns = now                # the first slow operation for a while
            return False
        return now - self.since_ns > SLOW_NS

    cdef void next_turn(self) noexcept:
        self.slow = 0
        self.since_ns = monotonic_ns()
