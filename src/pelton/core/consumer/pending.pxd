"""The delivered and unacknowledged messages of a consumer; the ack floor; the redelivery queue."""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum PendingState:
    GONE = 0                   # acknowledged or dropped; its place is still in the array
    WAITING = 1                # delivered; due again an ack wait after since_ns
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
    cdef readonly uint64_t floor_cseq, floor_seq   # all messages up to here are acknowledged
    # A Pending* is valid until the next push or remove.
    cdef int push(self, uint64_t seq, uint64_t cseq, uint64_t now_ns) except -1      # a first delivery; seq ascends
    cdef Pending* find(self, uint64_t seq) noexcept                                  # NULL: not pending
    cdef Pending* first(self) noexcept                                               # the entry with the lowest sequence, or NULL
    # remove one and move the floor; with none left the floor is (delivered_cseq, delivered_seq), those of the last delivery
    cdef int remove(self, Pending* e, uint64_t delivered_cseq, uint64_t delivered_seq) except -1
    cdef int drop(self, Pending* e) except -1                                        # the floor stays where it is
    cdef int remove_upto(self, uint64_t seq, uint64_t delivered_cseq, uint64_t delivered_seq) except -1     # returns how many; moves the floor to seq
    cdef list upto(self, uint64_t seq)                                               # the pending sequences up to seq
    cdef int remove_below(self, uint64_t seq, uint64_t delivered_cseq, uint64_t delivered_seq) except -1    # removed by limits: they count as acked
    cdef int purge_below(self, uint64_t seq) except -1                               # a purge removed these messages: the floor is at least seq - 1
    cdef void set_floor(self, uint64_t cseq, uint64_t seq) noexcept
    cdef int enqueue(self, Pending* e) except -1
    cdef size_t queued(self) noexcept                                                # length of the redelivery queue
    cdef Pending* next_due(self) noexcept                                            # head of the redelivery queue, or NULL
    cdef void dequeued(self) noexcept                                                # the head was delivered or dropped
    cdef void compact(self) noexcept
    cdef void clear(self) noexcept
