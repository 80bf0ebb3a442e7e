"""A stream: its parts, and its methods for the engine."""
from libc.stdint cimport uint64_t
from pelton.core.broker.reactor cimport Reactor, Task
from pelton.core.broker.router cimport Router, Sink
from pelton.core.log.log cimport Log
from pelton.core.stream.committer cimport Committer
from pelton.core.stream.listeners cimport Listeners
from pelton.core.stream.publish cimport PublishPath


cdef class Retention(Task):
    """Decides which messages a stream with interest or workqueue retention keeps; core/stream/interest asks the consumers."""
    cdef int settled(self, uint64_t seq) except -1         # a consumer is done with a message: remove it unless another consumer needs it
    cdef int sweep(self, uint64_t start, bint orphans) except -1  # look at all messages from a sequence on; orphans: also remove those that no consumer takes


cdef class Stream(Sink):
    cdef readonly Router router
    cdef Reactor reactor
    cdef readonly str name
    cdef readonly Log log
    cdef readonly PublishPath path           # checks publishes and stores them
    cdef Committer committer                 # makes accepted messages durable, then visible
    cdef Listeners listeners                 # the consumers
    cdef Retention retention                 # None: limits retention
    cdef readonly bint closed
    cdef readonly str unread                 # why the disk could not read a message; "": no read failed since read_again()

    cdef int read_failed(self, object error) except -1             # a read failed, of a message that is in the log: no consumer may skip it
