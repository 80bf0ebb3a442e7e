"""Recent message ids -> the sequences of their messages; forgotten in the order of arrival.

The entries follow each other in one buffer, oldest first, and a table of 8-byte slots finds them by hash. An entry:

    +0   u64   time of arrival, ns
    +8   u64   sequence
    +16  u32   bits 8 to 39 of the id's hash, u32 its length
    +24        the id, padded to 8 bytes

So an id costs its length + 24 bytes + one slot at a load of 1/3 to 2/3. Knows nothing of the duplicate window: the owner expires ids.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove
from pelton.core.base.buffer cimport hash_bytes

cdef enum:
    FIRST_SLOTS = 64
    FIRST_BYTES = 4096
    POSITION_BITS = 48


cdef inline uint32_t spread(uint64_t h) noexcept nogil:
    return <uint32_t>(h >> 8)              # the lowest bit of a hash is always set


cdef inline size_t entry_bytes(uint32_t n) noexcept nogil:
    return (sizeof(Entry) + n + 7) & ~<size_t>7


@cython.final
cdef class MessageIds:
    """In Python it is a mapping with times, which tests use."""

    def __dealloc__(self):
        free(self.data)
        free(self.table)

    cdef Entry* entry(self, uint64_t slot) noexcept:
        return <Entry*>(self.data + ((slot & ((<uint64_t>1 << POSITION_BITS) - 1)) - 1 - self.base))

    cdef size_t slot_of(self, const char* key, uint32_t n, uint64_t h) noexcept:
        """The slot that holds the key, or the free one where it would go."""
        cdef size_t i = spread(h) & self.mask
        cdef uint64_t tag = h >> POSITION_BITS, slot
        cdef Entry* e
        while True:
            slot = self.table[i]
            if slot == 0:
                return i
            if slot >> POSITION_BITS == tag:
                e = self.entry(slot)
                if e.n == n and memcmp(<char*>e + sizeof(Entry), key, n) == 0:
                    return i
            i = (i + 1) & self.mask

    cdef uint64_t find(self, const char* key, uint32_t n) noexcept:
        cdef size_t i
        if self.count == 0:
            return 0
        i = self.slot_of(key, n, hash_bytes(key, n))
        return self.entry(self.table[i]).seq if self.table[i] else 0

    cdef int add(self, const char* key, uint32_t n, uint64_t seq, uint64_t ts_ns) except -1:
        cdef uint64_t h = hash_bytes(key, n), position
        cdef size_t size = entry_bytes(n)
        cdef Entry* e
        if self.table == NULL or (self.count + 1) * 3 > (self.mask + 1) * 2:
            self.resize((self.mask + 1) * 2 if self.table != NULL else FIRST_SLOTS)
        self.room(size)
        e = <Entry*>(self.data + self.len)
        e.ts_ns = ts_ns
        e.seq = seq
        e.hash = spread(h)
        e.n = n
        memcpy(<char*>e + sizeof(Entry), key, n)
        position = self.base + self.len + 1
        self.len += size
        self.table[self.slot_of(key, n, h)] = ((h >> POSITION_BITS) << POSITION_BITS) | position
        self.count += 1
        self.newest_ns = ts_ns
        return 0

    cdef int room(self, size_t n) except -1:
        """Make room for n bytes at the end: move the entries to the front when half of the buffer is free there, else grow."""
        cdef size_t cap = self.cap if self.cap else FIRST_BYTES
        cdef char* data
        if self.len + n <= self.cap:
            return 0
        if self.off > self.cap // 2:
            memmove(self.data, self.data + self.off, self.len - self.off)
            self.base += self.off
            self.len -= self.off
            self.off = 0
        while self.len + n > cap:
            cap *= 2
        if cap != self.cap:
            data = <char*>realloc(self.data, cap)
            if data == NULL:
                raise MemoryError
            self.data = data
            self.cap = cap
        return 0

    cdef int resize(self, size_t slots) except -1:
        cdef uint64_t* old = self.table
        cdef size_t n = self.mask + 1 if old != NULL else 0, i, j
        cdef uint64_t* table = <uint64_t*>calloc(slots, sizeof(uint64_t))
        if table == NULL:
            raise MemoryError
        for i in range(n):
            if old[i]:
                j = self.entry(old[i]).hash & (slots - 1)
                while table[j]:
                    j = (j + 1) & (slots - 1)
                table[j] = old[i]
        self.table = table
        self.mask = slots - 1
        free(old)
        return 0

    cdef void unlink(self, size_t at) noexcept:
        """Free a slot and close the gap, so that a search from a key's hash still finds it."""
        cdef size_t j = at, home
        while True:
            j = (j + 1) & self.mask
            if self.table[j] == 0:
                break
            home = self.entry(self.table[j]).hash & self.mask
            if ((j - home) & self.mask) >= ((j - at) & self.mask):
                self.table[at] = self.table[j]
                at = j
        self.table[at] = 0
        self.count -= 1

    cdef void drop(self, Entry* e) noexcept:
        cdef uint64_t position = <uint64_t>(<char*>e - self.data) + self.base + 1
        cdef size_t i = e.hash & self.mask
        while self.table[i] & ((<uint64_t>1 << POSITION_BITS) - 1) != position:
            i = (i + 1) & self.mask
        self.unlink(i)

    cdef int forget_until(self, uint64_t ts_ns) noexcept:
        cdef Entry* e
        cdef int n = 0
        while self.off < self.len:
            e = <Entry*>(self.data + self.off)
            if e.ts_ns > ts_ns:
                break
            self.drop(e)
            self.off += entry_bytes(e.n)
            n += 1
        if self.off == self.len:
            self.base += self.off
            self.off = self.len = 0
        return n

    cdef int forget_from(self, uint64_t seq) noexcept:
        # Sequences ascend from the front to the back: the entries to forget are the end of the buffer.
        cdef size_t at = self.off, cut = self.len
        cdef Entry* e
        cdef int n = 0
        while at < self.len:
            e = <Entry*>(self.data + at)
            if e.seq >= seq:
                if cut == self.len:
                    cut = at
                self.drop(e)
                n += 1
            at += entry_bytes(e.n)
        if n:
            self.len = cut
        return n

    cdef uint64_t oldest_ns(self) noexcept:
        return (<Entry*>(self.data + self.off)).ts_ns if self.off < self.len else 0

    def get(self, bytes key) -> int:
        """The sequence of an id, 0 when it is not known."""
        return self.find(PyBytes_AS_STRING(key), <uint32_t>PyBytes_GET_SIZE(key))

    def put(self, bytes key, seq: int, ts_ns: int) -> None:
        """Add an id that is not known. Raises ValueError when it is known, or when the time or the sequence goes back."""
        if self.get(key) or ts_ns < self.newest_ns:
            raise ValueError("the message id is known, or older than the newest one")
        self.add(PyBytes_AS_STRING(key), <uint32_t>PyBytes_GET_SIZE(key), seq, ts_ns)

    def expire(self, until_ns: int) -> int:
        """Forget the ids that came at or before this time; returns how many."""
        return self.forget_until(until_ns)

    def take_back(self, seq: int) -> int:
        """Forget the ids of messages stored at or after a sequence; returns how many."""
        return self.forget_from(seq)

    def memory_bytes(self) -> int:
        """Bytes held for entries and table."""
        return self.cap + (self.mask + 1) * sizeof(uint64_t) if self.table != NULL else self.cap
