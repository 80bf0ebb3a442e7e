"""Recent message ids -> the sequences of their messages; forgotten in the order of arrival."""
cimport cython
from libc.stdint cimport uint32_t, uint64_t


cdef struct Entry:
    # Followed by the id's n bytes; see the module head.
    uint64_t ts_ns
    uint64_t seq
    uint32_t hash
    uint32_t n


@cython.final
cdef class MessageIds:
    cdef char* data                    # the entries, oldest first: data[off:len]
    cdef size_t off, len, cap
    cdef uint64_t base                 # position of data[0] since the beginning of time
    cdef uint64_t* table               # slots: 16 bits of the hash, 48 bits of position + 1; 0 = free
    cdef size_t mask
    cdef readonly size_t count
    cdef readonly uint64_t newest_ns   # when the last id came
    cdef uint64_t find(self, const char* key, uint32_t n) noexcept             # the id's sequence, 0 when it is not known
    cdef int add(self, const char* key, uint32_t n, uint64_t seq, uint64_t ts_ns) except -1     # the key must not be known
    cdef int forget_until(self, uint64_t ts_ns) noexcept                       # forget the ids that came at or before this time
    cdef int forget_from(self, uint64_t seq) noexcept                          # forget the ids of messages stored at or after that sequence
    cdef uint64_t oldest_ns(self) noexcept                                     # 0 when empty
    cdef size_t slot_of(self, const char* key, uint32_t n, uint64_t h) noexcept
    cdef Entry* entry(self, uint64_t slot) noexcept
    cdef void drop(self, Entry* e) noexcept
    cdef void unlink(self, size_t at) noexcept
    cdef int resize(self, size_t slots) except -1
    cdef int room(self, size_t n) except -1
