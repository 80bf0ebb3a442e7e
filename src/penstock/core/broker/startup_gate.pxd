"""What stands for a stream, or for all of them, as long as it is not there yet."""
from penstock.core.broker.reactor cimport Connection, Task
from penstock.core.broker.receivers cimport Message, Sink


cdef class HeldMessage:
    """One message that waits."""
    cdef Connection source         # who is not read from meanwhile; None: it came from inside
    cdef Sink target               # who gets it; None: whoever was waited for
    cdef bytes subject, reply, body
    cdef size_t hlen


cdef class StartupGate(Sink):
    cdef object on_asked           # called when somebody waits who is the first
    cdef readonly size_t held_bytes
    cdef list messages             # HeldMessage, in the order they came
    cdef list waiters              # Tasks that want to hand over more than there is room for

    cdef int keep(self, Connection source, Message* m, Sink target) except -1


cdef class GatedSink(Sink):
    cdef Sink behind
    cdef object choose             # (subject) -> the StartupGate that it needs, or None
