"""The delivered and unacknowledged messages of a consumer; the ack floor; the redelivery queue.

First deliveries happen in ascending order of sequence, so the entries form an ascending array: most acks are of its head and pop it, others
leave a hole, and a look-up is one guess (no holes) or a binary search. The array is compacted when most of it is holes. The floor is
the pair (consumer sequence, stream sequence) up to which everything is acknowledged; consumer sequences are those of first
deliveries. Knows nothing of the protocol; the caller passes the time.
"""
cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

cdef enum:
    FIRST_ENTRIES = 64
    HOLES_KEPT = 64            # compact when there are more holes than live entries, by more than this


@cython.final
cdef class PendingMessages:
    """The unacknowledged messages of one consumer."""

    def __dealloc__(self):
        free(self.data)
        free(self.queue)

    cdef int push(self, uint64_t seq, uint64_t cseq, uint64_t now_ns) except -1:
        cdef Pending* e
        cdef Pending* data
        cdef size_t cap
        if self.len == self.cap:
            if self.off > self.cap // 2:
                memmove(self.data, self.data + self.off, (self.len - self.off) * sizeof(Pending))
                self.len -= self.off
                self.off = 0
            else:
                cap = self.cap * 2 if self.cap else FIRST_ENTRIES
                data = <Pending*>realloc(self.data, cap * sizeof(Pending))
                if data == NULL:
                    raise MemoryError
                self.data = data
                self.cap = cap
        if self.len > self.off and self.data[self.len - 1].seq >= seq:
            raise AssertionError(f"message {seq} delivered first after {self.data[self.len - 1].seq}")
        e = self.data + self.len
        e.seq = seq
        e.cseq = cseq
        e.since_ns = now_ns
        e.deliveries = 1
        e.state = WAITING
        self.len += 1
        self.live += 1
        return 0

    cdef Pending* find(self, uint64_t seq) noexcept:
        cdef size_t low = self.off, high, middle
        if self.live == 0 or seq < self.data[low].seq or seq > self.data[self.len - 1].seq:
            return NULL
        # Strictly ascending: the entry is at most seq - first places after the first.
        high = low + <size_t>(seq - self.data[low].seq)
        if high > self.len - 1:
            high = self.len - 1
        if self.data[high].seq != seq:
            while low < high:
                middle = (low + high) // 2
                if self.data[middle].seq < seq:
                    low = middle + 1
                else:
                    high = middle
        if self.data[high].seq != seq or self.data[high].state == GONE:
            return NULL
        return self.data + high

    cdef Pending* first(self) noexcept:
        return self.data + self.off if self.live else NULL

    cdef int remove(self, Pending* e, uint64_t delivered_cseq, uint64_t delivered_seq) except -1:
        cdef bint lowest = e == self.data + self.off
        cdef bint follows = e.cseq == self.floor_cseq + 1          # no unacknowledged message was dropped before it
        e.state = GONE
        self.live -= 1
        if self.live == 0:
            self.clear()
            self.floor_cseq = delivered_cseq
            self.floor_seq = delivered_seq
            return 0
        if lowest:
            while self.data[self.off].state == GONE:
                self.off += 1
            if follows:
                self.floor_cseq = self.data[self.off].cseq - 1
                self.floor_seq = self.data[self.off].seq - 1
        elif self.len - self.off > 2 * self.live + HOLES_KEPT:
            self.compact()
        return 0

    cdef int drop(self, Pending* e) except -1:
        """Drop a message that is not delivered again, and is not acknowledged: the floor stays."""
        cdef uint64_t cseq = self.floor_cseq, seq = self.floor_seq
        self.remove(e, cseq, seq)
        self.set_floor(cseq, seq)
        return 0

    cdef int remove_upto(self, uint64_t seq, uint64_t delivered_cseq, uint64_t delivered_seq) except -1:
        cdef int n = 0
        cdef uint64_t cseq = self.floor_cseq
        if self.live == 0:
            return 0
        while self.off < self.len and self.data[self.off].seq <= seq:
            if self.data[self.off].state != GONE:
                cseq = self.data[self.off].cseq
                self.data[self.off].state = GONE
                self.live -= 1
                n += 1
            self.off += 1
        if self.live == 0:
            self.clear()
            self.floor_cseq = delivered_cseq
            self.floor_seq = delivered_seq
        elif n:
            while self.data[self.off].state == GONE:
                self.off += 1
            self.floor_cseq = cseq
            self.floor_seq = seq
        return n

    cdef list upto(self, uint64_t seq):
        cdef size_t i = self.off
        cdef list found = []
        while i < self.len and self.data[i].seq <= seq:
            if self.data[i].state != GONE:
                found.append(self.data[i].seq)
            i += 1
        return found

    cdef int remove_below(self, uint64_t seq, uint64_t delivered_cseq, uint64_t delivered_seq) except -1:
        cdef int n = 0
        while self.live and self.data[self.off].seq < seq:
            self.remove(self.data + self.off, delivered_cseq, delivered_seq)
            n += 1
        return n

    cdef int purge_below(self, uint64_t seq) except -1:
        cdef int n = 0
        while self.live and self.data[self.off].seq < seq:
            if self.data[self.off].state != GONE:
                if self.data[self.off].cseq > self.floor_cseq:
                    self.floor_cseq = self.data[self.off].cseq
                self.data[self.off].state = GONE
                self.live -= 1
                n += 1
            self.off += 1
        if self.live == 0:
            self.clear()
        else:
            while self.data[self.off].state == GONE:
                self.off += 1
        if seq > self.floor_seq + 1:
            self.floor_seq = seq - 1
        return n

    cdef void set_floor(self, uint64_t cseq, uint64_t seq) noexcept:
        self.floor_cseq = cseq
        self.floor_seq = seq

    cdef void clear(self) noexcept:
        self.off = self.len = self.live = 0
        self.queue_off = self.queue_len = 0

    cdef void compact(self) noexcept:
        cdef size_t i, k = 0
        for i in range(self.off, self.len):
            if self.data[i].state != GONE:
                self.data[k] = self.data[i]
                k += 1
        self.off = 0
        self.len = k

    # --- redelivery ----------------------------------------------------------------------------------------------------
    cdef int enqueue(self, Pending* e) except -1:
        cdef uint64_t* queue
        cdef size_t cap
        if e.state == QUEUED:
            return 0
        if self.queue_len == self.queue_cap:
            if self.queue_off > self.queue_cap // 2:
                memmove(self.queue, self.queue + self.queue_off, (self.queue_len - self.queue_off) * sizeof(uint64_t))
                self.queue_len -= self.queue_off
                self.queue_off = 0
            else:
                cap = self.queue_cap * 2 if self.queue_cap else FIRST_ENTRIES
                queue = <uint64_t*>realloc(self.queue, cap * sizeof(uint64_t))
                if queue == NULL:
                    raise MemoryError
                self.queue = queue
                self.queue_cap = cap
        e.state = QUEUED
        self.queue[self.queue_len] = e.seq
        self.queue_len += 1
        return 0

    cdef size_t queued(self) noexcept:
        return self.queue_len - self.queue_off

    cdef Pending* next_due(self) noexcept:
        cdef Pending* e
        while self.queue_off < self.queue_len:
            e = self.find(self.queue[self.queue_off])
            if e != NULL and e.state == QUEUED:
                return e
            self.dequeued()
        return NULL

    cdef void dequeued(self) noexcept:
        self.queue_off += 1
        if self.queue_off == self.queue_len:
            self.queue_off = self.queue_len = 0

    # --- for tests -----------------------------------------------------------------------------------------------------
    def deliver(self, seq: int, cseq: int, now_ns: int) -> None:
        """Add a first delivery."""
        self.push(seq, cseq, now_ns)

    def ack(self, seq: int, delivered_cseq: int, delivered_seq: int) -> bool:
        """Acknowledge one message; False when it is not pending."""
        cdef Pending* e = self.find(seq)
        if e == NULL:
            return False
        self.remove(e, delivered_cseq, delivered_seq)
        return True

    def ack_upto(self, seq: int, delivered_cseq: int, delivered_seq: int) -> int:
        """Acknowledge all messages up to a sequence; returns how many."""
        return self.remove_upto(seq, delivered_cseq, delivered_seq)

    def drop_below(self, seq: int, delivered_cseq: int, delivered_seq: int) -> int:
        """Limits removed the messages below a sequence; returns how many were pending."""
        return self.remove_below(seq, delivered_cseq, delivered_seq)

    def purge(self, seq: int) -> int:
        """A purge removed the messages below a sequence; returns how many were pending."""
        return self.purge_below(seq)

    def refuse(self, seq: int) -> bool:
        """Queue a message for redelivery; False when it is not pending."""
        cdef Pending* e = self.find(seq)
        if e == NULL:
            return False
        self.enqueue(e)
        return True

    def redeliver(self, now_ns: int) -> int:
        """Redeliver the head of the redelivery queue; returns its sequence, 0 when there is none."""
        cdef Pending* e = self.next_due()
        if e == NULL:
            return 0
        self.dequeued()
        e.state = WAITING
        e.deliveries += 1
        e.since_ns = now_ns
        return e.seq

    def entries(self) -> list:
        """The pending messages, ascending: (seq, consumer seq, deliveries)."""
        cdef size_t i
        return [
            (self.data[i].seq, self.data[i].cseq, self.data[i].deliveries)
            for i in range(self.off, self.len) if self.data[i].state != GONE
        ]

    def waits(self) -> list:
        """The pending messages, ascending: (seq, when it was last delivered or refused in ns, deliveries)."""
        cdef size_t i
        return [
            (self.data[i].seq, self.data[i].since_ns, self.data[i].deliveries)
            for i in range(self.off, self.len) if self.data[i].state != GONE
        ]

    def places(self) -> int:
        """Number of entries, holes included."""
        return self.len - self.off
