"""Hash maps without Python objects: bytes -> u64, and u64 -> u64.

Open addressing, backward-shift deletion (no tombstones), keys of BytesMap copied into the map's own arena.
Used where a dict would make a Python object per message: subjects of a stream, message ids, cached routes.
"""
from libc.stdint cimport uint32_t, uint64_t


cdef class BytesMap:
    """bytes -> u64. A value is whatever the owner means by it (an id, a sequence, a pointer it keeps alive itself)."""
    cdef void* slots
    cdef size_t mask
    cdef readonly size_t count
    # find: the address of the value of the key, or NULL; valid until the next put/remove. `h` is hash_bytes(key).
    cdef uint64_t* find(self, const char* key, size_t n, uint64_t h) noexcept
    # put: insert or overwrite; returns the address of the value slot (valid until the next put/remove).
    cdef uint64_t* put(self, const char* key, size_t n, uint64_t h, uint64_t value) except NULL
    cdef bint remove(self, const char* key, size_t n, uint64_t h) noexcept
    cdef void clear(self) noexcept
    # iteration in no order: start with *at = 0; False at the end. key is valid until the next put/remove.
    cdef bint next(self, size_t* at, const char** key, size_t* n, uint64_t* value) noexcept


cdef class U64Map:
    """u64 -> u64."""
    cdef void* slots
    cdef size_t mask
    cdef readonly size_t count
    cdef uint64_t* find(self, uint64_t key) noexcept
    cdef uint64_t* put(self, uint64_t key, uint64_t value) except NULL
    cdef bint remove(self, uint64_t key) noexcept
