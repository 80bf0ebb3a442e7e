"""Work of the control plane in slices, one slice per turn, so that long work does not hold up the connections.

A slice runs in the delivery phase of a turn; the sockets are read before the next slice runs. Knows nothing of what the work is.
"""
from pelton.core.broker.reactor cimport Reactor, Task


cdef class Job(Task):
    """Calls step() once per turn as long as it returns True."""

    cdef Reactor reactor
    cdef object step
    cdef object woken

    def __init__(self, Reactor reactor, step, woken=None) -> None:
        self.reactor = reactor
        self.step = step
        self.woken = woken

    def soon(self) -> None:
        """Run a slice in this turn, or in the next one when the delivery phase is over."""
        if self.step is not None:
            self.reactor.enlist_delivery(self)

    def before_deliveries(self) -> None:
        """Run a slice in the commit phase of this turn."""
        if self.step is not None:
            self.reactor.enlist_commit(self)

    def end(self) -> None:
        """Run no more slices."""
        self.step = None
        self.woken = None

    cdef int run(self) except -1:
        return 1 if self.step is not None and self.step() else 0

    cdef int wake(self) except -1:
        if self.woken is not None:
            self.woken()
        return 0
