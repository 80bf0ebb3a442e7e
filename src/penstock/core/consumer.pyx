"""A consumer: when it runs, who gets its messages, and what the engine asks of it. What it hands out is in core/handout.

A consumer runs in the delivery phase of a turn when something made it worth while: a request came, a message it wants became
visible, an ack made room, a client drained, a time was reached. Each run hands out at most BUDGET messages, so that nobody waits
for one busy consumer. The stored state is drawn in core/snapshot. Knows nothing of JSON configuration.
"""
from collections import namedtuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.handout cimport NEXT, STALLED, Handout
from penstock.core.hub cimport Task
from penstock.core.log cimport Record
from penstock.core.pacing cimport FlowWindow, Pacing
from penstock.core.pending cimport GONE, QUEUED, WAITING, Pending
from penstock.core.pull cimport PullQueue, PullRequest, PullSpec, parse_pull
from penstock.core.router cimport Message
from penstock.core.stream cimport Stream

from penstock.core.durations import format_duration
from penstock.core.snapshot import pack, unpack

ACK_NONE = 0
ACK_ALL = 1
ACK_EXPLICIT = 2

cdef enum:
    BUDGET = 4096                  # messages of one run
    BATCH_MAX = 1073741824         # a larger batch is cut to this, so that sums of batches stay numbers
    SWEEP_STEP_NS = 1000000000     # a full queue of requests is searched for expired ones at most this often

_TOKEN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

ConsumerState = namedtuple("ConsumerState", [
    "delivered_consumer_seq", "delivered_stream_seq", "delivered_last_ns", "floor_consumer_seq", "floor_stream_seq",
    "floor_last_ns", "num_ack_pending", "num_redelivered", "num_waiting", "num_pending",
])


