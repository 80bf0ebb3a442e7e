"""Deadlines: a heap of (due, sequence) without Python objects, 16 to 24 bytes per item.

An item cannot be removed by itself: the owner checks whether a due item is still valid, and calls `keep` now and then to drop
invalid ones. Knows nothing of messages. The bytes of a dump (for a file that may be deleted at any time), little-endian:

    +0   8 bytes  PSAGENDA
    +8   u64      `upto`: the dump has no sequence above it
    +16  u64      `note`, the owner's
    +24  u64      number of items
    +32           due_ns u64, seq u64 for each item
    ...  u32      CRC-32C of all bytes before
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy
from pelton.core.base.buffer cimport crc32c

cdef enum:
    HEAD_BYTES = 32
    SMALLEST = 64


cdef inline bint before(Item* a, Item* b) noexcept:
    return a.due_ns < b.due_ns or (a.due_ns == b.due_ns and a.seq < b.seq)


cdef class DeadlineHeap:
    """Sequences by the time at which they are due."""

    def __dealloc__(self) -> None:
        free(self.items)

    cdef int put(self, uint64_t due_ns, uint64_t seq) except -1:
        cdef size_t at, parent, cap
        cdef void* grown
        cdef Item item
        if self.count == self.cap:
            cap = max(SMALLEST, self.cap + (self.cap >> 1))
            grown = realloc(self.items, cap * sizeof(Item))
            if grown == NULL:
                raise MemoryError
            self.items = <Item*>grown
            self.cap = cap
        item.due_ns = due_ns
        item.seq = seq
        at = self.count
        self.count += 1
        while at:
            parent = (at - 1) >> 1
            if not before(&item, &self.items[parent]):
                break
            self.items[at] = self.items[parent]
            at = parent
        self.items[at] = item
        return 0

    cdef Item pop(self) noexcept:
        cdef Item first = self.items[0]
        self.count -= 1
        if self.count:
            self.items[0] = self.items[self.count]
            self.sink(0)
        return first

    cdef void sink(self, size_t at) noexcept:
        cdef Item item = self.items[at]
        cdef size_t child = 2 * at + 1
        while child < self.count:
            if child + 1 < self.count and before(&self.items[child + 1], &self.items[child]):
                child += 1
            if not before(&self.items[child], &item):
                break
            self.items[at] = self.items[child]
            at = child
            child = 2 * at + 1
        self.items[at] = item

    cdef void order(self) noexcept:
        cdef size_t at = self.count >> 1
        while at:
            at -= 1
            self.sink(at)

    cdef size_t keep_valid(self, Stands stands, object owner) except? 18446744073709551615:
        cdef size_t i, n = 0, before_count = self.count
        for i in range(before_count):
            if stands(owner, &self.items[i]):
                self.items[n] = self.items[i]
                n += 1
        self.count = n
        self.order()
        return before_count - n

    def __len__(self) -> int:
        return self.count

    def add(self, due_ns: int, seq: int) -> None:
        """Add an item."""
        self.put(due_ns, seq)

    def next_ns(self) -> int:
        """The earliest deadline; 0 without items."""
        return self.items[0].due_ns if self.count else 0

    def take(self, now_ns: int, limit: int) -> list[int]:
        """Remove and return the sequences that are due, at most `limit`, the earliest first."""
        cdef uint64_t now = now_ns
        cdef size_t n = limit
        cdef list due = []
        while n and self.count and self.items[0].due_ns <= now:
            due.append(self.pop().seq)
            n -= 1
        return due

    def keep(self, stands: object) -> int:
        """Drop the items for which stands(due_ns, seq) is false; return how many."""
        cdef size_t i, n = 0
        cdef size_t before_count = self.count
        for i in range(self.count):
            if stands(self.items[i].due_ns, self.items[i].seq):
                self.items[n] = self.items[i]
                n += 1
        self.count = n
        self.order()
        return before_count - n

    def dump(self, upto: int, note: int = 0) -> bytes:
        """The heap as bytes, without items above the sequence `upto`."""
        cdef uint64_t top = upto
        cdef uint64_t words[3]
        cdef size_t i, n = 0
        cdef bytes data
        cdef char* p
        cdef uint32_t check
        for i in range(self.count):
            n += self.items[i].seq <= top
        data = PyBytes_FromStringAndSize(NULL, HEAD_BYTES + n * sizeof(Item) + 4)
        p = PyBytes_AS_STRING(data)
        words[0] = top
        words[1] = note
        words[2] = n
        memcpy(p, b"PSAGENDA", 8)
        memcpy(p + 8, words, 24)
        p += HEAD_BYTES
        for i in range(self.count):
            if self.items[i].seq <= top:
                memcpy(p, &self.items[i], sizeof(Item))
                p += sizeof(Item)
        check = crc32c(PyBytes_AS_STRING(data), p - PyBytes_AS_STRING(data), 0)
        memcpy(p, &check, 4)
        return data

    def load(self, bytes data) -> tuple[int, int]:
        """Add the items of a dump; return its (upto, note). ValueError when it is damaged or not a dump."""
        cdef const char* p = PyBytes_AS_STRING(data)
        cdef size_t n = PyBytes_GET_SIZE(data), count, cap
        cdef uint64_t words[3]
        cdef uint32_t check
        cdef void* grown
        if n < HEAD_BYTES + 4 or memcmp(p, b"PSAGENDA", 8) != 0:
            raise ValueError("not a dump of deadlines")
        memcpy(words, p + 8, 24)
        memcpy(&check, p + n - 4, 4)
        count = (n - HEAD_BYTES - 4) // sizeof(Item)
        if words[2] != count or (n - HEAD_BYTES - 4) % sizeof(Item) or crc32c(p, n - 4, 0) != check:
            raise ValueError("a damaged dump of deadlines")
        cap = self.count + count
        if cap > self.cap:
            grown = realloc(self.items, cap * sizeof(Item))
            if grown == NULL:
                raise MemoryError
            self.items = <Item*>grown
            self.cap = cap
        memcpy(self.items + self.count, p + HEAD_BYTES, count * sizeof(Item))
        self.count = cap
        self.order()
        return words[0], words[1]
