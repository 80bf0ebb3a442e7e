"""Work of the control plane that is done in slices, one a turn, so that a long one never holds up the connections.

A slice runs in the delivery phase of a turn; the next one comes in the next turn, when the sockets have been looked at.
Knows nothing of what the work is.
"""
from penstock.core.broker.reactor cimport Reactor, Task


cdef class Job(Task):
    """Calls step() once a turn while it says that there is more."""

    cdef Reactor reactor
    cdef object step
    cdef object woken

    def __init__(self, Reactor reactor, step, woken=None) -> None:
        self.reactor = reactor
        self.step = step
        self.woken = woken

    def soon(self) -> None:
        """Do a slice in this turn, or in the next one when its delivery phase is over."""
        if self.step is not None:
            self.reactor.enlist_delivery(self)

    def end(self) -> None:
        """No slice any more."""
        self.step = None
        self.woken = None

    cdef int run(self) except -1:
        return 1 if self.step is not None and self.step() else 0

    cdef int wake(self) except -1:
        if self.woken is not None:
            self.woken()
        return 0