cdef class Consumer(Handout):
    """One consumer of a stream. Made by the engine; deliver policy is already turned into a first sequence by it."""

    def __init__(self, Stream stream, str name, *, start_seq: int) -> None:
        Handout.__init__(self, stream, name, start_seq=start_seq)
        self.requests = PullQueue()
        self.deliver_subject = b""
        self.deliver_group = b""
        self.requested_ns = self.unbound_ns = self.hub.now_ns

    cdef bint in_demand(self) noexcept:
        return self.requests.count > 0 or self.bound

    def configure(
        self, *, int ack_policy, ack_wait_ns: int = 30_000_000_000, tuple backoff_ns = (), max_deliver: int = -1,
        max_ack_pending: int = 1000, max_waiting: int = 512, max_batch: int = 0, max_expires_ns: int = 0, max_bytes: int = 0,
        tuple filters = (), last_per_subject: bool = False, headers_only: bool = False, rate_limit_bps: int = 0,
        replay_original: bool = False, str deliver_subject = "", str deliver_group = "", idle_heartbeat_ns: int = 0,
        flow_control: bool = False,
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
        self.heartbeat_ns = idle_heartbeat_ns
        if not self.configured or patterns != self.selection.filters:
            self.stream.drop_listener(self, self.selection.filters if self.selection.filtered else ())
            self.selection.set_filters(patterns)
            self.stream.add_listener(self, patterns if self.selection.filtered else ())
            if self.pending.live:
                self.stream.hold(self)
        if last_per_subject and not self.configured:
            self.selection.start_with_last()
            self.pending.set_floor(0, self.selection.passed)
        self.pacing = None
        if rate_limit_bps or replay_original:
            burst = self.stream.max_msg_size if self.stream.max_msg_size > 0 else self.hub.max_payload
            self.pacing = Pacing(rate_limit_bps, burst, self.log.last_seq if replay_original else 0)
        if not flow_control:
            self.window = None
        elif self.window is None:
            self.window = FlowWindow()
        self.set_target(deliver_subject, deliver_group)
        self.configured = True
        self.stalled = False
        self.due_ns = 1 if self.pending.live else 0        # waits may be shorter now: look at the next tick
        if self.due_ns:
            self.arm(self.hub.now_ns)
        self.kick()

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
        if self.closed or self.paused:
            return 0
        self.settle()
        if PyBytes_GET_SIZE(self.deliver_subject):
            return self.run_push()
        return self.run_pull()

    cdef int run_pull(self) except -1:
        cdef int budget = BUDGET, why
        cdef uint64_t size
        cdef PullRequest r
        cdef Record record
        while budget:
            if self.requests.count == 0:
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
            self.disturbed = False
            r = self.choose(size)
            if r is None:
                return 0
            if self.disturbed:
                continue
            if self.hand_out(r.route, r.reply) == 0:
                self.requests.pop()
                continue
            self.handed(record.ts_ns, size)
            self.completed(r, size)
            budget -= 1
        return 1

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
            if self.hand_out(self.target, self.deliver_subject) == 0:
                self.target = None
                return 1 if self.find_target() == 2 else 0
            self.handed(record.ts_ns, size)
            if self.heartbeat_ns:
                self.beat_ns = self.hub.now_ns + self.heartbeat_ns
            if self.window is not None and self.window.sent(size):
                self.ask_flow()
            budget -= 1
        return 1

    cdef int rest(self, int why) except -1:
        """Nothing can go out: see to it that the consumer runs again when that changes."""
        if self.requests.impatient:
            self.end_impatient(why == STALLED)
        if why == STALLED:
            return 0                                   # an ack makes room
        if not self.selection.caught_up and self.in_demand():
            self.stream.await_more(self)
        return 0

    # --- pull requests -------------------------------------------------------------------------------------------------
    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1:
        """A pull request came; 0: this consumer is closed."""
        cdef PullSpec spec
        cdef PullRequest r
        cdef uint64_t now = self.hub.now_ns, ahead
        if self.closed:
            return 0
        if reply_len == 0:
            return 1
        if PyBytes_GET_SIZE(self.deliver_subject):
            return self.refuse_request(reply, reply_len, "409 Consumer is push based")
        self.requested_ns = now
        if not parse_pull(body, n, &spec):
            return self.refuse_request(reply, reply_len, "400 Bad Request - invalid JSON")
        if self.max_batch > 0 and spec.batch > self.max_batch:
            return self.refuse_request(reply, reply_len, f"409 Exceeded MaxRequestBatch of {self.max_batch}")
        if self.max_expires_ns > 0 and spec.expires_ns > self.max_expires_ns:
            return self.refuse_request(
                reply, reply_len, f"409 Exceeded MaxRequestExpires of {format_duration(self.max_expires_ns)}")
        if self.max_bytes > 0 and spec.max_bytes > self.max_bytes:
            return self.refuse_request(reply, reply_len, f"409 Exceeded MaxRequestMaxBytes of {self.max_bytes}")
        if spec.heartbeat_ns and spec.heartbeat_ns > spec.expires_ns // 2:
            return self.refuse_request(reply, reply_len, "400 Bad Request - heartbeat value too large")
        if spec.expires_ns < 0:
            self.status(PyBytes_FromStringAndSize(reply, reply_len), "408 Request Timeout",
                        f"Nats-Pending-Messages: {spec.batch}\r\nNats-Pending-Bytes: {spec.max_bytes}\r\n")
            return 1
        if spec.no_wait:
            self.settle()
            ahead = self.selection.count(self.stream.removals) + (self.pending.queue_len - self.pending.queue_off)
            if ahead == 0 and spec.expires_ns == 0:
                return self.refuse_request(reply, reply_len, "404 No Messages")
            if ahead and ahead < <uint64_t>self.requests.wanted:
                return self.refuse_request(reply, reply_len, "408 Requests Pending")
        if self.max_waiting > 0 and self.requests.count >= <size_t>self.max_waiting:
            if now - self.swept_ns >= SWEEP_STEP_NS:
                self.swept_ns = now
                self.sweep()
            if self.requests.count >= <size_t>self.max_waiting:
                return 1 if spec.heartbeat_ns else self.refuse_request(reply, reply_len, "409 Exceeded MaxWaiting")
        r = PullRequest.__new__(PullRequest)
        r.reply = PyBytes_FromStringAndSize(reply, reply_len)
        r.left = min(spec.batch, BATCH_MAX)
        r.bytes_left = spec.max_bytes
        r.no_wait = spec.no_wait
        r.heartbeat_ns = spec.heartbeat_ns
        r.beat_ns = now + spec.heartbeat_ns
        r.expires_ns = now + spec.expires_ns if spec.expires_ns else 0
        self.requests.add(r)
        if self.requests.due_ns:
            self.arm(self.requests.due_ns)
        self.kick()
        return 1

    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1:
        self.status(PyBytes_FromStringAndSize(reply, n), line, "")
        return 1

    cdef int status(self, bytes subject, str line, str headers) except -1:
        """An empty message whose header block is a status line."""
        cdef Message m
        cdef bytes block = f"NATS/1.0 {line}\r\n{headers}\r\n".encode()
        m.subject = PyBytes_AS_STRING(subject)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(subject)
        m.reply = NULL
        m.reply_len = 0
        m.body = PyBytes_AS_STRING(block)
        m.hlen = m.body_len = <uint32_t>PyBytes_GET_SIZE(block)
        self.disturbed = True
        self.router.send(&m)
        return 0

    cdef int end_request(self, PullRequest r, str line) except -1:
        return self.status(r.reply, line, f"Nats-Pending-Messages: {r.left}\r\nNats-Pending-Bytes: {r.bytes_left}\r\n")

    cdef int ready(self, PullRequest r, Task waiter) except -1:
        """As Router.readiness; asked again once before nobody is said to be there."""
        cdef int n
        if r.route is None or self.router.stale(r.route):
            r.route = self.router.interest(PyBytes_AS_STRING(r.reply), PyBytes_GET_SIZE(r.reply))
        n = self.router.readiness(r.route, waiter)
        if n == 0:
            r.route = self.router.interest(PyBytes_AS_STRING(r.reply), PyBytes_GET_SIZE(r.reply))
            n = self.router.readiness(r.route, waiter)
        return n

    cdef PullRequest choose(self, uint64_t size):
        """The request that gets the next message, now at the head of the queue; None: nobody can take it."""
        cdef size_t tries = self.requests.count
        cdef PullRequest r
        cdef int n
        while tries and self.requests.count:
            tries -= 1
            r = self.requests.head
            if r.expires_ns and r.expires_ns <= self.hub.now_ns:
                self.end_request(self.requests.pop(), "408 Request Timeout")
                continue
            n = self.ready(r, self)
            if n == 0:
                self.requests.pop()
            elif n == 1:
                self.requests.rotate()
            elif r.bytes_left and size > <uint64_t>r.bytes_left:
                self.end_request(self.requests.pop(), "409 Message Size Exceeds MaxBytes")
            else:
                return r
        return None

    cdef int completed(self, PullRequest r, uint64_t size) except -1:
        """The head of the queue got a message."""
        if r.bytes_left:
            r.bytes_left -= size
            if r.bytes_left == 0:
                self.requests.wanted -= r.left - 1
                r.left = 1
        self.requests.served(self.hub.now_ns)
        if r.left == 0 and r.bytes_left:
            self.end_request(r, "409 Batch Completed")
        return 0

    cdef int end_impatient(self, bint stalled) except -1:
        """Requests that do not wait end here, unless they may wait for their first message.

        When it is only the acks that are missing (stalled), those without a message stay, as in nats-server.
        """
        cdef PullRequest r = self.requests.detach(), following
        while r is not None:
            following = r.next
            if r.no_wait and (r.delivered or (r.expires_ns == 0 and not stalled)):
                self.status(r.reply, "404 No Messages", "")
            else:
                self.requests.add(r)
            r = following
        return 0

    cdef int sweep(self) except -1:
        """End expired requests, forget those nobody listens for any more, send the heartbeats that are due."""
        cdef PullRequest r = self.requests.detach(), following
        cdef uint64_t now = self.hub.now_ns
        while r is not None:
            following = r.next
            if r.expires_ns and r.expires_ns <= now:
                self.end_request(r, "408 Request Timeout")
            elif self.ready(r, None):
                if r.heartbeat_ns and r.beat_ns <= now:
                    self.status(r.reply, "100 Idle Heartbeat", self.position())
                    r.beat_ns = now + r.heartbeat_ns
                self.requests.add(r)
            r = following
        return 0

    # --- push ----------------------------------------------------------------------------------------------------------
    cdef int find_target(self) except -1:
        cdef int n, look
        for look in range(2):
            if self.target is None or (look == 0 and self.router.stale(self.target)) or look:
                self.target = self.router.interest_in(
                    PyBytes_AS_STRING(self.deliver_subject), PyBytes_GET_SIZE(self.deliver_subject), self.deliver_group)
            n = self.router.readiness(self.target, self)
            if n:
                break
        if n and not self.bound:
            self.bound = True
            if self.heartbeat_ns:
                self.beat_ns = self.hub.now_ns + self.heartbeat_ns
                self.arm(self.beat_ns)
        elif n == 0 and self.bound:
            self.bound = False
            self.unbound_ns = self.hub.now_ns
        return n

    cdef int ask_flow(self) except -1:
        """Ask the client to say when it has processed everything up to here."""
        cdef int i
        cdef uint64_t random
        cdef bytes block = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        token = ""
        random = self.hub.random() >> 8
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

    cdef int flow_answer(self, const char* subject, size_t n) except -1:
        if self.window is None:
            return 0                           # it never asks: nobody is there for such an answer
        if self.window.answered(subject, n):
            self.kick()
        return 1

    cdef str position(self):
        cdef uint64_t last = self.selection.passed
        if self.selection.caught_up:
            last = max(last, self.stream.visible)          # nothing of what came since is wanted
        text = f"Nats-Last-Consumer: {self.delivered}\r\nNats-Last-Stream: {last}\r\n"
        if self.window is not None and self.window.asked:
            text += f"Nats-Consumer-Stalled: {self.window.asked.decode('utf-8', 'surrogateescape')}\r\n"
        return text

    # --- for the engine ------------------------------------------------------------------------------------------------
    def tick(self) -> int:
        """Do what is due at the hub's time (redeliveries, request expiry, heartbeats); when to call again (ns, 0 = not needed)."""
        cdef uint64_t now = self.hub.now_ns, next_ns = 0
        if self.closed:
            return 0
        self.settle()
        if self.due_ns and self.due_ns <= now:
            self.redeliver_due()
        if self.held_ns and self.held_ns <= now:
            self.held_ns = 0
            self.kick()
        if self.requests.due_ns and self.requests.due_ns <= now:
            self.sweep()
        if self.bound and self.heartbeat_ns and self.beat_ns <= now and self.find_target():
            self.status(self.deliver_subject, "100 Idle Heartbeat", self.position())
            self.beat_ns = now + self.heartbeat_ns
        for due in (self.due_ns, self.held_ns, self.requests.due_ns, self.beat_ns if self.bound and self.heartbeat_ns else 0):
            if due and (next_ns == 0 or due < next_ns):
                next_ns = due
        self.deadline_ns = next_ns
        return next_ns

    def state(self) -> ConsumerState:
        """Where it stands, as the consumer info tells it."""
        self.settle()
        redelivered = sum([1 for entry in self.pending.entries() if entry[2] > 1]) if self.max_deliver != 1 else 0
        return ConsumerState(
            self.delivered, self.selection.passed, self.delivered_ns, self.pending.floor_cseq, self.pending.floor_seq,
            self.acked_ns, self.pending.live, redelivered, self.requests.count, self.selection.count(self.stream.removals),
        )

    def push_bound(self) -> bool:
        """A push consumer that somebody listens to."""
        return len(self.deliver_subject) > 0 and self.find_target() > 0

    def idle_since_ns(self) -> int:
        """For inactive_threshold: since when nobody uses it (no interest, or no request and no ack wait running); 0 = in use."""
        cdef PullRequest r = self.requests.head
        cdef uint64_t latest = self.requested_ns, due
        cdef size_t i
        if len(self.deliver_subject):
            return 0 if self.find_target() else self.unbound_ns
        while r is not None:
            if self.ready(r, None):
                return 0
            r = r.next
        for i in range(self.pending.off, self.pending.len):
            if self.pending.data[i].state != GONE:
                due = self.pending.data[i].since_ns + self.wait_ns(self.pending.data[i].deliveries)
                latest = max(latest, due)
        return 0 if latest > self.hub.now_ns else latest

    def pause(self, bint paused) -> None:
        """Hand nothing out (requests wait, acks are processed, heartbeats go on), or go on."""
        self.paused = paused
        if not paused:
            self.kick()

    def snapshot(self) -> bytes:
        """The durable state as a checksummed record; core/snapshot draws it."""
        cdef size_t i
        cdef Pending* e
        entries = []
        for i in range(self.pending.off, self.pending.len):
            e = self.pending.data + i
            if e.state != GONE:
                entries.append((e.seq, e.cseq, e.since_ns, e.deliveries, e.state))
        self.changed = False
        return pack(
            (self.delivered, self.selection.passed, self.selection.next_seq, self.delivered_ns, self.pending.floor_cseq,
             self.pending.floor_seq, self.acked_ns), entries, self.selection.remaining_starts())

    def restore(self, bytes data) -> None:
        """Take a snapshot back; ValueError when it is not one. Clamped to what the stream holds."""
        cdef uint64_t last = self.log.last_seq
        cdef uint32_t subject_id, size
        cdef Pending* e
        numbers, entries, first_ones = unpack(data)
        delivered, passed, next_seq, self.delivered_ns, floor_cseq, floor_seq, self.acked_ns = numbers
        if delivered:
            passed, next_seq, floor_seq = min(passed, last), min(next_seq, last + 1), min(floor_seq, last)
        self.delivered = delivered
        self.selection.resume(next_seq, passed, [seq for seq in first_ones if seq <= last])
        self.pending.clear()
        for seq, cseq, since_ns, deliveries, state in entries:
            if not self.log.peek(seq, &subject_id, &size):
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
        self.due_ns = 1 if self.pending.live else 0
        if self.pending.live:
            self.stream.hold(self)
            self.arm(self.hub.now_ns)
        self.settle()
        self.changed = False
        self.kick()

    def close(self, str reason) -> None:
        """End it: waiting pull requests get `409 <reason>` (none when it is ""); it delivers nothing afterwards."""
        cdef PullRequest r = self.requests.detach()
        if self.closed:
            return
        self.closed = True
        self.stream.drop_listener(self, self.selection.filters if self.selection.filtered else ())
        if self.deliver_subject:
            self.router.unwatch(self.deliver_subject.decode("utf-8", "surrogateescape"), self)
        while r is not None:
            if reason == "Server Shutdown":
                self.end_request(r, "409 Server Shutdown")
            elif reason:
                self.status(r.reply, f"409 {reason}", "")
            r = r.next

