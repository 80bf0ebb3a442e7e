"""A consumer as its parts see it: its stream, its name, its place on the reactor's lists, its deadline."""
from libc.stdint cimport uint64_t
from pelton.core.broker.reactor cimport Reactor
from pelton.core.stream.listeners cimport Listener
from pelton.core.stream.stream cimport Stream


cdef class ConsumerTask(Listener):
    cdef readonly Stream stream
    cdef Reactor reactor
    cdef readonly str name
    cdef bytes key                         # stream.consumer
    cdef bytes address                     # the key in ack and flow-control subjects: [domain.account.]stream.consumer
    cdef readonly bint closed
    cdef readonly bint changed             # the state differs from the last snapshot()
    cdef public object on_change           # called without arguments when the state begins to differ; or None
    cdef public object deadline_changed    # called with (consumer, ns) when tick() is needed before the time of its last answer; or None
    cdef public object on_unbound          # called without arguments when the last subscriber of the deliver subject has gone; or None
    cdef readonly object api_subjects      # the ApiSubjects it is registered with, which have the callbacks of advisories; or None
    cdef uint64_t deadline_ns              # when tick() is needed; 0: not needed

    cdef int register(self, object api_subjects) except -1         # None: unregister it
    cdef int kick(self) except -1                                  # run in this turn's delivery phase
    cdef int touch(self) except -1                                 # mark the state as changed
    cdef int arm(self, uint64_t at_ns) except -1                   # set the deadline: tick() is needed at this time
    # For Consumer:
    cdef bint in_demand(self) noexcept                             # a client waits for messages
    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1     # a pull request


cdef ConsumerTask ENDED                    # replaces a closed consumer in its parts: its methods do nothing
