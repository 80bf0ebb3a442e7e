"""Counting a log from its index when it is opened: messages and bytes of each segment, messages of each subject.

While the log is open, it updates the counts with each message (core/log/log). Knows nothing of files.
"""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.log.index_file cimport LocalSubject
from pelton.core.log.log cimport Log
from pelton.core.log.segment cimport HAS_HEADERS, SIZE_MASK, Segment
from pelton.core.log.subject_table cimport SubjectTable

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*) nogil

cdef enum:
    AHEAD = 16


cdef int merge_rows(SubjectTable subjects, Segment s, const LocalSubject* rows) except -1:
    cdef uint32_t k
    for k in range(s.subject_count):
        if k + AHEAD < s.subject_count:
            prefetch(&subjects.table[s.subjects[k + AHEAD]])
        subjects.counted(s.subjects[k], rows[k].live, s.first + rows[k].first, s.first + rows[k].last)
    return 0


cdef int count_bytes(Log log, Segment s) except -1:
    cdef uint32_t i = s.next_live(0), size
    cdef uint64_t n = 0
    while i < s.count:
        size = s.entries[i].size
        n += (size & SIZE_MASK) + log.size_extra + (log.header_extra if size & HAS_HEADERS else 0)
        i = s.next_live(i + 1)
    s.set_live_bytes(n)
    return 0


cdef int count_entries(Log log, Segment s) except -1:
    cdef uint32_t i
    log.segments.need(s)
    count_bytes(log, s)
    i = s.next_live(0)
    while i < s.count:
        log.subjects_table.counted(s.entries[i].subject, 1, s.first + i, s.first + i)
        i = s.next_live(i + 1)
    return 0


cdef int recount(Log log) except -1:
    # Messages were lost and their subjects are not known any more: computes all counts again from the index.
    cdef Segment s
    log.subjects_table.reset()
    log.subjects_table.stop_tracking()
    for s in list(log.segments.items):
        if s.live:
            count_entries(log, s)
    return log.count_anew()
