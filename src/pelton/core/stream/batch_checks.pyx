"""The checks of an atomic batch at its commit: each message against the stream as the batch's earlier messages would leave it.

The stages are those of a single publish (core/stream/refusals), with the checks that only exist within a batch between them, in the
protocol's order for batches. The checks store nothing, and a message is checked without the later ones. A message without headers for
rules is checked as bytes; for the others the stream's rules are asked, and they find in `draft.notes["staged"]` the latest message of the
batch on a subject.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp
from pelton.core.base.buffer cimport hash_bytes, parse_u63
from pelton.core.base.maps cimport BytesMap
from pelton.core.broker.router cimport Message
from pelton.core.log.log cimport Log
from pelton.core.log.subject_table cimport SubjectState
from pelton.core.protocol.publish_headers cimport (
    RARE_COUNTER, RARE_ROLLUP, RARE_SCHEDULE, RARE_TTL, PublishHeaders, Text, header_value, scan_headers,
)
from pelton.core.stream.atomic_batch cimport Group
from pelton.core.stream.draft cimport Draft
from pelton.core.stream.publish cimport COUNT, COUNTER, REFUSED, ROLLUP, SCHEDULE, STORED, TTL, TTL_VALUE, PublishPath

from pelton.core.stream.refusals import STAGED, parse_ttl

cdef enum:
    ASKED = RARE_COUNTER | RARE_TTL | RARE_SCHEDULE | RARE_ROLLUP


cdef class StagedBatch:
    """A batch during its checks."""

    cdef int check(self, size_t i) except -1:
        cdef PublishPath path = self.path
        cdef Draft draft
        cdef Message m
        cdef PublishHeaders h
        cdef int outcome
        self.group.point(i, &m)
        scan_headers(m.body, m.hlen, &h)
        draft = self.group.draft(i) if path.every or h.rare & ASKED else self.group.known(i)
        if draft is not None:
            draft.note(STAGED, self)
        if self.check_shape(&m, &h):
            return REFUSED
        if h.rare & RARE_COUNTER:
            outcome = path.ask(COUNTER, &m, &h, draft)
            if outcome:
                return outcome
        if path.check_expected_stream(&h):
            return REFUSED
        if h.rare & RARE_TTL:
            outcome = self.check_ttl(&m, &h, draft)
            if outcome:
                return outcome
        if h.message_id.at != NULL and self.check_id(&h):
            return REFUSED
        if path.check_source_header(&h):
            return REFUSED
        if path.every:
            outcome = path.ask(COUNT, &m, &h, draft)
            if outcome:
                return outcome
            if path.check_size(&m):          # check the size of the message as a rule changed it
                return REFUSED
        if self.check_sequences(&m, &h):
            return REFUSED
        if h.rare & RARE_SCHEDULE:
            outcome = path.ask(SCHEDULE, &m, &h, draft)
            if outcome:
                return outcome
        if h.rare & RARE_ROLLUP:
            outcome = path.ask(ROLLUP, &m, &h, draft)
            if outcome:
                return outcome
            if self.check_rollup(&m):
                return REFUSED
        self.checked += 1
        return self.check_room(&m, &h) if path.discard_new else 0

    cdef int check_shape(self, Message* m, PublishHeaders* h) except -1:
        if h.last_id.at != NULL:
            return self.path.refuse(400, 10177, "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id")
        return REFUSED if self.path.check_record_size(m) or self.path.check_header_size(m) else 0

    cdef int check_ttl(self, Message* m, PublishHeaders* h, object draft) except -1:
        cdef Text ttl = header_value(m.body, m.hlen, b"Nats-TTL", 8)
        cdef int outcome
        if not self.ttl and parse_ttl(PyBytes_FromStringAndSize(ttl.at, ttl.n).decode("utf-8", "replace")) is None:
            return self.path.refuse(400, 10166, "per-message TTL is disabled")
        outcome = self.path.ask(TTL, m, h, draft)
        return outcome if outcome else self.path.ask(TTL_VALUE, m, h, draft)

    cdef int check_id(self, PublishHeaders* h) except -1:
        cdef uint64_t there
        id = PyBytes_FromStringAndSize(h.message_id.at, h.message_id.n)
        there = self.path.find_duplicate(h.message_id)
        if there and self.path.in_doubt(there):
            return REFUSED
        if there or id in self.ids:
            return self.path.refuse(400, 10201, "atomic publish batch contains duplicate message id")
        self.ids.add(id)
        return 0

    cdef int check_sequences(self, Message* m, PublishHeaders* h) except -1:
        cdef PublishPath path = self.path
        cdef Text subject = h.subject
        cdef uint64_t actual = path.log.span.last_seq + self.checked
        if h.last_sequence.at != NULL:
            if <uint64_t>parse_u63(h.last_sequence.at, h.last_sequence.n) != actual:
                return path.refuse_sequence(actual)
            if self.checked:
                return path.refuse(400, 10164, "wrong last sequence")
        if subject.at == NULL:
            subject.at, subject.n = m.subject, m.subject_len
        if h.subject_sequence.at != NULL and self.latest_on(subject.at, subject.n) >= 0:
            return path.refuse(400, 10164, "wrong last sequence")
        return path.check_subject_sequence(m, h)

    cdef int check_rollup(self, Message* m) except -1:
        cdef Text t = header_value(m.body, m.hlen, b"Nats-Rollup", 11)
        wanted = PyBytes_FromStringAndSize(t.at, t.n).lower()
        if wanted == b"sub" and self.latest_on(m.subject, m.subject_len) >= 0:
            return self.path.refuse(500, 10111, "batch rollup sub invalid")
        if wanted == b"all" and self.checked:
            return self.path.refuse(500, 10111, "batch rollup all invalid")
        return 0

    cdef int check_room(self, Message* m, PublishHeaders* h) except -1:
        """Whether a stream that discards new messages has room for all messages so far."""
        cdef PublishPath path = self.path
        cdef Log log = path.log
        cdef uint64_t hash, most, there = 0
        cdef uint64_t* on
        cdef SubjectState* state
        cdef int64_t id
        self.bytes += path.size_of(m)
        if self.checked == self.group.count:
            self.bytes += self.more
        if path.max_msgs > 0 and log.msgs + self.checked > <uint64_t>path.max_msgs:
            return path.refuse_msgs()
        if path.max_bytes > 0 and log.bytes + self.bytes > <uint64_t>path.max_bytes:
            return path.refuse_bytes()
        if not path.discard_new_per_subject:
            return 0
        hash = hash_bytes(m.subject, m.subject_len)
        on = self.counts.find(m.subject, m.subject_len, hash)
        if on == NULL:
            on = self.counts.put(m.subject, m.subject_len, hash, 0)
        on[0] += 1
        if h.rare & RARE_ROLLUP:
            return 0
        id = log.find_subject(m.subject, m.subject_len)
        state = log.subject(<uint32_t>id) if id >= 0 else NULL
        if state != NULL:
            there = state.msgs
        most = <uint64_t>max(path.max_msgs_per_subject, 0)
        if there + on[0] > most:
            return path.refuse_msgs_per_subject()
        return 0

    cdef int64_t latest_on(self, const char* subject, size_t n) except -2:
        cdef Message m
        cdef uint64_t* found
        while self.indexed < self.checked:
            self.group.point(self.indexed, &m)
            self.latest.put(m.subject, m.subject_len, hash_bytes(m.subject, m.subject_len), self.indexed)
            self.indexed += 1
        found = self.latest.find(subject, n, hash_bytes(subject, n))
        return -1 if found == NULL else <int64_t>found[0]

    def get(self, str subject, default=None):
        """The latest message on a subject before the one that a rule looks at, as it will be stored; None: there is none."""
        cdef bytes name = subject.encode("utf-8", "surrogateescape")
        cdef int64_t i
        if self.group is None:
            return default
        i = self.latest_on(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        return default if i < 0 else self.group.draft(<size_t>i)


cdef int check_group(PublishPath path, Group group, bint ttl, uint64_t more) except -1:
    cdef StagedBatch staged = StagedBatch()
    cdef size_t i
    cdef int outcome
    staged.path = path
    staged.group = group
    staged.ttl = ttl
    staged.latest = BytesMap()
    staged.counts = BytesMap()
    staged.ids = set()
    staged.more = more
    try:
        for i in range(group.count):
            outcome = staged.check(i)
            if outcome:
                return outcome
    finally:
        staged.group = None                # break the cycle between this object and the drafts
    return STORED
