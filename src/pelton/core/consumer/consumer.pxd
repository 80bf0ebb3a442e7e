"""A consumer: its parts, when it runs, and its methods for the engine."""
from libc.stdint cimport uint64_t
from pelton.core.broker.router cimport Message
from pelton.core.consumer.consumer_task cimport ConsumerTask
from pelton.core.consumer.delivery cimport Delivery
from pelton.core.consumer.pull_delivery cimport PullDelivery
from pelton.core.consumer.push_delivery cimport PushDelivery


cdef class Consumer(ConsumerTask):
    cdef Delivery delivery                 # position, unacknowledged messages, acks
    cdef PullDelivery pull                 # pull requests
    cdef PushDelivery push                 # the deliver subject
    cdef readonly bint paused              # nothing is delivered
    cdef bint configured

    cdef bint pushes(self) noexcept                                # it has a deliver subject
    cdef int unreadable(self, object error) except -1
    cdef int flow_answer(self, Message* m) except -1               # the answer to a flow-control request
    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1
