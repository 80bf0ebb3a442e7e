"""Messages that are stored as a whole or not at all: checked drafts become consecutive records that recovery keeps or cuts together."""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.broker.router cimport Message
from pelton.core.log.log cimport Log
from pelton.core.stream.draft cimport Draft
from pelton.core.stream.publish cimport PublishPath


cdef struct Member:
    # One message of a group: subject, header block and payload follow each other in Group.bytes.
    size_t at
    uint32_t subject_len, hlen, body_len


cdef class Group:
    """Messages that wait to be stored together. A message that a rule has looked at has a Draft, which replaces its bytes."""
    cdef Out bytes
    cdef Out members                                    # Member after Member
    cdef dict drafts                                    # number -> Draft
    cdef readonly size_t count
    cdef int add(self, Message* m, Draft draft) except -1
    cdef int point(self, size_t i, Message* m) except -1  # let m be message i, without a reply; valid until the next add() or end_with()
    cdef Draft known(self, size_t i)                    # None: no rule has looked at it
    cdef Draft draft(self, size_t i)                    # made when there is none yet
    cdef int end_with(self, const char* line, uint32_t n) except -1  # append a header line, with its line end, to the last message


# Store messages that have passed their checks, all or none; returns the sequence of the last one. Errors as store_whole().
cdef uint64_t store_group(PublishPath path, Group group) except? 0
cdef int hold(Log log, uint64_t size, uint32_t count) except -1    # make room for all messages in one segment; nothing is written until let_go()
# Mark the records from first_seq on as one group, complete or not; writes continue.
cdef int let_go(Log log, uint64_t first_seq, bint whole) except -1
