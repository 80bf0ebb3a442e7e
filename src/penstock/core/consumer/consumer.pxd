"""A consumer: when it runs, what is pushed and when, and what the engine asks of it. The shared part is in core/consumer/delivery, the
pull side in core/consumer/pull_delivery."""
from libc.stdint cimport uint64_t
from penstock.core.broker.router cimport Message
from penstock.core.consumer.pacing cimport FlowWindow
from penstock.core.consumer.pull_delivery cimport PullDelivery
from penstock.core.protocol.subjects cimport Route


cdef class Consumer(PullDelivery):
    cdef readonly bint paused              # nothing is handed out
    cdef bint configured
    # push
    cdef bytes deliver_group
    cdef uint64_t heartbeat_ns
    cdef Route target                      # who listens on deliver_subject; None: look
    cdef Route gate                        # those of them without whom nothing is sent: the deliver group, or plain subscribers
    cdef readonly bint bound               # somebody did when last looked
    cdef uint64_t unbound_ns               # since when nobody did
    cdef public object on_unbound          # called without arguments when nobody does any more; or None
    cdef uint64_t beat_ns                  # next idle heartbeat
    cdef FlowWindow window                 # None: no flow control
    cdef uint64_t refused                  # the message that those who listen did not take when it was last tried

    cdef int run_push(self) except -1
    cdef int unreadable(self, object error) except -1
    cdef int flow_answer(self, Message* m) except -1
    cdef Route find_gate(self)
    cdef int find_target(self) except -1                           # as Router.readiness
    cdef bint flow_forced(self) noexcept
    cdef int ask_flow(self) except -1
    cdef int beat(self) except -1
