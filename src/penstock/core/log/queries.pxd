"""What the control plane asks of a record log: by pattern, by subject, holes. Answered from the index, not from the files."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.log.log cimport Log
from penstock.core.log.subject_table cimport Subject


cdef class Wanted:
    cdef Log log
    cdef Out ids                 # uint32s
    cdef size_t n
    cdef bytes flags             # a byte per id, made when the segments have to be searched
    cdef bytes some_flags        # the same of some of them, for one search
    cdef bint every              # the pattern matches everything: ids are not listed
    cdef uint32_t id(self, size_t k) noexcept
    cdef Subject* subject(self, size_t k) noexcept
    cdef const uint8_t* at(self) except NULL
    cdef uint32_t count(self) noexcept               # ids of the log
    cdef uint64_t messages(self) noexcept


# The subjects of a pattern; `listed`: their ids are wanted of the pattern `>` too.
cdef Wanted wanted_of(Log log, str pattern, bint listed)
# The lowest live sequence >= seq of a wanted subject; 0: none. `walk`: the same for one who goes on from message to message.
cdef uint64_t next_wanted(Wanted w, uint64_t seq) except? 18446744073709551615
cdef uint64_t walk(Wanted w, uint64_t seq) except? 18446744073709551615
# Live messages with that sequence or a higher one.
cdef uint64_t wanted_from(Wanted w, uint64_t seq) except? 18446744073709551615
