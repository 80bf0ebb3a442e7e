"""Queries of the control plane about a log: by pattern, by subject, holes. The index answers them, not the files."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.log.log cimport Log
from pelton.core.log.subject_index cimport SubjectIndex
from pelton.core.log.subject_table cimport Subject, SubjectTable


cdef class Wanted:
    cdef Log log
    cdef Out ids                 # uint32s
    cdef size_t n
    cdef bytes flags             # a byte per id, made for the first search in the segments
    cdef bytes some_flags        # the same for some of the ids, for one search
    cdef bint every              # the pattern matches everything: ids are not listed
    cdef uint32_t id(self, size_t k) noexcept
    cdef Subject* subject(self, size_t k) noexcept
    cdef const uint8_t* at(self) except NULL
    cdef uint32_t count(self) noexcept               # number of ids
    cdef uint64_t messages(self) noexcept


cdef struct Run:
    size_t at, end               # a range of ids, sorted by name


cdef class SubjectsPage:
    cdef Wanted w
    cdef SubjectIndex index
    cdef SubjectTable table
    cdef uint32_t count          # of the table's ids at the start
    cdef Out runs, heap          # Runs; their numbers, the run with the lowest name first
    cdef size_t sorted           # ids that are in runs
    cdef size_t before, left     # subjects before the page, and on it, that were not taken
    cdef readonly size_t total   # subjects that match
    cdef bint sound(self) noexcept
    cdef int pile(self) except -1
    cdef uint32_t pop(self) noexcept
    cdef void sink(self, size_t at) noexcept
    cdef bint lower(self, uint32_t one, uint32_t other) noexcept


# The subjects that match a pattern. `listed`: list the ids also for the pattern `>`.
cdef Wanted wanted_of(Log log, str pattern, bint listed)
# The lowest live sequence >= seq of a wanted subject; 0: none. `walk` is for a caller that goes on from message to message.
cdef uint64_t next_wanted(Wanted w, uint64_t seq) except? 18446744073709551615
cdef uint64_t walk(Wanted w, uint64_t seq) except? 18446744073709551615
# The number of live messages of the wanted subjects with sequence >= seq.
cdef uint64_t wanted_from(Wanted w, uint64_t seq) except? 18446744073709551615
