"""How much slow work one turn does: work in Python that clients ask for."""
cimport cython
from libc.stdint cimport uint64_t


cdef class TurnBudget:
    """Counts the steps of slow work: for a reactor without sockets, which has no time of its own."""
    cdef public int most                   # steps in a turn
    cdef int left                          # of the run of queued requests
    cdef int slow                          # slow operations of connections in this turn
    cdef void begin(self) noexcept         # a run of queued requests begins;
    cdef bint goes_on(self) noexcept       # ... whether it may do one more step; the first is always allowed
    cdef void end(self) noexcept
    cdef bint used_up(self) noexcept       # whether connections wait for the next turn before their next slow operation
    cdef void next_turn(self) noexcept

    @cython.final
    cdef inline void note_slow(self) noexcept:
        # An operation of a connection ran Python code.
        self.slow += 1


cdef class TimedBudget(TurnBudget):
    """Measures the work: for an event loop."""
    cdef uint64_t since_ns                 # the end of the last turn with slow operations
    cdef uint64_t began_ns, allowed_ns     # the run of queued requests
    cdef uint64_t ended_ns                 # ... the one before it, in processor time
    cdef uint64_t least_ns                 # a run gets at least so much
    cdef uint64_t others_ns                # the last run after which a connection did something else than ask
    cdef bint others                       # since the last run, connections did something else than ask

    @cython.final
    cdef inline void note_other(self) noexcept:
        # A connection did something else than ask.
        self.others = True
