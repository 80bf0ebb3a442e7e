"""A consumer: when it runs, what is pushed and when, and what the engine asks of it. The shared part is in core/consumer/delivery, the
pull side in core/consumer/pull_delivery.

A consumer runs in the delivery phase of a turn when something made it worth while: a request came, a message it wants became
visible, an ack made room, a client drained, a time was reached. Each run hands out at most BUDGET messages, so that nobody waits
for one busy consumer. The stored state is drawn in core/consumer/snapshot. Knows nothing of JSON configuration.
"""
from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.base.buffer cimport parse_u63
from penstock.core.broker.router cimport Message, QueueGroup
from penstock.core.consumer.delivery cimport BUDGET, NEXT, POLICY_FLOW
from penstock.core.consumer.pacing cimport FlowWindow, Pacing
from penstock.core.consumer.pending cimport GONE, QUEUED, WAITING, Pending
from penstock.core.consumer.priority_groups cimport PRIORITIZED, PriorityGroups
from penstock.core.consumer.pull_delivery cimport PullDelivery
from penstock.core.consumer.pull_requests cimport PullRequest
from penstock.core.log.log cimport Record
from penstock.core.protocol.publish_headers cimport Text, header_value
from penstock.core.protocol.subjects cimport Route, SubjectTrie
from penstock.core.stream.stream cimport Stream

cdef enum:
    READ_AGAIN_NS = 1000000000         # after the disk did not give a message back

from penstock.core.consumer.snapshot import SPENT, pack, unpack

ACK_NONE = 0
ACK_ALL = 1
ACK_EXPLICIT = 2
ACK_FLOW = 3

_TOKEN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

ConsumerState = namedtuple("ConsumerState", [
    "delivered_consumer_seq", "delivered_stream_seq", "delivered_last_ns", "floor_consumer_seq", "floor_stream_seq",
    "floor_last_ns", "num_ack_pending", "num_redelivered", "num_waiting", "num_pending",
])


