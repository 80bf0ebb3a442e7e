"""The checks of an atomic batch at its commit."""
from libc.stdint cimport int64_t, uint64_t
from pelton.core.base.maps cimport BytesMap
from pelton.core.broker.router cimport Message
from pelton.core.protocol.publish_headers cimport PublishHeaders
from pelton.core.stream.atomic_batch cimport Group
from pelton.core.stream.publish cimport PublishPath


cdef class StagedBatch:
    """A batch during its checks; rules see the messages that have passed."""
    cdef PublishPath path
    cdef Group group                   # None: the checks are over
    cdef bint ttl                      # the stream allows message TTLs
    cdef size_t checked                # number of messages that have passed
    cdef BytesMap latest               # subject -> number of the last checked message on it
    cdef size_t indexed                # number of checked messages that `latest` includes
    cdef BytesMap counts               # subject -> number of checked messages on it, when the stream limits them
    cdef set ids                       # message ids
    cdef uint64_t bytes, more          # size of the checked messages; bytes that the store adds to the last one
    cdef int check(self, size_t i) except -1  # an Outcome; 0: it passes
    cdef int check_shape(self, Message* m, PublishHeaders* h) except -1
    cdef int check_ttl(self, Message* m, PublishHeaders* h, object draft) except -1
    cdef int check_id(self, PublishHeaders* h) except -1
    cdef int check_sequences(self, Message* m, PublishHeaders* h) except -1
    cdef int check_rollup(self, Message* m) except -1
    cdef int check_room(self, Message* m, PublishHeaders* h) except -1
    cdef int64_t latest_on(self, const char* subject, size_t n) except -2  # -1: none


# Check all messages: an Outcome; 0: all can be stored. `more`: bytes that the store adds to the last message.
cdef int check_group(PublishPath path, Group group, bint ttl, uint64_t more) except -1
