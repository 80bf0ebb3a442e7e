"""Interest and workqueue retention: which messages of a stream a consumer still needs.

A consumer takes a message when its filters match the subject. It is done with the message when the message is acknowledged, or, without
acks, delivered. A message leaves the stream when all consumers that take it are done with it. The consumers are found by subject: those with
filters through the stream's routes, those without in a list. No state is kept per message: the first consumer that still needs the message
ends the search, and each search begins at the consumer that needed the last message, since it probably needs the next one, too. So an ack
costs a few look-ups even with thousands of consumers.

    ack -> settled(seq) -> verdict: NEEDED  stays          DONE  goes          ORPHAN (filters changed since)  goes

A removal is written with the turn, and no ack waits for its sync. A crash between the two does no harm: a removal without the ack that
caused it removes a message that all had acknowledged; an ack without its removal leaves a message that the sweep of the next start removes. A
sweep looks at all messages, a bounded number per turn.

Knows nothing of ack policies or of consumers' state: it calls Listener.needs.
"""
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.log.log cimport Log
from pelton.core.log.subject_table cimport SubjectState
from pelton.core.protocol.subjects cimport Route
from pelton.core.stream.listeners cimport Listener
from pelton.core.stream.stream cimport Retention, Stream

cdef enum:
    SWEEP_FIRST = 32768            # messages that the start of a sweep looks at
    SWEEP_STEP = 8192              # ... and in each turn after that


cdef class InterestRetention(Retention):
    """The retention of one stream; passed to Stream.configure."""

    def __init__(self, Stream stream) -> None:
        self.stream = stream

    # --- one message ---------------------------------------------------------------------------------------------------
    cdef int settled(self, uint64_t seq) except -1:
        cdef int verdict
        try:
            verdict = self.verdict(seq)
            if verdict == DONE or verdict == ORPHAN:
                self.drop(seq)
        except OSError as error:
            self.later(seq, error)
        return 0

    cdef int later(self, uint64_t seq, object error) except -1:
        """The disk could not read a message: look at the message again when the stream asks for it."""
        self.stream.read_failed(error)
        if self.sweep_next == 0 or seq < self.sweep_next:
            self.sweep_orphans = self.sweep_orphans and self.sweep_next > 0
            self.sweep_next = seq
            self.sweep_last = self.stream.log.span.last_seq
        return 0

    cdef int verdict(self, uint64_t seq) except -1:
        cdef Stream stream = self.stream
        cdef uint32_t subject_id = 0, size = 0
        cdef SubjectState* subject
        cdef Route route
        cdef bint taken = PyList_GET_SIZE(stream.listeners.unfiltered) > 0
        if taken and self.needed_by_unfiltered(seq):
            return NEEDED
        if not stream.log.peek(seq, &subject_id, &size):
            return MISSING
        if stream.listeners.filters.count:
            subject = &stream.log.subjects_table.table[subject_id].state
            route = stream.listeners.route_for(subject_id, subject.name, subject.name_len)
            if route.n:
                if self.needed_by_route(route, seq):
                    return NEEDED
                taken = True
        return DONE if taken else ORPHAN

    cdef bint needed_by_unfiltered(self, uint64_t seq) except -1:
        cdef list members = self.stream.listeners.unfiltered
        cdef Py_ssize_t n = PyList_GET_SIZE(members), k, i = self.hint
        for k in range(n):
            if i >= n:
                i = 0
            if (<Listener>PyList_GET_ITEM(members, i)).needs(seq):
                self.hint = i
                return True
            i += 1
        return False

    cdef bint needed_by_route(self, Route route, uint64_t seq) except -1:
        cdef int k, i = self.filtered_hint
        for k in range(route.n):
            if i >= route.n:
                i = 0
            if (<Listener>route.items[i]).needs(seq):
                self.filtered_hint = i
                return True
            i += 1
        return False

    cdef int drop(self, uint64_t seq) except -1:
        # num_pending of no consumer counts the message. A consumer whose filters have changed may have it pending, and finds it gone later.
        self.stream.log.remove(seq)
        if not self.queued:
            self.stream.reactor.enlist_commit(self)
        return 0

    # --- all messages --------------------------------------------------------------------------------------------------
    cdef int sweep(self, uint64_t start, bint orphans) except -1:
        if self.sweep_next and self.sweep_next < start:
            start = self.sweep_next
        self.sweep_orphans = orphans or (self.sweep_next > 0 and self.sweep_orphans)
        self.sweep_next = max(start, 1)
        self.sweep_last = self.stream.log.span.last_seq
        self.sweep_some(SWEEP_FIRST)
        if not self.queued:
            self.stream.reactor.enlist_commit(self)
        return 0

    cdef int sweep_some(self, int budget) except -1:
        cdef Log log = self.stream.log
        cdef uint64_t seq = self.sweep_next
        cdef int verdict
        while budget:
            seq = log.next_live(seq)
            if seq == 0 or seq > self.sweep_last:
                self.sweep_next = 0
                return 0
            try:
                verdict = self.verdict(seq)
                if verdict == DONE or (verdict == ORPHAN and self.sweep_orphans):
                    self.drop(seq)
            except OSError as error:
                self.sweep_next = seq
                return self.stream.read_failed(error)
            seq += 1
            budget -= 1
        self.sweep_next = seq
        return 0

    # --- the commit phase ----------------------------------------------------------------------------------------------
    cdef int run(self) except -1:
        if self.stream.closed or self.stream.retention is not self:
            return 0
        if self.sweep_next:
            self.sweep_some(SWEEP_STEP)
        self.write()
        return 1 if self.sweep_next and not self.stream.unread else 0

    cdef int write(self) except -1:
        """Write the removals to the file; the next sync covers them. With empty segments to delete, commit at once."""
        cdef Stream stream = self.stream
        if stream.committer.queued:
            return 0
        if stream.log.files.retired.items:
            return stream.committer.enlist()
        if stream.log.files.dirty():
            try:
                stream.log.files.write()
            except OSError as error:
                return stream.committer.write_failed(error)
        return 0
