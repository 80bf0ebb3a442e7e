"""Fast-ingest batches of one stream: each publish names its batch and its place in it in the reply subject."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.base.maps cimport BytesMap
from pelton.core.broker.router cimport Message
from pelton.core.stream.publish cimport FastBatchHandler, PublishPath


cdef enum Operation:
    START = 0                  # the first message
    APPEND = 1
    COMMIT = 2                 # store this message and end the batch
    COMMIT_EOB = 3             # end the batch; this message is not stored
    PING = 4                   # ask for the state of the batch; nothing is stored


cdef struct Place:
    # The parts of a reply subject.
    const char* id
    uint32_t id_len
    uint32_t flow              # the most messages between two flow acks
    bint gap_ok
    uint64_t seq
    int operation


cdef class Inflight:
    cdef readonly int64_t count            # open batches of all streams that share this object
    cdef public int64_t limit
    cdef int add(self, int64_t n) except -1  # n more are open; below 0: fewer


cdef class FastBatch:
    cdef bytes id
    cdef uint64_t last                     # highest batch sequence seen
    cdef uint64_t stored                   # highest batch sequence that the stream has processed
    cdef uint64_t told                     # batch sequence of the last flow ack
    cdef uint64_t stream_seq               # of the last stored message
    cdef uint64_t barrier                  # answers wait for this sequence: the last stored message, or a duplicate's original behind it
    cdef uint32_t every, most              # messages between two flow acks: now, and the publisher's maximum
    cdef bint gap_ok
    cdef uint64_t due_ns                   # the batch is abandoned when no message comes until then


cdef class OpenFastBatches(FastBatchHandler):
    cdef PublishPath path
    cdef readonly dict batches             # id -> FastBatch
    cdef BytesMap places                   # id -> address of the FastBatch
    cdef FastBatch latest
    cdef public Inflight inflight
    cdef public int64_t limit              # open batches of this stream
    cdef public uint64_t timeout_ns
    cdef Out scratch                       # a message without its Nats-Required-Api-Level

    cdef FastBatch find(self, Place* place)
    cdef FastBatch begin(self, Place* place)
    cdef int end(self, FastBatch b) except -1
    cdef int store(self, FastBatch b, Place* place, Message* m) except -1
    cdef int ping(self, FastBatch b, Place* place, Message* m) except -1
    cdef bint gap(self, FastBatch b, Place* place, Message* m) except -1       # True: the batch has ended
    cdef int commit(self, FastBatch b, Message* m) except -1
    cdef bint flow(self, FastBatch b, Message* m) except -1                    # True: a flow ack was sent
    cdef int flow_ack(self, FastBatch b, Message* m) except -1
    cdef int say(self, Message* m, uint64_t barrier, bytes text) except -1
    cdef int refuse(self, Message* m, tuple refusal) except -1
    cdef bint level_refused(self, Message* m) except -1
