"""A consumer: its parts, when it runs, and its methods for the engine.

    Consumer ──┬── Delivery        position, unacknowledged messages, acks      (core/consumer/delivery)
               ├── PullDelivery    pull requests                                (core/consumer/pull_delivery)
               └── PushDelivery    deliver subject, flow control, heartbeats    (core/consumer/push_delivery)

A consumer runs in the delivery phase of a turn when it may have something to deliver: a request came, a message that matches its
filters became visible, an ack made room, a client's output drained, a deadline was reached. Each run delivers at most BUDGET messages, so
that no other consumer waits long. core/consumer/snapshot draws the stored state. Knows nothing of JSON configuration.
"""
from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.broker.router cimport Message
from pelton.core.consumer.consumer_task cimport ConsumerTask
from pelton.core.consumer.delivery cimport POLICY_FLOW, Delivery
from pelton.core.consumer.pull_delivery cimport PullDelivery
from pelton.core.consumer.push_delivery cimport PushDelivery
from pelton.core.stream.stream cimport Stream

ACK_NONE = 0
ACK_ALL = 1
ACK_EXPLICIT = 2
ACK_FLOW = 3

ConsumerState = namedtuple("ConsumerState", [
    "delivered_consumer_seq", "delivered_stream_seq", "delivered_last_ns", "floor_consumer_seq", "floor_stream_seq",
    "floor_last_ns", "num_ack_pending", "num_redelivered", "num_waiting", "num_pending",
])


