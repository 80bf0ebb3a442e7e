"""The push side of a consumer: the deliver subject and its subscribers, flow control, idle heartbeats."""
cimport cython
from libc.stdint cimport uint64_t
from pelton.core.broker.reactor cimport Reactor
from pelton.core.broker.router cimport Message, Router
from pelton.core.consumer.consumer_task cimport ConsumerTask
from pelton.core.consumer.delivery cimport Delivery
from pelton.core.consumer.pacing cimport FlowWindow
from pelton.core.protocol.subjects cimport Route


@cython.final
cdef class PushDelivery:
    cdef ConsumerTask consumer             # ENDED when it is closed
    cdef Delivery delivery
    cdef Reactor reactor
    cdef Router router
    cdef bytes deliver_subject             # b"": a pull consumer
    cdef bytes deliver_group
    cdef uint64_t heartbeat_ns
    cdef Route target                      # the subscribers of deliver_subject; None: look them up
    cdef Route gate                        # the subscribers that are required for sending: the deliver group, or plain subscribers
    cdef bint bound                        # the gate had a subscriber when it was last looked up
    cdef uint64_t unbound_ns               # since when it had none
    cdef uint64_t beat_ns                  # time of the next idle heartbeat
    cdef FlowWindow window                 # None: no flow control
    cdef uint64_t refused                  # the message that no subscriber took at the last try

    cdef int set_target(self, str subject, str group) except -1
    cdef int end(self) except -1                                   # the consumer is closed
    cdef int look_up_again(self) except -1                         # the subscribers have changed
    cdef int run(self) except -1                                   # deliver; 1: there is more to do in the next turn
    cdef int tick(self) except -1
    cdef uint64_t due_ns(self) noexcept                            # time of the next heartbeat; 0: none
    cdef int flow_answer(self, Message* m) except -1
    cdef Route find_gate(self)
    cdef int find_target(self) except -1                           # as Router.readiness
    cdef bint flow_forced(self) noexcept
    cdef int ask_flow(self) except -1
    cdef int beat(self) except -1
