"""The push side of a consumer: the deliver subject and its subscribers, flow control, idle heartbeats.

Messages go to all subscribers of the deliver subject, but only while the gate has a subscriber: one of the deliver group, or without a group
a plain one. With flow control a window limits the sent and unconfirmed bytes (core/consumer/pacing). Knows nothing of pull requests.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport parse_u63
from pelton.core.broker.router cimport Message, QueueGroup
from pelton.core.consumer.consumer_task cimport ENDED, ConsumerTask
from pelton.core.consumer.delivery cimport BUDGET, NEXT, POLICY_FLOW, STALLED, Delivery, send_status
from pelton.core.consumer.pacing cimport FlowWindow
from pelton.core.log.log cimport Record
from pelton.core.protocol.publish_headers cimport Text, header_value
from pelton.core.protocol.subjects cimport Route, SubjectTrie

_TOKEN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@cython.final
cdef class PushDelivery:
    """The push side of one consumer."""

    def __init__(self, ConsumerTask consumer, Delivery delivery) -> None:
        self.consumer = consumer
        self.delivery = delivery
        self.reactor = delivery.reactor
        self.router = delivery.router
        self.deliver_subject = self.deliver_group = b""
        self.unbound_ns = self.reactor.now_ns

    def configure(self, *, uint64_t heartbeat_ns, bint flow_control) -> None:
        """Set or change heartbeats (0: none) and flow control."""
        self.heartbeat_ns = heartbeat_ns
        if not flow_control:
            self.window = None
        elif self.window is None:
            self.window = FlowWindow()

    cdef int set_target(self, str subject, str group) except -1:
        """Set the deliver subject ("": pull); the consumer runs when a client subscribes to it."""
        old = self.deliver_subject
        self.deliver_subject = subject.encode("utf-8", "surrogateescape")
        self.deliver_group = group.encode("utf-8", "surrogateescape")
        self.target = None
        if old != self.deliver_subject:
            if old:
                self.router.unwatch(old.decode("utf-8", "surrogateescape"), self.consumer)
            if subject:
                self.router.watch(subject, self.consumer)
        return 0

    cdef int end(self) except -1:
        if PyBytes_GET_SIZE(self.deliver_subject):
            self.router.unwatch(self.deliver_subject.decode("utf-8", "surrogateescape"), self.consumer)
        self.consumer = ENDED
        return 0

    cdef int look_up_again(self) except -1:
        self.target = None
        return 0

    # --- delivery ------------------------------------------------------------------------------------------------------
    cdef int run(self) except -1:
        cdef Delivery delivery = self.delivery
        cdef int budget = BUDGET, why
        cdef uint64_t size
        cdef Record record
        while budget:
            if self.find_target() != 2 or (self.window is not None and self.window.full()):
                return 0
            why = delivery.pick()
            if why != NEXT:
                return 0 if why == STALLED else delivery.await_more()
            if not delivery.log.read(delivery.picked, &record):
                delivery.gone()
                continue
            size = delivery.prepare(&record)
            if delivery.held(record.ts_ns, size):
                return 0
            if delivery.hand_out(self.target, self.deliver_subject) == 0 and self.refused != delivery.picked:
                self.target = None
                self.refused = delivery.picked             # a second failure counts as a delivery: subscribers may lack permission for the message
                return 1 if self.find_target() == 2 else 0
            self.refused = 0
            delivery.handed(record.ts_ns, size)
            if self.heartbeat_ns:
                self.beat_ns = self.reactor.now_ns + self.heartbeat_ns
            if self.window is not None and (self.window.sent(size) or self.flow_forced()):
                self.ask_flow()
            budget -= 1
        return 1

    cdef int tick(self) except -1:
        """Send the heartbeat that is due at the reactor's time."""
        if self.bound and self.heartbeat_ns and self.beat_ns <= self.reactor.now_ns and self.find_target():
            self.beat()
        return 0

    cdef uint64_t due_ns(self) noexcept:
        return self.beat_ns if self.bound and self.heartbeat_ns else 0

    # --- subscribers ---------------------------------------------------------------------------------------------------
    cdef Route find_gate(self):
        """The gate: with a deliver group its members, without one the plain subscribers. While the gate has a subscriber, all
        subscribers get the messages.
        """
        cdef int i
        cdef bint groups = False
        if PyBytes_GET_SIZE(self.deliver_group):
            return self.router.interest_in(
                PyBytes_AS_STRING(self.deliver_subject), PyBytes_GET_SIZE(self.deliver_subject), self.deliver_group)
        for i in range(self.target.n):
            groups = groups or type(<object>self.target.items[i]) is QueueGroup
        if not groups:
            return self.target
        only = SubjectTrie()
        for i in range(self.target.n):
            if type(<object>self.target.items[i]) is not QueueGroup:
                (<SubjectTrie>only).insert(
                    PyBytes_AS_STRING(self.deliver_subject), PyBytes_GET_SIZE(self.deliver_subject), <object>self.target.items[i])
        return (<SubjectTrie>only).match(PyBytes_AS_STRING(self.deliver_subject), PyBytes_GET_SIZE(self.deliver_subject))

    cdef int find_target(self) except -1:
        cdef int n, look
        for look in range(2):
            if self.target is None or (look == 0 and self.router.stale(self.target)) or look:
                self.target = self.router.interest(PyBytes_AS_STRING(self.deliver_subject), PyBytes_GET_SIZE(self.deliver_subject))
                self.gate = self.find_gate()
            n = self.router.readiness(self.gate, self.consumer)
            if n:
                break
        if n and not self.bound:
            self.bound = True
            if self.heartbeat_ns:
                self.beat_ns = self.reactor.now_ns + self.heartbeat_ns
                self.consumer.arm(self.beat_ns)
        elif n == 0 and self.bound:
            self.bound = False
            self.unbound_ns = self.reactor.now_ns
            if self.consumer.on_unbound is not None:
                self.consumer.on_unbound()
        return n

    cdef bint flow_forced(self) noexcept:
        """Whether answers to flow-control requests are the acks, and max_ack_pending messages wait for one."""
        return (self.delivery.ack_policy == POLICY_FLOW and PyBytes_GET_SIZE(self.window.asked) == 0
                and self.delivery.pending.live >= <size_t>self.delivery.max_ack_pending)

    cdef int ask_flow(self) except -1:
        """Send a flow-control request: the client answers when it has processed all messages so far."""
        cdef int i
        cdef uint64_t random
        cdef bytes block = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        cdef Message* out = &self.delivery.out
        token = ""
        random = self.reactor.random() >> 8
        for i in range(4):
            token += _TOKEN[random % 62]
            random //= 62
        subject = b"$JS.FC." + self.consumer.address + b"." + token.encode()
        self.window.ask(subject)
        out.subject = PyBytes_AS_STRING(self.deliver_subject)
        out.subject_len = <uint32_t>PyBytes_GET_SIZE(self.deliver_subject)
        out.reply = PyBytes_AS_STRING(<bytes>subject)
        out.reply_len = <uint32_t>PyBytes_GET_SIZE(<bytes>subject)
        out.body = PyBytes_AS_STRING(block)
        out.hlen = out.body_len = <uint32_t>PyBytes_GET_SIZE(block)
        return self.delivery.hand_out(self.target, self.deliver_subject)

    cdef int flow_answer(self, Message* m) except -1:
        cdef Text stream_seq, consumer_seq
        cdef int64_t seq, cseq
        if self.window is None:
            return 0                           # without flow control there is no open request
        if not self.window.answered(m.subject, m.subject_len):
            return 1
        self.consumer.kick()
        if self.delivery.ack_policy == POLICY_FLOW and m.hlen:
            stream_seq = header_value(m.body, m.hlen, b"Nats-Last-Stream", 16)
            consumer_seq = header_value(m.body, m.hlen, b"Nats-Last-Consumer", 18)
            seq = parse_u63(stream_seq.at, stream_seq.n) if stream_seq.at != NULL else 0
            cseq = parse_u63(consumer_seq.at, consumer_seq.n) if consumer_seq.at != NULL else 0
            if seq > 0:
                self.delivery.ack_upto(<uint64_t>seq, <uint64_t>max(cseq, 0))
        return 1

    cdef int beat(self) except -1:
        """Send the idle heartbeat; with flow-control acks, also repeat the request while acks are missing."""
        text = self.delivery.position()
        if self.window is not None and self.window.asked:
            text += f"Nats-Consumer-Stalled: {self.window.asked.decode('utf-8', 'surrogateescape')}\r\n"
        send_status(self.router, self.deliver_subject, "100 Idle Heartbeat", text)
        self.beat_ns = self.reactor.now_ns + self.heartbeat_ns
        if self.delivery.ack_policy == POLICY_FLOW and self.delivery.pending.live and PyBytes_GET_SIZE(self.window.asked) == 0:
            self.ask_flow()
        return 0
