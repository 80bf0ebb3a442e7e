"""Hash maps without Python objects: bytes -> u64, and u64 -> u64.

Open addressing with linear probing, at most three quarters full, and backward-shift deletion: no tombstones, so
a map that lives for weeks with keys coming and going stays as fast as a new one. Tables shrink when they empty.
Knows nothing of what keys and values mean.

A slot of BytesMap is 16 bytes; keys lie in one arena, in units of four bytes:

    slot:   value u64 | tag u32 (bits 1..32 of the hash) | key u32 (unit of the arena; 0 = the slot is empty)
    arena:  unit 0 unused, then per key:  length u32 | bytes | padding to a unit

A slot of U64Map is key u64 | value u64; key 0 marks an empty slot and is kept aside.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from pelton.core.base.buffer cimport hash_bytes

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define pelton_prefetch(p) __builtin_prefetch(p)
    #else
    #define pelton_prefetch(p) ((void)(p))
    #endif
    """
    void prefetch "pelton_prefetch"(const void*) nogil

cdef struct Slot:
    uint64_t value
    uint32_t tag
    uint32_t key

cdef struct Pair:
    uint64_t key
    uint64_t value

cdef enum:
    SLOTS_MIN = 8
    UNIT_BYTES = 4

cdef size_t ARENA_BYTES_MAX = <size_t>UNIT_BYTES * 0xFFFFFFFFu


cdef inline uint32_t tag_of(uint64_t h) noexcept nogil:
    return <uint32_t>(h >> 1)           # bit 0 of a hash is always set


cdef inline size_t key_units(size_t n) noexcept nogil:
    return 1 + (n + UNIT_BYTES - 1) // UNIT_BYTES


cdef inline bint too_full(size_t count, size_t mask) noexcept nogil:
    return count * 4 > (mask + 1) * 3


