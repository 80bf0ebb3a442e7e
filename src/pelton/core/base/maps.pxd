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
    cdef char* arena                # the keys, each behind its length
    cdef size_t arena_len           # used up to here, in bytes
    cdef size_t arena_cap
    cdef size_t arena_dead          # bytes of keys that were removed
    # find: the address of the value of the key, or NULL; valid until the next put/remove. `h` is hash_bytes(key).
    cdef uint64_t* find(self, const char* key, size_t n, uint64_t h) noexcept
    # Of a key that will be looked for soon: first the one, and some time later the other, to have the memory at hand by then.
    # look_closer gives the value that it will probably be, or 0.
    cdef void look(self, uint64_t h) noexcept
    cdef uint64_t look_closer(self, uint64_t h) noexcept
    # put: insert or overwrite; returns the address of the value slot (valid until the next put/remove).
    cdef uint64_t* put(self, const char* key, size_t n, uint64_t h, uint64_t value) except NULL
    cdef bint remove(self, const char* key, size_t n, uint64_t h) noexcept
    cdef void clear(self) noexcept
    # iteration in no order: start with *at = 0; False at the end. key is valid until the next put/remove.
    cdef bint next(self, size_t* at, const char** key, size_t* n, uint64_t* value) noexcept
    cdef int resize(self, size_t size) except -1
    cdef int room_for_key(self, size_t n) except -1
    cdef int compact(self, size_t cap) except -1


cdef class U64Map:
    """u64 -> u64."""
    cdef void* slots
    cdef size_t mask
    cdef readonly size_t count
    cdef uint64_t zero_value        # of key 0, which marks an empty slot and so has no slot of its own
    cdef bint has_zero
    cdef uint64_t* find(self, uint64_t key) noexcept
    cdef uint64_t* put(self, uint64_t key, uint64_t value) except NULL
    cdef bint remove(self, uint64_t key) noexcept
    cdef void clear(self) noexcept
    # iteration in no order: start with *at = 0; False at the end
    cdef bint next(self, size_t* at, uint64_t* key, uint64_t* value) noexcept
    cdef int resize(self, size_t size) except -1
