"""Holds messages for a stream, or for all streams, that the server has not opened yet."""
from pelton.core.broker.reactor cimport Connection, Task
from pelton.core.broker.receivers cimport Message, Sink


cdef class HeldMessage:
    """One held message."""
    cdef Connection source         # the connection that is not read from meanwhile; None: the message came from inside the server
    cdef Sink target               # the sink that gets it; None: the sink that pass_on() names
    cdef bytes subject, reply, body
    cdef size_t hlen


cdef class StartupGate(Sink):
    cdef object on_asked           # called when the first message is held
    cdef readonly size_t held_bytes
    cdef list messages             # HeldMessage, in the order of arrival
    cdef list waiters              # Tasks that wait until there is room for more messages

    cdef int keep(self, Connection source, Message* m, Sink target) except -1


cdef class GatedSink(Sink):
    cdef Sink behind
    cdef object choose             # (subject) -> the StartupGate that the message waits for, or None
