"""The open atomic batches of one stream."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.broker.router cimport Message
from pelton.core.stream.atomic_batch cimport Group
from pelton.core.stream.draft cimport Draft
from pelton.core.stream.fast_batch cimport Inflight
from pelton.core.stream.publish cimport AtomicBatchHandler, PublishPath


cdef enum Ending:
    NOT_YET = 0
    WITH_THIS = 1              # commit, this message is the last one
    BEFORE_THIS = 2            # commit; the message before this one is the last
    UNKNOWN = 3


cdef class OpenBatch:
    cdef bytes id
    cdef Group group
    cdef uint64_t due_ns       # the batch is abandoned when no message comes until then
    cdef int64_t last          # the highest batch sequence so far
    cdef int64_t held_bytes


cdef class OpenAtomicBatches(AtomicBatchHandler):
    cdef PublishPath path
    cdef dict batches                      # id -> OpenBatch
    cdef OpenBatch latest
    cdef Inflight inflight                 # open batches of all streams
    cdef Inflight held                     # ... and the bytes of their messages
    cdef int64_t limit, messages_max
    cdef uint64_t timeout_ns
    cdef public bint ttl                   # the stream allows message TTLs
    cdef object offer, opened, abandoned   # see open_batches.pyi

    cdef OpenBatch find(self, const char* id, uint32_t n)
    cdef int begin(self, const char* id, uint32_t n) except -1                  # STORED: the batch is open; REFUSED
    cdef int keep(self, OpenBatch b, Message* m, Draft draft) except -1
    cdef int commit(self, OpenBatch b, Message* m, bint before) except -1
    cdef int store(self, OpenBatch b, Message* m, bint before) except -1
    cdef int say(self, Message* m, uint64_t barrier, bytes text) except -1
    cdef int drop(self, OpenBatch b, str reason) except -1
    cdef int refuse_size(self) except -1
