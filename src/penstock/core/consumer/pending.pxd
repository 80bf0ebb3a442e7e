"""Messages that a consumer has handed out and that are not acknowledged; the ack floor; the redelivery queue."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum PendingState:
    GONE = 0                   # acknowledged or dropped; its place is still there
    WAITING = 1                # handed out; due again an ack wait after since_ns
    DELAYED = 2                # refused with a delay; due at since_ns
    QUEUED = 3                 # due, in the redelivery queue


cdef struct Pending:
    uint64_t seq               # in the stream
    uint64_t cseq              # the consumer sequence of its first delivery
    uint64_t since_ns
    uint32_t deliveries
    uint32_t state             # PendingState


@cython.final
cdef class PendingMessages:
    cdef Pending* data         # data[off:len], sequences ascend; data[off] is not GONE
    cdef size_t off, len, cap
    cdef readonly size_t live
    cdef uint64_t* queue       # sequences due for redelivery: queue[queue_off:queue_len]
    cdef size_t queue_off, queue_len, queue_cap
    cdef readonly uint64_t floor_cseq, floor_seq   # everything up to here is acknowledged
    # An Pending* is valid until the next push or remove.
    cdef int push(self, uint64_t seq, uint64_t cseq, uint64_t now_ns) except -1      # a first delivery; seq ascends
    cdef Pending* find(self, uint64_t seq) noexcept                                  # NULL: not pending
    cdef Pending* first(self) noexcept                                               # the one with the lowest sequence, or NULL
    # remove one, move the floor: (cseq, seq) of the last delivered is where it jumps to when nothing is left
    cdef int remove(self, Pending* e, uint64_t delivered_cseq, uint64_t delivered_seq) except -1
    cdef int drop(self, Pending* e) except -1                                        # the floor stays where it is
    cdef int remove_upto(self, uint64_t seq, uint64_t delivered_cseq, uint64_t delivered_seq) except -1     # how many; floor as of seq
    cdef list upto(self, uint64_t seq)                                               # the sequences pending up to one
    cdef int remove_below(self, uint64_t seq, uint64_t delivered_cseq, uint64_t delivered_seq) except -1    # limits removed them: as if acknowledged
    cdef int purge_below(self, uint64_t seq) except -1                               # somebody purged them: the floor is at least seq - 1
    cdef void set_floor(self, uint64_t cseq, uint64_t seq) noexcept
    cdef int enqueue(self, Pending* e) except -1
    cdef size_t queued(self) noexcept                                                # how many are in the redelivery queue
    cdef Pending* next_due(self) noexcept                                            # head of the redelivery queue, or NULL
    cdef void dequeued(self) noexcept                                                # the head was handed out or dropped
    cdef void compact(self) noexcept
    cdef void clear(self) noexcept
