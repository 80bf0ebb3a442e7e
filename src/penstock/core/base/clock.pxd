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


cdef class SystemClock(Clock):
    """The machine's clock; a step backwards of the machine is held at the last value until time has caught up."""
