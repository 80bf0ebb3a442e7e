"""The pull requests of a consumer: how they arrive, wait, get messages and end."""
cimport cython
from libc.stdint cimport int64_t, uint64_t
from pelton.core.broker.reactor cimport Reactor
from pelton.core.broker.router cimport Router
from pelton.core.consumer.consumer_task cimport ConsumerTask
from pelton.core.consumer.delivery cimport Delivery
from pelton.core.consumer.priority_groups cimport PriorityGroups
from pelton.core.consumer.pull_requests cimport PullQueue, PullRequest, PullSpec
from pelton.core.stream.stream cimport Stream


@cython.final
cdef class PullDelivery:
    cdef ConsumerTask consumer             # ENDED when it is closed
    cdef Delivery delivery
    cdef Stream stream
    cdef Reactor reactor
    cdef Router router
    cdef int64_t max_waiting, max_batch, max_expires_ns, max_bytes
    cdef PullQueue requests
    cdef PriorityGroups groups             # None: no priority policy
    cdef uint64_t requested_ns             # time of the last request
    cdef uint64_t swept_ns                 # when a full queue was last searched for expired requests
    cdef bint disturbed                    # another message was sent after the picked message was read: read it again

    cdef int set_groups(self, int policy, tuple names, uint64_t pin_ttl_ns) except -1
    cdef int end(self, str reason) except -1                       # the consumer is closed
    cdef int expire(self, bytes reply) except -1                   # the requests with this reply subject
    cdef int run(self) except -1                                   # deliver; 1: there is more to do in the next turn
    cdef int rest(self, int why) except -1
    cdef int tick(self) except -1
    # requests
    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1
    cdef str refusal(self, PullSpec* spec)                         # None: the request is within the limits
    cdef str refusal_without_wait(self, PullSpec* spec)            # of a request with no_wait; None: the request may wait
    cdef bint queue_is_full(self) except -1
    cdef int enqueue(self, const char* reply, size_t reply_len, PullSpec* spec) except -1
    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1
    cdef int status(self, bytes subject, str line, str headers) except -1
    cdef int end_request(self, PullRequest r, str line) except -1  # the status has the messages and bytes that were not sent
    cdef PullRequest choose(self, uint64_t size)
    cdef PullRequest choose_in_groups(self, uint64_t size)
    cdef int no_request_may(self) except -1
    cdef int pin(self, PullRequest r) except -1
    cdef int unpin(self, str group, str reason) except -1
    cdef int completed(self, PullRequest r, uint64_t size) except -1
    cdef int end_impatient(self) except -1
    cdef int sweep(self, bint at_the_end) except -1
    cdef bint has_listener(self) except -1                         # whether a client waits for the answer of a request
