"""What is due when: a heap of (due, sequence) without Python objects."""
from libc.stdint cimport uint64_t


cdef struct Item:
    uint64_t due_ns
    uint64_t seq


ctypedef bint (*Stands)(object owner, Item* item) except -1     # whether an item is still valid


cdef class DeadlineHeap:
    cdef Item* items                     # a binary heap: the earliest first; of the same time the lowest sequence
    cdef readonly size_t count
    cdef size_t cap
    cdef int put(self, uint64_t due_ns, uint64_t seq) except -1
    cdef Item pop(self) noexcept         # the earliest; there is one
    cdef void sink(self, size_t at) noexcept
    cdef void order(self) noexcept
    cdef size_t keep_valid(self, Stands stands, object owner) except? 18446744073709551615  # as keep(), with a function in C