cdef class Consumer(ConsumerTask):
    """One consumer of a stream. The engine makes it, and turns the deliver policy into a first sequence."""

    def __init__(self, Stream stream, str name, *, start_seq: int, str dialect = "", bytes owner = b"") -> None:
        ConsumerTask.__init__(self, stream, name, owner)
        self.delivery = Delivery(self, start_seq)
        self.delivery.set_dialect(dialect)
        self.pull = PullDelivery(self, self.delivery)
        self.push = PushDelivery(self, self.delivery)

    @property
    def ack_policy(self) -> int:
        return self.delivery.ack_policy

    @property
    def groups(self):
        return self.pull.groups

    @property
    def bound(self) -> bool:
        return self.push.bound

    def configure(
        self, *, int ack_policy, ack_wait_ns: int = 30_000_000_000, tuple backoff_ns = (), max_deliver: int = -1,
        max_ack_pending: int = 1000, max_waiting: int = 512, max_batch: int = 0, max_expires_ns: int = 0, max_bytes: int = 0,
        tuple filters = (), last_per_subject: bool = False, headers_only: bool = False, rate_limit_bps: int = 0,
        replay_original: bool = False, str deliver_subject = "", str deliver_group = "", idle_heartbeat_ns: int = 0,
        flow_control: bool = False, int sample_percent = 0, int priority_policy = 0, tuple priority_groups = (),
        priority_timeout_ns: int = 0,
    ) -> None:
        """Set or change the configuration. deliver_subject "" = pull."""
        patterns = tuple([text.encode("utf-8", "surrogateescape") for text in filters])
        self.delivery.configure(
            ack_policy=ack_policy, ack_wait_ns=ack_wait_ns, backoff_ns=backoff_ns, max_deliver=max_deliver,
            max_ack_pending=max_ack_pending, headers_only=headers_only, sample_percent=sample_percent)
        self.pull.configure(max_waiting=max_waiting, max_batch=max_batch, max_expires_ns=max_expires_ns, max_bytes=max_bytes)
        self.pull.set_groups(priority_policy, priority_groups, priority_timeout_ns)
        self.push.configure(heartbeat_ns=idle_heartbeat_ns, flow_control=flow_control)
        self.delivery.set_filters(patterns, not self.configured, last_per_subject)
        self.delivery.set_pace(rate_limit_bps, replay_original)
        self.push.set_target(deliver_subject, deliver_group)
        self.configured = True
        self.delivery.look_again()                         # ack waits may be shorter now
        self.kick()

    # --- delivery ------------------------------------------------------------------------------------------------------
    cdef bint pushes(self) noexcept:
        return PyBytes_GET_SIZE(self.push.deliver_subject) > 0

    cdef bint in_demand(self) noexcept:
        return self.pull.requests.count > 0 or self.push.bound

    cdef int wake(self) except -1:
        self.push.look_up_again()
        return self.kick()

    cdef int run(self) except -1:
        if self.closed:
            return 0
        if self.paused:
            if self.pushes():
                self.push.find_target()
            elif self.pull.requests.impatient:
                self.pull.end_impatient()
            return 0
        try:
            self.delivery.settle()
            return self.push.run() if self.pushes() else self.pull.run()
        except OSError as error:
            return self.unreadable(error)

    cdef int unreadable(self, object error) except -1:
        """The disk could not read the next message; the consumer does not skip it."""
        self.stream.read_failed(error)
        if self.pull.requests.impatient:
            self.pull.end_impatient()
        return self.delivery.read_later()

    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1:
        """Process a pull request; 0: this consumer is closed."""
        if self.closed:
            return 0
        if reply_len == 0:
            return 1
        if self.pushes():
            return self.refuse_request(reply, reply_len, "409 Consumer is push based")
        return self.pull.request(reply, reply_len, body, n)

    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1:
        return self.pull.refuse_request(reply, n, line)

    cdef int flow_answer(self, Message* m) except -1:
        return self.push.flow_answer(m)

    # --- called by the stream ------------------------------------------------------------------------------------------
    cdef int signalled(self, uint64_t seq) except -1:
        return self.delivery.signalled(seq)

    cdef int wants(self, uint32_t subject_id) except -1:
        return self.delivery.cursor.want(subject_id)

    cdef int forgets(self, uint32_t subject_id) except -1:
        return self.delivery.cursor.forget(subject_id)

    cdef int removed(self, uint64_t seq) except -1:
        return self.delivery.removed(seq)

    cdef int expire_below(self, uint64_t seq) except -1:
        return self.delivery.expire_below(seq)

    cdef int purged(self) except -1:
        return self.delivery.purged()

    cdef int needs(self, uint64_t seq) except -1:
        return self.delivery.needs(seq)

    # --- for the engine ------------------------------------------------------------------------------------------------
    def tick(self) -> int:
        """Do the work due at the reactor's time (redeliveries, request expiry, heartbeats); when to call again (ns, 0 = not needed)."""
        cdef uint64_t next_ns = 0
        if self.closed:
            return 0
        try:
            self.delivery.settle()
        except OSError as error:
            self.unreadable(error)
        self.delivery.tick()
        self.pull.tick()
        self.push.tick()
        for due in (self.delivery.due_ns, self.delivery.held_ns, self.pull.requests.due_ns, self.push.due_ns(),
                    self.pull.groups.pin_until_ns if self.pull.groups is not None else 0):
            if due and (next_ns == 0 or due < next_ns):
                next_ns = due
        self.deadline_ns = next_ns
        return next_ns

    def state(self) -> ConsumerState:
        """The position, as the consumer info shows it. Requests that have expired or lost their client are dropped first."""
        cdef Delivery d = self.delivery
        d.settle()
        if self.pull.requests.count:
            self.pull.sweep(False)
        redelivered = 0
        if d.max_deliver != 1:
            redelivered = sum([1 for entry in d.pending.entries() if entry[2] > 1]) + len(d.spent or ())
        return ConsumerState(
            d.delivered, d.cursor.passed, d.delivered_ns, d.pending.floor_cseq, d.pending.floor_seq, d.acked_ns, d.pending.live,
            redelivered, self.pull.requests.count, d.cursor.count(self.stream.listeners.removals),
        )

    def unacknowledged(self) -> list:
        """The messages that wait for an ack: (stream sequence, when it was last delivered or refused in ns, deliveries)."""
        self.delivery.settle()
        return self.delivery.pending.waits()

    def given_up(self) -> list:
        """The messages that had all their deliveries without an ack: (stream sequence, deliveries)."""
        self.delivery.settle()
        return list((self.delivery.spent or {}).items())

    def floor(self) -> int:
        """The stream sequence up to which everything is acknowledged."""
        self.delivery.settle()
        return self.delivery.pending.floor_seq

    def push_bound(self) -> bool:
        """Whether this is a push consumer with a subscriber."""
        return self.pushes() and self.push.find_target() > 0

    def idle_since_ns(self) -> int:
        """For inactive_threshold: since when no client uses it (no subscriber; no request and no running ack wait); 0 = in use."""
        cdef Delivery d = self.delivery
        cdef uint64_t latest = max(self.pull.requested_ns, d.delivered_ns, d.acked_ns)
        if self.pushes():
            return 0 if self.push.find_target() else self.push.unbound_ns
        if self.pull.has_listener():
            return 0
        if d.ack_policy == POLICY_FLOW:
            return latest
        latest = max(latest, d.last_wait_ns())
        return 0 if latest > self.reactor.now_ns else latest

    def expire_requests(self, str reply) -> None:
        """End the pull requests with this reply subject as if their time were over."""
        self.pull.expire(reply.encode("utf-8", "surrogateescape"))

    def unpin(self, str group, str reason) -> None:
        """Unpin the pinned client: another client gets the messages. The advisory has the reason: admin or timeout."""
        self.pull.unpin(group, reason)

    def pause(self, bint paused) -> None:
        """Pause deliveries (requests wait, acks are processed, heartbeats continue), or resume them."""
        self.paused = paused
        self.kick()

    def reset(self, seq: int) -> int:
        """Start again, as if nothing had been delivered: the next message is the first one from this sequence on, 0: behind the ack floor.

        Returns the sequence.
        """
        seq = self.delivery.reset(seq)
        self.kick()
        return seq

    def snapshot(self) -> bytes:
        """The stored state (floors, delivered, pending with delivery counts) as a checksummed record; core/consumer/snapshot draws it."""
        state = self.delivery.snapshot()
        self.changed = False
        return state

    def restore(self, bytes data) -> None:
        """Set the state from a snapshot, limited to the stream's sequences. Raises ValueError for an invalid snapshot."""
        self.delivery.restore(data)
        self.changed = False
        self.kick()

    def close(self, str reason) -> None:
        """End the consumer: waiting pull requests get `409 <reason>` (none when it is ""), and deliveries stop."""
        if self.closed:
            return
        self.closed = True
        self.delivery.end()
        self.push.end()
        self.pull.end(reason)
