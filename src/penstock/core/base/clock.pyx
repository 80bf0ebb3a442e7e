"""The clock as an object that the caller passes in: nanoseconds since 1970 UTC. It never goes back within a process."""
from libc.stdint cimport uint64_t

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int, timespec*)
    int CLOCK_REALTIME
    int CLOCK_MONOTONIC, CLOCK_THREAD_CPUTIME_ID


cdef uint64_t monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <uint64_t>now.tv_sec * 1000000000u + <uint64_t>now.tv_nsec


cdef uint64_t processor_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now)
    return <uint64_t>now.tv_sec * 1000000000u + <uint64_t>now.tv_nsec


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


cdef class SystemClock(Clock):
    """The machine's clock; a step backwards of the machine is held at the last value until time has caught up."""

    cdef uint64_t now_ns(self) noexcept:
        cdef timespec ts
        cdef uint64_t t
        clock_gettime(CLOCK_REALTIME, &ts)
        t = <uint64_t>ts.tv_sec * 1000000000u + <uint64_t>ts.tv_nsec
        if t > self.last_ns:
            self.last_ns = t
        return self.last_ns

    def set(self, now_ns: int) -> None:
        """Not possible: raises TypeError."""
        raise TypeError("the system clock is not ours to set")

    def rewind(self, now_ns: int) -> None:
        """Not possible: raises TypeError."""
        raise TypeError("the system clock is not ours to set")