cdef class BytesMap:
    """bytes -> u64; see the .pxd for the contract of the compiled methods."""

    def __cinit__(self):
        self.slots = calloc(SLOTS_MIN, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError("no room for a map")
        self.mask = SLOTS_MIN - 1
        self.count = 0
        self.arena = NULL
        self.arena_len = UNIT_BYTES
        self.arena_cap = 0
        self.arena_dead = 0

    def __dealloc__(self):
        free(self.slots)
        free(self.arena)

    cdef uint64_t* find(self, const char* key, size_t n, uint64_t h) noexcept:
        cdef Slot* slots = <Slot*>self.slots
        cdef uint32_t tag = tag_of(h)
        cdef size_t i = tag & self.mask
        cdef const char* held
        while slots[i].key != 0:
            if slots[i].tag == tag:
                held = self.arena + <size_t>slots[i].key * UNIT_BYTES
                if (<const uint32_t*>held)[0] == n and memcmp(held + 4, key, n) == 0:
                    return &slots[i].value
            i = (i + 1) & self.mask
        return NULL

    cdef void look(self, uint64_t h) noexcept:
        prefetch(<Slot*>self.slots + (tag_of(h) & self.mask))

    cdef uint64_t look_closer(self, uint64_t h) noexcept:
        cdef Slot* slot = <Slot*>self.slots + (tag_of(h) & self.mask)
        if slot.key == 0 or slot.tag != tag_of(h):
            return 0
        prefetch(self.arena + <size_t>slot.key * UNIT_BYTES)
        return slot.value

    cdef uint64_t* put(self, const char* key, size_t n, uint64_t h, uint64_t value) except NULL:
        cdef uint64_t* found = self.find(key, n, h)
        cdef Slot* slots
        cdef size_t i
        if found != NULL:
            found[0] = value
            return found
        self.room_for_key(n)
        if too_full(self.count + 1, self.mask):
            self.resize((self.mask + 1) * 2)
        slots = <Slot*>self.slots
        i = tag_of(h) & self.mask
        while slots[i].key != 0:
            i = (i + 1) & self.mask
        slots[i].value = value
        slots[i].tag = tag_of(h)
        slots[i].key = <uint32_t>(self.arena_len // UNIT_BYTES)
        (<uint32_t*>(self.arena + self.arena_len))[0] = <uint32_t>n
        memcpy(self.arena + self.arena_len + 4, key, n)
        self.arena_len += key_units(n) * UNIT_BYTES
        self.count += 1
        return &slots[i].value

    cdef bint remove(self, const char* key, size_t n, uint64_t h) noexcept:
        cdef uint64_t* found = self.find(key, n, h)
        cdef Slot* slots = <Slot*>self.slots
        cdef size_t hole, i, home
        if found == NULL:
            return False
        hole = <size_t>(<Slot*>found - slots)      # the value is the first field of its slot
        self.arena_dead += key_units(n) * UNIT_BYTES
        self.count -= 1
        i = (hole + 1) & self.mask
        while slots[i].key != 0:
            home = slots[i].tag & self.mask
            # A slot may move back into the hole unless its home lies behind the hole (in ring order).
            if ((i - home) & self.mask) >= ((i - hole) & self.mask):
                slots[hole] = slots[i]
                hole = i
            i = (i + 1) & self.mask
        slots[hole].key = 0
        if self.mask >= SLOTS_MIN and self.count * 8 < self.mask:
            try:
                self.resize((self.mask + 1) // 2)
                self.compact(self.arena_len - self.arena_dead + UNIT_BYTES)
            except MemoryError:
                pass                                # a table that stays too large is still right
        return True

    cdef void clear(self) noexcept:
        cdef void* slots = calloc(SLOTS_MIN, sizeof(Slot))
        cdef size_t i
        if slots != NULL:
            free(self.slots)
            self.slots = slots
            self.mask = SLOTS_MIN - 1
        else:
            for i in range(self.mask + 1):
                (<Slot*>self.slots)[i].key = 0
        free(self.arena)
        self.arena = NULL
        self.arena_len = UNIT_BYTES
        self.arena_cap = 0
        self.arena_dead = 0
        self.count = 0

    cdef bint next(self, size_t* at, const char** key, size_t* n, uint64_t* value) noexcept:
        cdef Slot* slots = <Slot*>self.slots
        cdef const char* held
        while at[0] <= self.mask:
            if slots[at[0]].key != 0:
                held = self.arena + <size_t>slots[at[0]].key * UNIT_BYTES
                key[0] = held + 4
                n[0] = (<const uint32_t*>held)[0]
                value[0] = slots[at[0]].value
                at[0] += 1
                return True
            at[0] += 1
        return False

    cdef int resize(self, size_t size) except -1:
        # A table of `size` slots (a power of two) with the same content; the arena stays as it is.
        cdef Slot* old = <Slot*>self.slots
        cdef Slot* new = <Slot*>calloc(size, sizeof(Slot))
        cdef size_t mask = size - 1
        cdef size_t i, at
        if new == NULL:
            raise MemoryError(f"no room for a map of {size} slots")
        for i in range(self.mask + 1):
            if old[i].key != 0:
                at = old[i].tag & mask
                while new[at].key != 0:
                    at = (at + 1) & mask
                new[at] = old[i]
        free(old)
        self.slots = new
        self.mask = mask
        return 0

    cdef int room_for_key(self, size_t n) except -1:
        # Makes room in the arena for one more key of n bytes: by growing, or by leaving removed keys behind.
        cdef size_t wanted, cap
        cdef char* arena
        if n > ARENA_BYTES_MAX // 2:
            raise MemoryError("a key too long for a map")
        wanted = key_units(n) * UNIT_BYTES
        if self.arena_len + wanted <= self.arena_cap:
            return 0
        wanted += self.arena_len - self.arena_dead
        if wanted > ARENA_BYTES_MAX:
            raise MemoryError("the keys of a map exceed 16 GiB")
        cap = wanted + wanted // 2
        if cap < 64:
            cap = 64
        if self.arena_dead * 2 > self.arena_len:
            return self.compact(cap)
        cap = wanted + self.arena_dead + wanted // 2
        arena = <char*>realloc(self.arena, cap)
        if arena == NULL:
            raise MemoryError(f"no room for {cap} bytes of keys")
        self.arena = arena
        self.arena_cap = cap
        return 0

    cdef int compact(self, size_t cap) except -1:
        # A new arena of cap bytes (enough for every key there is) without the removed keys.
        cdef Slot* slots = <Slot*>self.slots
        cdef size_t to = UNIT_BYTES
        cdef size_t i
        cdef uint32_t n
        cdef char* held
        cdef char* arena = <char*>malloc(cap)
        if arena == NULL:
            raise MemoryError(f"no room for {cap} bytes of keys")
        for i in range(self.mask + 1):
            if slots[i].key != 0:
                held = self.arena + <size_t>slots[i].key * UNIT_BYTES
                n = (<uint32_t*>held)[0]
                memcpy(arena + to, held, 4 + n)
                slots[i].key = <uint32_t>(to // UNIT_BYTES)
                to += key_units(n) * UNIT_BYTES
        free(self.arena)
        self.arena = arena
        self.arena_cap = cap
        self.arena_len = to
        self.arena_dead = 0
        return 0

    def __len__(self) -> int:
        return self.count

    @property
    def bytes_held(self) -> int:
        """Bytes of memory for slots and keys."""
        return (self.mask + 1) * sizeof(Slot) + self.arena_cap

    def get(self, key: bytes) -> int | None:
        """The value of key, or None."""
        cdef const char* p = PyBytes_AS_STRING(key)
        cdef size_t n = <size_t>PyBytes_GET_SIZE(key)
        cdef uint64_t* found = self.find(p, n, hash_bytes(p, n))
        return None if found == NULL else found[0]

    def set(self, key: bytes, value: int) -> None:
        """Insert or overwrite; OverflowError outside 0 to 2**64 - 1."""
        cdef const char* p = PyBytes_AS_STRING(key)
        cdef size_t n = <size_t>PyBytes_GET_SIZE(key)
        self.put(p, n, hash_bytes(p, n), value)

    def delete(self, key: bytes) -> bool:
        """Remove key; whether it was there."""
        cdef const char* p = PyBytes_AS_STRING(key)
        cdef size_t n = <size_t>PyBytes_GET_SIZE(key)
        return self.remove(p, n, hash_bytes(p, n))

    def empty(self) -> None:
        """Remove every key and give the memory back."""
        self.clear()

    def items(self) -> list:
        """The (key, value) pairs, in no order."""
        cdef size_t at = 0, n = 0
        cdef const char* key = NULL
        cdef uint64_t value = 0
        found = []
        while self.next(&at, &key, &n, &value):
            found.append((PyBytes_FromStringAndSize(key, <Py_ssize_t>n), value))
        return found


cdef inline size_t home_of(uint64_t key, size_t mask) noexcept nogil:
    # Sequences and ids are dense: a multiplication spreads their low bits, the high half is used.
    return <size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask


cdef class U64Map:
    """u64 -> u64; see the .pxd for the contract of the compiled methods."""

    def __cinit__(self):
        self.slots = calloc(SLOTS_MIN, sizeof(Pair))
        if self.slots == NULL:
            raise MemoryError("no room for a map")
        self.mask = SLOTS_MIN - 1
        self.count = 0
        self.has_zero = False

    def __dealloc__(self):
        free(self.slots)

    cdef uint64_t* find(self, uint64_t key) noexcept:
        cdef Pair* slots = <Pair*>self.slots
        cdef size_t i
        if key == 0:
            return &self.zero_value if self.has_zero else NULL
        i = home_of(key, self.mask)
        while slots[i].key != 0:
            if slots[i].key == key:
                return &slots[i].value
            i = (i + 1) & self.mask
        return NULL

    cdef uint64_t* put(self, uint64_t key, uint64_t value) except NULL:
        cdef uint64_t* found = self.find(key)
        cdef Pair* slots
        cdef size_t i
        if found != NULL:
            found[0] = value
            return found
        if key == 0:
            self.has_zero = True
            self.zero_value = value
            self.count += 1
            return &self.zero_value
        if too_full(self.count + 1, self.mask):
            self.resize((self.mask + 1) * 2)
        slots = <Pair*>self.slots
        i = home_of(key, self.mask)
        while slots[i].key != 0:
            i = (i + 1) & self.mask
        slots[i].key = key
        slots[i].value = value
        self.count += 1
        return &slots[i].value

    cdef bint remove(self, uint64_t key) noexcept:
        cdef uint64_t* found = self.find(key)
        cdef Pair* slots = <Pair*>self.slots
        cdef size_t hole, i, home
        if found == NULL:
            return False
        self.count -= 1
        if key == 0:
            self.has_zero = False
            return True
        hole = (<size_t>found - <size_t>slots) // sizeof(Pair)
        i = (hole + 1) & self.mask
        while slots[i].key != 0:
            home = home_of(slots[i].key, self.mask)
            if ((i - home) & self.mask) >= ((i - hole) & self.mask):
                slots[hole] = slots[i]
                hole = i
            i = (i + 1) & self.mask
        slots[hole].key = 0
        if self.mask >= SLOTS_MIN and self.count * 8 < self.mask:
            try:
                self.resize((self.mask + 1) // 2)
            except MemoryError:
                pass                                # a table that stays too large is still right
        return True

    cdef void clear(self) noexcept:
        cdef void* slots = calloc(SLOTS_MIN, sizeof(Pair))
        cdef size_t i
        if slots != NULL:
            free(self.slots)
            self.slots = slots
            self.mask = SLOTS_MIN - 1
        else:
            for i in range(self.mask + 1):
                (<Pair*>self.slots)[i].key = 0
        self.has_zero = False
        self.count = 0

    cdef bint next(self, size_t* at, uint64_t* key, uint64_t* value) noexcept:
        # Position 0 is key 0; position i + 1 is slot i.
        cdef Pair* slots = <Pair*>self.slots
        cdef size_t i
        while at[0] <= self.mask + 1:
            i = at[0]
            at[0] += 1
            if i == 0:
                if self.has_zero:
                    key[0] = 0
                    value[0] = self.zero_value
                    return True
            elif slots[i - 1].key != 0:
                key[0] = slots[i - 1].key
                value[0] = slots[i - 1].value
                return True
        return False

    cdef int resize(self, size_t size) except -1:
        cdef Pair* old = <Pair*>self.slots
        cdef Pair* new = <Pair*>calloc(size, sizeof(Pair))
        cdef size_t mask = size - 1
        cdef size_t i, at
        if new == NULL:
            raise MemoryError(f"no room for a map of {size} slots")
        for i in range(self.mask + 1):
            if old[i].key != 0:
                at = home_of(old[i].key, mask)
                while new[at].key != 0:
                    at = (at + 1) & mask
                new[at] = old[i]
        free(old)
        self.slots = new
        self.mask = mask
        return 0

    def __len__(self) -> int:
        return self.count

    @property
    def bytes_held(self) -> int:
        """Bytes of memory for slots."""
        return (self.mask + 1) * sizeof(Pair)

    def get(self, key: int) -> int | None:
        """The value of key, or None."""
        cdef uint64_t* found = self.find(key)
        return None if found == NULL else found[0]

    def set(self, key: int, value: int) -> None:
        """Insert or overwrite; OverflowError outside 0 to 2**64 - 1."""
        self.put(key, value)

    def delete(self, key: int) -> bool:
        """Remove key; whether it was there."""
        return self.remove(key)

    def empty(self) -> None:
        """Remove every key and give the memory back."""
        self.clear()

    def items(self) -> list:
        """The (key, value) pairs, in no order."""
        cdef size_t at = 0
        cdef uint64_t key = 0, value = 0
        found = []
        while self.next(&at, &key, &value):
            found.append((key, value))
        return found
