"""The pull side of a consumer: requests come, wait, are served and end."""
from libc.stdint cimport int64_t, uint64_t
from penstock.core.broker.reactor cimport Task
from penstock.core.consumer.delivery cimport Delivery
from penstock.core.consumer.priority_groups cimport PriorityGroups
from penstock.core.consumer.pull_requests cimport PullQueue, PullRequest


cdef class PullDelivery(Delivery):
    cdef bytes deliver_subject             # b"": pull
    cdef int64_t max_waiting, max_batch, max_expires_ns, max_bytes
    cdef readonly PullQueue requests
    cdef readonly PriorityGroups groups    # None: no priority policy
    cdef uint64_t requested_ns             # when the last request came
    cdef uint64_t swept_ns                 # when a full queue was last searched for expired requests
    cdef bint disturbed                    # something was sent since the picked message was read: read it again

    cdef int run_pull(self) except -1
    cdef int rest(self, int why) except -1
    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1
    cdef int status(self, bytes subject, str line, str headers) except -1
    cdef int end_request(self, PullRequest r, str line) except -1  # with what is left of it
    cdef int ready(self, PullRequest r, Task waiter) except -1
    cdef PullRequest choose(self, uint64_t size)
    cdef PullRequest choose_in_groups(self, uint64_t size)
    cdef int nobody_may(self) except -1
    cdef int pin(self, PullRequest r) except -1
    cdef int completed(self, PullRequest r, uint64_t size) except -1
    cdef int end_impatient(self) except -1
    cdef int sweep(self, bint at_the_end) except -1
    cdef str position(self)                                        # header lines of a heartbeat