cdef class Consumer(PullDelivery):
    """One consumer of a stream. Made by the engine; deliver policy is already turned into a first sequence by it."""

    def __init__(self, Stream stream, str name, *, start_seq: int) -> None:
        PullDelivery.__init__(self, stream, name, start_seq=start_seq)
        self.deliver_group = b""
        self.unbound_ns = self.reactor.now_ns

    cdef bint in_demand(self) noexcept:
        return self.requests.count > 0 or self.bound

    def configure(
        self, *, int ack_policy, ack_wait_ns: int = 30_000_000_000, tuple backoff_ns = (), max_deliver: int = -1,
        max_ack_pending: int = 1000, max_waiting: int = 512, max_batch: int = 0, max_expires_ns: int = 0, max_bytes: int = 0,
        tuple filters = (), last_per_subject: bool = False, headers_only: bool = False, rate_limit_bps: int = 0,
        replay_original: bool = False, str deliver_subject = "", str deliver_group = "", idle_heartbeat_ns: int = 0,
        flow_control: bool = False, int sample_percent = 0, int priority_policy = 0, tuple priority_groups = (),
        priority_timeout_ns: int = 0,
    ) -> None:
        """Set or change the rules. deliver_subject "" = pull."""
        patterns = tuple([text.encode("utf-8", "surrogateescape") for text in filters])
        self.ack_policy = ack_policy
        self.ack_wait_ns = ack_wait_ns
        self.backoff_ns = backoff_ns
        self.max_deliver = max_deliver
        self.max_ack_pending = max_ack_pending
        self.max_waiting = max_waiting
        self.max_batch = max_batch
        self.max_expires_ns = max_expires_ns
        self.max_bytes = max_bytes
        self.headers_only = headers_only
        self.sample_percent = sample_percent
        self.heartbeat_ns = idle_heartbeat_ns
        self.set_groups(priority_policy, priority_groups, priority_timeout_ns)
        if not self.configured or patterns != self.cursor.filters:
            self.stream.drop_listener(self, self.cursor.filters if self.cursor.filtered else ())
            self.cursor.set_filters(patterns)
            self.stream.add_listener(self, patterns if self.cursor.filtered else ())
            if self.pending.live:
                self.stream.hold(self)
        if last_per_subject and not self.configured:
            self.cursor.start_with_last()
            self.pending.set_floor(0, self.cursor.passed)
        self.set_pace(rate_limit_bps, replay_original)
        if not flow_control:
            self.window = None
        elif self.window is None:
            self.window = FlowWindow()
        self.set_target(deliver_subject, deliver_group)
        self.configured = True
        self.stalled = False
        self.look_again()                                  # waits may be shorter now
        self.kick()

    def set_pace(self, rate_limit_bps: int, replay_original: bool) -> None:
        """Hold deliveries back; a replay that has begun goes on as it is."""
        cdef Pacing old = self.pacing
        self.pacing = None
        self.held_ns = 0
        if rate_limit_bps or replay_original:
            burst = self.stream.max_msg_size if self.stream.max_msg_size > 0 else self.reactor.max_payload
            self.pacing = Pacing(rate_limit_bps, burst, self.log.last_seq if replay_original else 0)
            if replay_original and old is not None:
                self.pacing.resume(old)

    def set_groups(self, int policy, tuple names, timeout_ns: int) -> None:
        """Set or change the priority groups; a policy of 0: none."""
        cdef bint queue_changes = self.requests.prioritized != (policy == PRIORITIZED)
        if policy == 0:
            self.groups = None
        else:
            groups = tuple([name.encode("utf-8", "surrogateescape") for name in names])
            if self.groups is None:
                self.groups = PriorityGroups(policy, groups, timeout_ns)
            else:
                self.groups.set_rules(policy, groups, timeout_ns)
        if queue_changes:
            self.requests.prioritized = policy == PRIORITIZED
            self.requests.reorder()

    def set_target(self, str subject, str group) -> None:
        """Deliver to a subject from now on ("": pull); woken when somebody subscribes."""
        old = self.deliver_subject
        self.deliver_subject = subject.encode("utf-8", "surrogateescape")
        self.deliver_group = group.encode("utf-8", "surrogateescape")
        self.target = None
        if old != self.deliver_subject:
            if old:
                self.router.unwatch(old.decode("utf-8", "surrogateescape"), self)
            if subject:
                self.router.watch(subject, self)

    # --- delivery ------------------------------------------------------------------------------------------------------
    cdef int wake(self) except -1:
        self.target = None
        return self.kick()

    cdef int run(self) except -1:
        if self.closed:
            return 0
        if self.paused:
            if PyBytes_GET_SIZE(self.deliver_subject):
                self.find_target()
            elif self.requests.impatient:
                self.end_impatient()
            return 0
        try:
            self.settle()
            return self.run_push() if PyBytes_GET_SIZE(self.deliver_subject) else self.run_pull()
        except OSError as error:
            return self.unreadable(error)

    cdef int unreadable(self, object error) except -1:
        """The disk does not give the next message back: it is not skipped, but asked for again."""
        self.stream.read_failed(error)
        if self.requests.impatient:
            self.end_impatient()
        self.held_ns = self.reactor.now_ns + READ_AGAIN_NS
        return self.arm(self.held_ns)

    cdef int run_push(self) except -1:
        cdef int budget = BUDGET, why
        cdef uint64_t size
        cdef Record record
        while budget:
            if self.find_target() != 2 or (self.window is not None and self.window.full()):
                return 0
            why = self.pick()
            if why != NEXT:
                return self.rest(why)
            if not self.log.read(self.picked, &record):
                self.gone()
                continue
            size = self.prepare(&record)
            if self.held(record.ts_ns, size):
                return 0
            if self.hand_out(self.target, self.deliver_subject) == 0 and self.refused != self.picked:
                self.target = None
                self.refused = self.picked             # a second time it counts as delivered: they may not have it
                return 1 if self.find_target() == 2 else 0
            self.refused = 0
            self.handed(record.ts_ns, size)
            if self.heartbeat_ns:
                self.beat_ns = self.reactor.now_ns + self.heartbeat_ns
            if self.window is not None and (self.window.sent(size) or self.flow_forced()):
                self.ask_flow()
            budget -= 1
        return 1

    # --- push ----------------------------------------------------------------------------------------------------------
    cdef Route find_gate(self):
        """Without a deliver group queue groups do not count, with one nobody else does; once one of those who count is there, all
        get their messages.
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
            n = self.router.readiness(self.gate, self)
            if n:
                break
        if n and not self.bound:
            self.bound = True
            if self.heartbeat_ns:
                self.beat_ns = self.reactor.now_ns + self.heartbeat_ns
                self.arm(self.beat_ns)
        elif n == 0 and self.bound:
            self.bound = False
            self.unbound_ns = self.reactor.now_ns
            if self.on_unbound is not None:
                self.on_unbound()
        return n

    cdef bint flow_forced(self) noexcept:
        """Acks come as answers to flow-control requests, and no more may be out without one."""
        return (self.ack_policy == POLICY_FLOW and PyBytes_GET_SIZE(self.window.asked) == 0
                and self.pending.live >= <size_t>self.max_ack_pending)

    cdef int ask_flow(self) except -1:
        """Ask the client to say when it has processed everything up to here."""
        cdef int i
        cdef uint64_t random
        cdef bytes block = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        token = ""
        random = self.reactor.random() >> 8
        for i in range(4):
            token += _TOKEN[random % 62]
            random //= 62
        subject = b"$JS.FC." + self.key + b"." + token.encode()
        self.window.ask(subject)
        self.out.subject = PyBytes_AS_STRING(self.deliver_subject)
        self.out.subject_len = <uint32_t>PyBytes_GET_SIZE(self.deliver_subject)
        self.out.reply = PyBytes_AS_STRING(<bytes>subject)
        self.out.reply_len = <uint32_t>PyBytes_GET_SIZE(<bytes>subject)
        self.out.body = PyBytes_AS_STRING(block)
        self.out.hlen = self.out.body_len = <uint32_t>PyBytes_GET_SIZE(block)
        return self.hand_out(self.target, self.deliver_subject)

    cdef int flow_answer(self, Message* m) except -1:
        cdef Text stream_seq, consumer_seq
        cdef int64_t seq, cseq
        if self.window is None:
            return 0                           # it never asks: nobody is there for such an answer
        if not self.window.answered(m.subject, m.subject_len):
            return 1
        self.kick()
        if self.ack_policy == POLICY_FLOW and m.hlen:
            stream_seq = header_value(m.body, m.hlen, b"Nats-Last-Stream", 16)
            consumer_seq = header_value(m.body, m.hlen, b"Nats-Last-Consumer", 18)
            seq = parse_u63(stream_seq.at, stream_seq.n) if stream_seq.at != NULL else 0
            cseq = parse_u63(consumer_seq.at, consumer_seq.n) if consumer_seq.at != NULL else 0
            if seq > 0:
                self.ack_upto(<uint64_t>seq, <uint64_t>max(cseq, 0))
        return 1

    cdef int beat(self) except -1:
        """The idle heartbeat; with flow-control acks, also a reminder that some are missing."""
        self.status(self.deliver_subject, "100 Idle Heartbeat", self.position())
        self.beat_ns = self.reactor.now_ns + self.heartbeat_ns
        if self.ack_policy == POLICY_FLOW and self.pending.live and PyBytes_GET_SIZE(self.window.asked) == 0:
            self.ask_flow()
        return 0

    cdef str position(self):
        cdef uint64_t last = self.cursor.passed
        if self.cursor.caught_up:
            last = max(last, self.stream.visible)          # nothing of what came since is wanted
        text = f"Nats-Last-Consumer: {self.delivered}\r\nNats-Last-Stream: {last}\r\n"
        if self.window is not None and self.window.asked:
            text += f"Nats-Consumer-Stalled: {self.window.asked.decode('utf-8', 'surrogateescape')}\r\n"
        return text

    # --- for the engine ------------------------------------------------------------------------------------------------
    def tick(self) -> int:
        """Do what is due at the reactor's time (redeliveries, request expiry, heartbeats); when to call again (ns, 0 = not needed)."""
        cdef uint64_t now = self.reactor.now_ns, next_ns = 0
        if self.closed:
            return 0
        try:
            self.settle()
        except OSError as error:
            self.unreadable(error)
        if self.due_ns and self.due_ns <= now:
            self.redeliver_due()
        if self.held_ns and self.held_ns <= now:
            self.held_ns = 0
            self.kick()
        if self.requests.due_ns and self.requests.due_ns <= now:
            self.sweep(True)
        if self.bound and self.heartbeat_ns and self.beat_ns <= now and self.find_target():
            self.beat()
        if self.groups is not None and self.groups.pin_until_ns and self.groups.pin_until_ns <= now:
            self.unpin(self.groups.pinned_group.decode("utf-8", "surrogateescape"), "timeout")
        for due in (self.due_ns, self.held_ns, self.requests.due_ns, self.beat_ns if self.bound and self.heartbeat_ns else 0,
                    self.groups.pin_until_ns if self.groups is not None else 0):
            if due and (next_ns == 0 or due < next_ns):
                next_ns = due
        self.deadline_ns = next_ns
        return next_ns

    def state(self) -> ConsumerState:
        """Where it stands, as the consumer info tells it. Requests that are over, or whose requester has gone, leave first."""
        self.settle()
        if self.requests.count:
            self.sweep(False)
        redelivered = 0
        if self.max_deliver != 1:
            redelivered = sum([1 for entry in self.pending.entries() if entry[2] > 1]) + len(self.spent or ())
        return ConsumerState(
            self.delivered, self.cursor.passed, self.delivered_ns, self.pending.floor_cseq, self.pending.floor_seq,
            self.acked_ns, self.pending.live, redelivered, self.requests.count, self.cursor.count(self.stream.removals),
        )

    def push_bound(self) -> bool:
        """A push consumer that somebody listens to."""
        return len(self.deliver_subject) > 0 and self.find_target() > 0

    def idle_since_ns(self) -> int:
        """For inactive_threshold: since when nobody uses it (no interest, or no request and no ack wait running); 0 = in use."""
        cdef PullRequest r = self.requests.head
        cdef uint64_t latest = max(self.requested_ns, self.delivered_ns, self.acked_ns), due
        cdef size_t i
        if len(self.deliver_subject):
            return 0 if self.find_target() else self.unbound_ns
        while r is not None:
            if self.ready(r, None):
                return 0
            r = r.next
        if self.ack_policy == POLICY_FLOW:
            return latest
        for i in range(self.pending.off, self.pending.len):
            if self.pending.data[i].state != GONE:
                due = self.pending.data[i].since_ns + self.wait_ns(self.pending.data[i].deliveries)
                latest = max(latest, due)
        return 0 if latest > self.reactor.now_ns else latest

    def pause(self, bint paused) -> None:
        """Hand nothing out (requests wait, acks are processed, heartbeats go on), or go on."""
        self.paused = paused
        self.kick()

    def reset(self, seq: int) -> int:
        """Begin anew: the next message is the first one from this sequence on, and nothing was delivered before; 0: go back to
        the ack floor. The sequence.
        """
        if seq == 0:
            seq = self.pending.floor_seq + 1
        self.pending.clear()
        self.pending.set_floor(0, seq - 1)
        self.cursor.resume(seq, seq - 1, [])
        self.delivered = self.delivered_ns = self.acked_ns = 0
        self.spent = None
        self.due_ns = 0
        self.stalled = False
        if self.confirmer is not None:
            self.confirmer.begun_anew(self)
        self.touch()
        self.settle()
        self.kick()
        return seq

    def snapshot(self) -> bytes:
        """The durable state as a checksummed record; core/consumer/snapshot draws it."""
        cdef size_t i
        cdef Pending* e
        entries = []
        for i in range(self.pending.off, self.pending.len):
            e = self.pending.data + i
            if e.state != GONE:
                entries.append((e.seq, e.cseq, e.since_ns, e.deliveries, e.state))
        if self.spent is not None:
            entries += [(seq, 0, 0, deliveries, SPENT) for seq, deliveries in self.spent.items()]
        self.changed = False
        return pack(
            (self.delivered, self.cursor.passed, self.cursor.next_seq, self.delivered_ns, self.pending.floor_cseq,
             self.pending.floor_seq, self.acked_ns), entries, self.cursor.remaining_starts())

    def restore(self, bytes data) -> None:
        """Take a snapshot back; ValueError when it is not one. Clamped to what the stream holds."""
        cdef uint64_t last = self.log.last_seq
        cdef uint32_t subject_id, size
        cdef Pending* e
        numbers, entries, first_ones = unpack(data)
        delivered, passed, next_seq, self.delivered_ns, floor_cseq, floor_seq, self.acked_ns = numbers
        if delivered:
            passed, next_seq, floor_seq = min(passed, last), min(next_seq, last + 1), min(floor_seq, last)
        # What was handed out is behind the cursor, whatever the record says: a backup may come from anybody.
        handed = max([entry[0] for entry in entries if entry[4] != SPENT and entry[0] <= last], default=0)
        first_ones = sorted({seq for seq in first_ones if handed < seq <= last})
        next_seq = max(next_seq, handed + 1, max(first_ones, default=0) + 1)
        floor_cseq, floor_seq = min(floor_cseq, delivered), min(floor_seq, passed)
        self.delivered = delivered
        self.cursor.resume(next_seq, passed, first_ones)
        self.pending.clear()
        self.spent = None
        for seq, cseq, since_ns, deliveries, state in entries:
            if not self.log.peek(seq, &subject_id, &size):
                continue
            if state == SPENT:
                if self.spent is None:
                    self.spent = {}
                self.spent[seq] = deliveries
                continue
            self.pending.push(seq, cseq, since_ns)
            e = self.pending.find(seq)
            e.deliveries = deliveries
            e.state = WAITING
            if state == QUEUED:
                self.pending.enqueue(e)
            else:
                e.state = state
        self.pending.set_floor(floor_cseq, floor_seq)
        self.look_again()
        if self.pending.live or self.spent is not None:
            self.stream.hold(self)
        self.settle()
        self.changed = False
        self.kick()

    def close(self, str reason) -> None:
        """End it: waiting pull requests get `409 <reason>` (none when it is ""); it delivers nothing afterwards."""
        cdef PullRequest r = self.requests.detach()
        if self.closed:
            return
        self.closed = True
        self.stream.drop_listener(self, self.cursor.filters if self.cursor.filtered else ())
        if self.deliver_subject:
            self.router.unwatch(self.deliver_subject.decode("utf-8", "surrogateescape"), self)
        while r is not None:
            if reason == "Server Shutdown":
                self.end_request(r, "409 Server Shutdown")
            elif reason:
                self.status(r.reply, f"409 {reason}", "")
            r = r.next

