"""Time as a value that is handed in: nanoseconds since 1970 UTC, never going back within a process."""
from libc.stdint cimport uint64_t


# The kernel's time since some moment: for how long work takes. The clock of the server may stand still.
cdef uint64_t monotonic_ns() noexcept
# The processor time of this thread.
cdef uint64_t processor_ns() noexcept


cdef class Clock:
    """A clock that stands still until it is set: the clock of tests and simulations."""
    cdef uint64_t last_ns
    cdef uint64_t now_ns(self) noexcept


cdef class SteadyClock(Clock):
    """A clock that cannot jump; see the module."""
    cdef uint64_t steady_ns        # the last reading of the steady clock; 0: none yet
    cdef uint64_t wall_ns          # the last reading of the wall clock
    cdef uint64_t follow(self, uint64_t wall_ns, uint64_t steady_ns) noexcept


cdef class SystemClock(SteadyClock):
    """The machine's time, read from its two clocks."""
