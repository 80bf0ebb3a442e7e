"""The clock as an object that the caller passes in: nanoseconds since 1970 UTC. It never goes back within a process.

The wall clock of a machine may jump: someone sets it, or its time server is wrong for a while. A server that follows such a jump removes
every message that has a max_age. So a SteadyClock starts with the wall clock's time, counts on by a clock that cannot jump
(CLOCK_BOOTTIME, which includes time in suspend), and approaches the wall clock slowly: at most one SLEW-th of the elapsed time. For
example, after a step of ten seconds both agree again after 80 seconds, and a wall clock that is 20 years ahead for eight minutes moves
this clock by one minute.
"""
from libc.stdint cimport int64_t, uint64_t

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec*)
    int CLOCK_REALTIME, CLOCK_BOOTTIME
    int CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID

cdef enum:
    SLEW = 8                       # the most that the clock runs fast or slow: 1/8

cdef inline uint64_t nanoseconds(timespec* t) noexcept nogil:
    return <uint64_t>t.tv_sec * 1000000000u + <uint64_t>t.tv_nsec


cdef uint64_t monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return nanoseconds(&now)


cdef uint64_t processor_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return nanoseconds(&now)


cdef class Clock:
    """A clock that stands still until it is set: the clock of tests and simulations."""

    def __init__(self, start_ns: int = 0) -> None:
        self.last_ns = start_ns

    cdef uint64_t now_ns(self) noexcept:
        return self.last_ns

    def now(self) -> int:
        """Nanoseconds since 1970 UTC."""
        return self.now_ns()

    def set(self, now_ns: int) -> None:
        """Move the clock to now_ns; ValueError when that is in its past."""
        if now_ns < self.last_ns:
            raise ValueError(f"a clock never goes back: at {self.last_ns}, asked for {now_ns}")
        self.last_ns = now_ns

    def advance(self, by_ns: int) -> int:
        """Move the clock by by_ns (not negative) and return the new time."""
        self.set(self.last_ns + by_ns)
        return self.last_ns

    def rewind(self, now_ns: int) -> None:
        """Move the clock back to now_ns: only for a test that returns to the state of that time. ValueError when it lies ahead."""
        if now_ns > self.last_ns:
            raise ValueError(f"a rewind goes back: at {self.last_ns}, asked for {now_ns}")
        self.last_ns = now_ns


cdef class SteadyClock(Clock):
    """A clock that cannot jump, fed with readings of a wall clock and of one that only counts; see the module."""

    cdef uint64_t now_ns(self) noexcept:
        return self.last_ns

    cdef uint64_t follow(self, uint64_t wall_ns, uint64_t steady_ns) noexcept:
        cdef int64_t step, off, most
        if self.steady_ns == 0:
            self.last_ns = max(self.last_ns, wall_ns)
        elif steady_ns > self.steady_ns:
            step = <int64_t>(steady_ns - self.steady_ns)
            off = <int64_t>(wall_ns - self.last_ns) - step
            most = step // SLEW
            self.last_ns += <uint64_t>(step + max(min(off, most), -most))
        self.steady_ns = max(self.steady_ns, steady_ns)
        self.wall_ns = wall_ns
        return self.last_ns

    def read(self, wall_ns: int, steady_ns: int) -> int:
        """Take a reading of both clocks, in ns; return the time. The first one sets the time to the wall clock's."""
        return self.follow(wall_ns, steady_ns)

    def offset_ns(self) -> int:
        """The wall clock's lead at the last reading; negative when it is behind this clock."""
        return <int64_t>(self.wall_ns - self.last_ns) if self.steady_ns else 0

    def set(self, now_ns: int) -> None:
        """Not possible: raises TypeError."""
        raise TypeError("the system clock is not ours to set")

    def rewind(self, now_ns: int) -> None:
        """Not possible: raises TypeError."""
        raise TypeError("the system clock is not ours to set")


cdef class SystemClock(SteadyClock):
    """The machine's time, read from its two clocks."""

    cdef uint64_t now_ns(self) noexcept:
        cdef timespec wall, steady
        clock_gettime(CLOCK_REALTIME, &wall)
        clock_gettime(CLOCK_BOOTTIME, &steady)
        return self.follow(nanoseconds(&wall), nanoseconds(&steady))
