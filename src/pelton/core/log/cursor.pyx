"""The position of a consumer in its stream: which message comes next, and how many messages are still ahead.

The cursor compares each subject with the filters once and keeps the answer by subject id; the log then skips the unwanted messages.
In a log of many subjects, a cursor whose filters only a few subjects pass keeps the ids of these instead, and asks each of them for
its next message, so the other subjects cost neither time nor memory. set_filters() looks at the subjects of the log at that time; the
stream reports later ones when their first message is published.

The cursor counts the messages ahead once and then updates the number: minus one for each message taken, plus the appended ones. It
counts again only after messages were removed from the middle of the stream.

Knows nothing of acks, requests or delivery.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memset
from pelton.core.base.buffer cimport Out, out_free, out_put
from pelton.core.log.log cimport Log
from pelton.core.log.subject_index cimport SubjectIndex
from pelton.core.log.subject_table cimport SubjectState
from pelton.core.protocol.overlaps cimport Patterns
from pelton.core.protocol.subjects cimport subject_has_wildcard, subject_matches


cdef enum:
    FEW_IDS = 64                   # up to this many wanted subjects are kept as a list of ids
    MANY_SUBJECTS = 8192           # in a log with fewer subjects, a byte for each subject is better
    FEW_FILTERS = 16               # up to this many filters are compared one by one


cdef int ascending(const void* a, const void* b) noexcept nogil:
    cdef uint64_t x = (<uint64_t*>a)[0], y = (<uint64_t*>b)[0]
    return -1 if x < y else (1 if x > y else 0)


cdef int matching_ids(Log log, bytes pattern, Out* found) except -1:
    """Append the ids of the subjects that match to `found`, including subjects without live messages."""
    cdef const char* p = PyBytes_AS_STRING(pattern)
    cdef size_t n = PyBytes_GET_SIZE(pattern)
    cdef int64_t only
    cdef uint32_t id
    if subject_has_wildcard(p, n):
        if log.subjects_table.names is None:
            log.subjects_table.keep_index(SubjectIndex(log.subjects_table))
        return (<SubjectIndex>log.subjects_table.names).match(p, n, found)
    only = log.find_subject(p, n)
    if only >= 0:
        id = <uint32_t>only
        out_put(found, <const char*>&id, sizeof(uint32_t))
    return 0


@cython.final
cdef class Cursor:
    """The position of one consumer in its stream."""

    def __init__(self, Log log, start_seq: int) -> None:
        self.log = log
        self.next_seq = start_seq
        self.passed = start_seq - 1
        self.filters = ()

    def __dealloc__(self):
        free(self.wanted)
        free(self.starts)

    cdef int set_filters(self, tuple filters) except -1:
        cdef Out found
        cdef bytes pattern
        self.filters = filters
        self.filtered = len(filters) > 0 and filters != (b">",)
        self.literal = len(filters) == 1 and not subject_has_wildcard(
            PyBytes_AS_STRING(<bytes>filters[0]), PyBytes_GET_SIZE(<bytes>filters[0]))
        self.known = self.caught_up = False
        self.found = 0
        if self.starts_at == self.starts_len:
            self.next_seq = self.passed + 1        # the new filters may want messages that the old ones skipped
        if not self.filtered:
            return 0
        free(self.wanted)
        self.wanted = NULL
        self.wanted_cap = self.wanted_len = self.ids_n = 0
        self.few = self.log.subject_ids > MANY_SUBJECTS
        if self.few and not self.log.subjects_table.tracking:
            self.log.subjects_table.track()
        if not self.few:
            return self.want_matching(filters)
        if len(filters) > FEW_FILTERS:
            wild = tuple([each for each in filters if subject_has_wildcard(PyBytes_AS_STRING(<bytes>each), PyBytes_GET_SIZE(<bytes>each))])
            if len(wild) > FEW_FILTERS:         # each index query would compare all subjects that are not sorted yet
                self.want_matching(wild)
                filters = tuple([each for each in filters if not subject_has_wildcard(
                    PyBytes_AS_STRING(<bytes>each), PyBytes_GET_SIZE(<bytes>each))])
        memset(&found, 0, sizeof(Out))
        try:
            for pattern in filters:
                matching_ids(self.log, pattern, &found)
            self.want_all(<uint32_t*>found.data, found.len // sizeof(uint32_t))
        finally:
            out_free(&found)
        return 0

    cdef int want_matching(self, tuple filters) except -1:
        """Compare each subject with the filters; many filters go into a trie, so that each subject needs one look-up."""
        cdef Patterns many = None
        cdef uint32_t i
        cdef SubjectState* s
        cdef bytes pattern
        if len(filters) > FEW_FILTERS:
            many = Patterns()
            for pattern in filters:
                many.insert(PyBytes_AS_STRING(pattern), <size_t>PyBytes_GET_SIZE(pattern), 0)
        for i in range(self.log.subject_ids):
            s = self.log.subject(i)
            if s == NULL or (self.few and not s.msgs):
                continue
            if many is not None:
                if many.matches(s.name, s.name_len):
                    self.want(i)
                continue
            for pattern in filters:
                if subject_matches(s.name, s.name_len, PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
                    self.want(i)
                    break
        return 0

    cdef int want_all(self, uint32_t* ids, size_t n) except -1:
        cdef size_t k
        for k in range(n):
            if self.log.subjects_table.table[ids[k]].state.msgs:
                self.want(ids[k])
        return 0

    cdef int spread(self) except -1:
        """Change from a list of ids to one byte per subject id. Pages of the array that are never touched use no memory."""
        cdef uint32_t k
        self.few = False
        self.wanted_cap = self.log.subject_ids + self.log.subject_ids // 4 + 64
        self.wanted = <uint8_t*>calloc(self.wanted_cap, 1)
        if self.wanted == NULL:
            self.wanted_cap = 0
            raise MemoryError
        for k in range(self.ids_n):
            self.want(self.ids[k])
        return 0

    cdef bint passes(self, uint32_t subject_id) noexcept:
        cdef uint32_t k
        if not self.filtered:
            return True
        if self.few:
            for k in range(self.ids_n):
                if self.ids[k] == subject_id:
                    return True
            return False
        return subject_id < self.wanted_len and self.wanted[subject_id]

    cdef int want(self, uint32_t subject_id) except -1:
        cdef uint32_t cap = self.wanted_cap
        cdef uint8_t* wanted
        if self.few:
            if self.passes(subject_id):
                return 0
            if self.ids_n < FEW_IDS:
                self.ids[self.ids_n] = subject_id
                self.ids_n += 1
                return 0
            self.spread()
            cap = self.wanted_cap
        if subject_id >= cap:
            cap = max(subject_id + 1, cap * 2, 64)
            wanted = <uint8_t*>realloc(self.wanted, cap)
            if wanted == NULL:
                raise MemoryError
            memset(wanted + self.wanted_cap, 0, cap - self.wanted_cap)
            self.wanted = wanted
            self.wanted_cap = cap
        self.wanted[subject_id] = 1
        if subject_id >= self.wanted_len:
            self.wanted_len = subject_id + 1
        return 0

    cdef int forget(self, uint32_t subject_id) noexcept:
        cdef uint32_t k
        if not self.few:
            if subject_id < self.wanted_len:
                self.wanted[subject_id] = 0
            return 0
        for k in range(self.ids_n):
            if self.ids[k] == subject_id:
                self.ids_n -= 1
                self.ids[k] = self.ids[self.ids_n]
                return 0
        return 0

    cdef int start_with_last(self) except -1:
        cdef uint32_t i
        cdef SubjectState* s
        cdef size_t n = 0
        free(self.starts)
        self.starts_at = self.starts_len = 0
        cdef bint listed = self.filtered and self.few
        cdef uint32_t k, total = self.ids_n if listed else self.log.subject_ids
        self.starts = <uint64_t*>malloc((<size_t>min(<uint64_t>total, <uint64_t>self.log.subject_count) + 1) * sizeof(uint64_t))
        if self.starts == NULL:
            raise MemoryError
        for k in range(total):
            i = self.ids[k] if listed else k
            if listed or self.passes(i):
                s = self.log.subject(i)
                if s != NULL and s.last >= self.next_seq:
                    self.starts[n] = s.last
                    n += 1
        qsort(self.starts, n, sizeof(uint64_t), ascending)
        self.starts_len = n
        self.next_seq = self.log.span.last_seq + 1
        # Without a match the cursor begins at the last message, which it does not want.
        if n:
            self.passed = self.starts[0] - 1
        else:
            self.passed = self.log.span.last_seq - (1 if self.log.msgs else 0)
        self.known = self.caught_up = False
        return 0

    cdef int skip_below(self, uint64_t seq) except -1:
        if self.next_seq < seq:
            self.next_seq = seq
            self.known = False
            self.found = 0                     # caught_up stays: from a later position on there is no wanted message either
        return 0

    cdef int purged_below(self, uint64_t seq) except -1:
        self.skip_below(seq)
        if self.starts_at == self.starts_len and self.passed < seq - 1:
            self.passed = seq - 1
        return 0

    cdef uint64_t peek(self, uint64_t visible) except? 18446744073709551615:
        cdef uint64_t seq
        cdef uint32_t subject_id, size
        while self.starts_at < self.starts_len:
            seq = self.starts[self.starts_at]
            if seq > visible:
                return 0
            if self.log.peek(seq, &subject_id, &size):
                return seq
            self.starts_at += 1
        if self.next_seq < self.log.span.first_seq:
            self.skip_below(self.log.span.first_seq)
        if self.found >= self.next_seq and self.found and self.found <= visible:
            return self.found
        if self.next_seq > visible or self.caught_up:
            if self.filtered and self.next_seq > self.log.span.last_seq:
                self.caught_up = True
            return 0
        seq = self.find(visible)
        if seq == 0 or seq > visible:
            if self.filtered:
                # No message up to `visible` is wanted, so all counted messages lie beyond it.
                if self.known and self.counted < visible:
                    self.counted = visible
                self.next_seq = visible + 1
                self.caught_up = visible == self.log.span.last_seq
            self.found = 0
            return 0
        self.found = seq
        return seq

    cdef uint64_t find(self, uint64_t visible) except? 18446744073709551615:
        cdef int64_t subject_id
        cdef SubjectState* s
        if not self.filtered:
            return self.log.next_live(self.next_seq)
        if self.literal:
            subject_id = self.log.find_subject(PyBytes_AS_STRING(<bytes>self.filters[0]), PyBytes_GET_SIZE(<bytes>self.filters[0]))
            s = self.log.subject(<uint32_t>subject_id) if subject_id >= 0 else NULL
            if s == NULL or s.last < self.next_seq:
                return 0
            if s.first >= self.next_seq:
                return s.first
        if self.few:
            return self.first_of_few()
        return self.log.next_wanted(self.next_seq, visible, self.wanted, self.wanted_len)

    cdef uint64_t first_of_few(self) except? 18446744073709551615:
        """The lowest live sequence >= next_seq of the subjects in `ids`; 0: none."""
        cdef uint64_t best = 0, seq
        cdef uint32_t k
        for k in range(self.ids_n):
            seq = self.log.subjects_table.next_from(self.ids[k], self.next_seq)
            if seq and (best == 0 or seq < best):
                best = seq
        return best

    cdef uint64_t count_from(self, uint64_t seq) except? 18446744073709551615:
        """The number of wanted messages with sequence >= seq."""
        cdef uint64_t total = 0
        cdef uint32_t k
        if not self.few:
            return self.log.wanted_from(seq, self.wanted, self.wanted_len)
        for k in range(self.ids_n):
            total += self.log.subjects_table.live_from(self.ids[k], seq)
        return total

    cdef int took(self, uint64_t seq) except -1:
        cdef bint of_starts = self.starts_at < self.starts_len
        self.pass_over(seq)
        if of_starts and self.starts_at == self.starts_len:
            seq = max(seq, self.next_seq - 1)
        self.passed = seq
        return 0

    cdef int pass_over(self, uint64_t seq) except -1:
        self.found = 0
        if self.starts_at < self.starts_len:
            self.starts_at += 1
            return 0
        if self.known and self.counted >= seq and self.ahead:
            self.ahead -= 1
        self.next_seq = seq + 1
        return 0

    cdef int jump(self, uint64_t seq) except -1:
        if seq < self.next_seq:
            return 0                           # the consumer starts at a sequence that the stream has not reached yet
        self.caught_up = False
        self.next_seq = seq
        self.found = seq
        if self.known:
            self.ahead = 0
            self.counted = seq - 1
        return 0

    cdef uint64_t count_anew(self, uint64_t removals) except? 18446744073709551615:
        self.known = False
        return self.count(removals)

    cdef uint64_t count(self, uint64_t removals) except? 18446744073709551615:
        cdef uint64_t last = self.log.span.last_seq
        if self.next_seq < self.log.span.first_seq:
            self.skip_below(self.log.span.first_seq)
        if not self.known or self.removals != removals or self.counted > last:
            self.ahead = self.count_from(self.next_seq) if self.filtered else self.log.live_from(min(self.next_seq, last + 1))
            self.known = True
            self.removals = removals
        elif self.counted < last:
            if self.filtered:
                self.ahead += self.count_from(max(self.counted + 1, self.next_seq))
            elif self.next_seq > self.counted + 1:
                self.ahead = self.log.live_from(min(self.next_seq, last + 1))   # next_seq was beyond the end at the last count
            else:
                self.ahead += self.log.appended - self.appended
        self.counted = last
        self.appended = self.log.appended
        return self.ahead + (self.starts_len - self.starts_at)

    def remaining_starts(self) -> list:
        """Sequences of a last_per_subject start that are not handed out yet, ascending."""
        cdef size_t i
        return [self.starts[i] for i in range(self.starts_at, self.starts_len)]

    def resume(self, next_seq: int, passed: int, starts: list) -> None:
        """Continue at a stored position."""
        cdef size_t i, n = len(starts)
        free(self.starts)
        self.starts = <uint64_t*>malloc((n + 1) * sizeof(uint64_t))
        if self.starts == NULL:
            self.starts_len = self.starts_at = 0
            raise MemoryError
        for i in range(n):
            self.starts[i] = starts[i]
        self.starts_at = 0
        self.starts_len = n
        self.next_seq = next_seq
        self.passed = passed
        self.known = self.caught_up = False
        self.found = 0
