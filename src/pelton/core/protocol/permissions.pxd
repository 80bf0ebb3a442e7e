"""What one connection may publish, subscribe to and receive.

Knows nothing of connections: core/broker/session asks for each PUB and SUB of a connection that has a ConnectionPermissions, core/broker/router for each
delivery to one that is marked for it. A connection without a ConnectionPermissions may do everything and asks nobody.
"""
from libc.stdint cimport int64_t, uint64_t
from pelton.core.base.maps cimport BytesMap
from pelton.core.protocol.overlaps cimport Patterns


cdef enum Verdict:
    SUB_REFUSED = 0
    SUB_ALLOWED = 1
    SUB_FILTERED = 2       # allowed, but a part of what it matches is denied: each delivery has to be asked for


cdef class SubjectSet:
    """Subjects, some with a queue, in tries: a decision looks at the tokens of one subject, not at each entry."""
    cdef readonly tuple entries            # of (pattern, queue pattern or None), as given
    cdef Patterns plain                    # those without a queue; None: there is none
    cdef Patterns queued                   # the subjects of the others; each number is a place in `queues`
    cdef list queues                       # of Patterns: the queues of one subject
    cdef bint matches(self, const char* s, size_t n, bytes queue) except -1
    cdef int covers(self, bytes subject, bytes queue) except -1
    cdef bint collides(self, bytes subject, bytes queue) except -1
    cdef bint fits(self, int number, bytes queue) except -1


cdef class CompiledPermissions:
    """What is allowed and denied, compiled; shared by all connections of a user, together with the decisions taken so far."""
    cdef SubjectSet publish_allow          # None: everything
    cdef SubjectSet publish_deny
    cdef SubjectSet subscribe_allow        # None: everything
    cdef SubjectSet subscribe_deny
    cdef BytesMap publishes                # subject -> 0 or 1
    cdef BytesMap deliveries               # subject -> 0 or 1, for subscriptions without a queue
    cdef bint may_publish(self, const char* s, size_t n) except -1
    cdef bint publish_decision(self, const char* s, size_t n) except -1
    cdef bint may_deliver(self, const char* s, size_t n, bytes queue) except -1
    cdef bint delivery_decision(self, const char* s, size_t n, bytes queue) except -1
    cdef int may_subscribe(self, bytes subject, bytes queue) except -1


cdef class ConnectionPermissions:
    cdef CompiledPermissions rules
    cdef readonly int64_t responses_max            # 0: no leave to answer; below 0: any number of answers
    cdef readonly int64_t responses_expires_ns     # 0 or below: never
    cdef object replies                            # OrderedDict: reply subject -> (deadline ns or 0, answers left or -1)
    cdef readonly size_t reply_bytes               # of those subjects
    # A PUB on this subject; uses up an answer when only a received message gives leave.
    cdef bint publishable(self, const char* s, size_t n, uint64_t now_ns) except -1
    # A message was delivered that asks for an answer there.
    cdef int note_reply(self, const char* s, size_t n, uint64_t now_ns) except -1
    cdef int forget_reply(self, bytes subject) except -1
