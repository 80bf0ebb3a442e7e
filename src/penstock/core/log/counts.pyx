"""Counts of a log that are made from its index: messages and bytes of a segment, messages of each subject.

While a log is open they are kept up to date message by message (core/log/log); here is how they begin. Knows nothing of files.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.base.quota cimport use
from penstock.core.log.index_file cimport LocalSubject
from penstock.core.log.log cimport Log
from penstock.core.log.segment cimport HAS_HEADERS, SIZE_MASK, Segment
from penstock.core.log.subject_table cimport Subject, SubjectTable

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*) nogil

cdef enum:
    AHEAD = 16


cdef int merge(SubjectTable subjects, uint32_t id, uint32_t live, uint64_t first, uint64_t last) except -1:
    cdef Subject* t = &subjects.table[id]
    if live == 0:
        return 0
    if t.state.msgs == 0:
        t.state.first = first
        subjects.live += 1
    t.state.last = last
    t.state.msgs += live
    subjects.total += live
    return 0


cdef int merge_rows(SubjectTable subjects, Segment s, const LocalSubject* rows) except -1:
    cdef uint32_t k
    for k in range(s.subject_count):
        if k + AHEAD < s.subject_count:
            prefetch(&subjects.table[s.subjects[k + AHEAD]])
        merge(subjects, s.subjects[k], rows[k].live, s.first + rows[k].first, s.first + rows[k].last)
    return 0


cdef int count_bytes(Log log, Segment s) except -1:
    cdef uint32_t i = s.next_live(0), size
    s.live_bytes = 0
    while i < s.count:
        size = s.entries[i].size
        s.live_bytes += (size & SIZE_MASK) + log.size_extra + (log.header_extra if size & HAS_HEADERS else 0)
        i = s.next_live(i + 1)
    return 0


cdef int count_entries(Log log, Segment s) except -1:
    cdef uint32_t i
    log.segments.need(s)
    count_bytes(log, s)
    i = s.next_live(0)
    while i < s.count:
        merge(log.subjects_table, s.entries[i].subject, 1, s.first + i, s.first + i)
        i = s.next_live(i + 1)
    return 0


cdef int recount(Log log) except -1:
    # Damage took messages whose subjects are not known any more: all counts are made again from the index.
    cdef Segment s
    cdef uint64_t before = log.msgs
    cdef int64_t bytes_before = <int64_t>log.bytes
    log.subjects_table.reset()
    log.subjects_table.tracking = False
    log.msgs = 0
    log.bytes = 0
    for s in list(log.segments.items):
        if s.live:
            count_entries(log, s)
        log.msgs += s.live
        log.bytes += s.live_bytes
    use(log.usage, <int64_t>log.bytes - bytes_before)
    log.removed += before - log.msgs
    log.subject_count = log.subjects_table.live
    log.first_seq = log.segments.next_live(log.first_seq) if log.msgs else log.last_seq + 1
    return 0
