"""The checks of an atomic batch at its commit."""
from libc.stdint cimport int64_t, uint64_t
from penstock.core.base.maps cimport BytesMap
from penstock.core.broker.router cimport Message
from penstock.core.protocol.publish_headers cimport PublishHeaders
from penstock.core.stream.atomic_batch cimport Group
from penstock.core.stream.publish cimport PublishPath


cdef class StagedBatch:
    """One batch on its way into one stream; for rules, those of its messages that were checked."""
    cdef PublishPath stream
    cdef Group group                   # None: the checks are over
    cdef bint ttl                      # the stream takes messages that end by themselves
    cdef size_t checked                # messages that passed, and count for those after them
    cdef BytesMap latest               # subject -> number of the last of them on it
    cdef size_t indexed                # how many of them `latest` knows
    cdef BytesMap counts               # subject -> how many of them are on it, where a stream limits that
    cdef set ids                       # of messages
    cdef uint64_t bytes, more          # that they take so far; that the last one gets when they are stored
    cdef int check(self, size_t i) except -1  # an Outcome; 0: it passes
    cdef int check_shape(self, Message* m, PublishHeaders* h) except -1
    cdef int check_ttl(self, Message* m, PublishHeaders* h, object draft) except -1
    cdef int check_id(self, PublishHeaders* h) except -1
    cdef int check_sequences(self, Message* m, PublishHeaders* h) except -1
    cdef int check_rollup(self, Message* m) except -1
    cdef int check_room(self, Message* m, PublishHeaders* h) except -1
    cdef int64_t latest_on(self, const char* subject, size_t n) except -2  # -1: none


# An Outcome; 0: all can be stored. `more`: bytes that the last one gets then.
cdef int check_group(PublishPath stream, Group group, bint ttl, uint64_t more) except -1
