"""The pull side of a consumer: requests come, wait, are served and end.

Every request ends with a status line unless its messages say that it has ended; core/consumer/pull_requests draws requests and keeps their order,
core/consumer/priority_groups says who is next where there are priority groups. Knows nothing of push consumers but that they refuse requests.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.broker.reactor cimport Task
from penstock.core.broker.router cimport Message
from penstock.core.consumer.delivery cimport BUDGET, NEXT, STALLED, Delivery
from penstock.core.consumer.priority_groups cimport PINNED, TAKES, WRONG_PIN, PriorityGroups, needless
from penstock.core.consumer.pull_requests cimport PullQueue, PullRequest, PullSpec, parse_pull
from penstock.core.log.log cimport Record
from penstock.core.stream.stream cimport Stream

from penstock.core.base.durations import format_duration

cdef enum:
    PIN_LEN = 22
    LAST_PRIORITY = 10             # of requests that name none
    SWEEP_STEP_NS = 1000000000     # a full queue of requests is searched for expired ones at most this often

# A larger batch is cut to this, so that sums of batches stay numbers.
cdef int64_t BATCH_MAX = 1 << 40

_TOKEN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef class PullDelivery(Delivery):
    """The part of a consumer that knows of requests; see Consumer."""

    def __init__(self, Stream stream, str name, *, start_seq: int) -> None:
        Delivery.__init__(self, stream, name, start_seq=start_seq)
        self.requests = PullQueue()
        self.deliver_subject = b""
        self.requested_ns = self.reactor.now_ns

    cdef str position(self):
        return ""

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
            r = self.choose(size) if self.groups is None else self.choose_in_groups(size)
            if r is None:
                return 0 if self.groups is None else self.nobody_may()
            if self.disturbed:
                continue
            if self.groups is not None and self.groups.policy == PINNED:
                self.groups.mark(&self.out)
            if self.hand_out(r.route, r.reply) == 0:
                self.requests.pop()
                continue
            self.handed(record.ts_ns, size)
            self.completed(r, size)
            budget -= 1
        return 1

    cdef int rest(self, int why) except -1:
        """Nothing can go out: see to it that the consumer runs again when that changes."""
        if why == STALLED:
            return 0                                   # an ack makes room; requests that do not wait do wait for that
        if self.requests.impatient and (
                self.stream.visible >= self.log.last_seq or self.stream.failure
                or self.cursor.count(self.stream.removals) == 0):
            self.end_impatient()                       # not while a message is on its way to the disk
        if not self.cursor.caught_up and self.in_demand():
            self.stream.await_more(self)
        return 0

    # --- pull requests -------------------------------------------------------------------------------------------------
    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1:
        """A pull request came; 0: this consumer is closed."""
        cdef PullSpec spec
        cdef PullRequest r
        cdef uint64_t now = self.reactor.now_ns, ahead
        if self.closed:
            return 0
        if reply_len == 0:
            return 1
        if PyBytes_GET_SIZE(self.deliver_subject):
            return self.refuse_request(reply, reply_len, "409 Consumer is push based")
        if not parse_pull(body, n, &spec):
            return self.refuse_request(reply, reply_len, "400 Bad Request - " + self.explained(PyBytes_FromStringAndSize(body, n)))
        if spec.heartbeat_ns and spec.heartbeat_ns > spec.expires_ns // 2:
            return self.refuse_request(reply, reply_len, "400 Bad Request - heartbeat value too large")
        if self.max_batch > 0 and spec.batch > self.max_batch:
            return self.refuse_request(reply, reply_len, f"409 Exceeded MaxRequestBatch of {self.max_batch}")
        if self.max_expires_ns > 0 and spec.expires_ns > self.max_expires_ns:
            return self.refuse_request(
                reply, reply_len, f"409 Exceeded MaxRequestExpires of {format_duration(self.max_expires_ns)}")
        if self.max_bytes > 0 and spec.max_bytes > self.max_bytes:
            return self.refuse_request(reply, reply_len, f"409 Exceeded MaxRequestMaxBytes of {self.max_bytes}")
        if spec.special or self.groups is not None:
            line = needless(&spec) if self.groups is None else self.groups.refusal(&spec)
            if line is not None:
                return self.refuse_request(reply, reply_len, line)
            if self.groups is not None:
                self.groups.asked(&spec, now)
        self.requested_ns = now
        if spec.expires_ns < 0:
            self.status(PyBytes_FromStringAndSize(reply, reply_len), "408 Request Timeout",
                        f"Nats-Pending-Messages: {spec.batch}\r\nNats-Pending-Bytes: {spec.max_bytes}\r\n")
            return 1
        if spec.no_wait:
            try:
                self.settle()
                ahead = self.cursor.count(self.stream.removals) + (self.pending.queue_len - self.pending.queue_off)
            except OSError as error:
                self.stream.read_failed(error)
                return self.refuse_request(reply, reply_len, f"500 {error.strerror}")
            if ahead == 0 and spec.expires_ns == 0:
                return self.refuse_request(reply, reply_len, "404 No Messages")
            if ahead and <int64_t>ahead < self.requests.wanted:
                self.sweep(False)                      # do not count requests that are over
                if <int64_t>ahead < self.requests.wanted:
                    return self.refuse_request(reply, reply_len, "408 Requests Pending")
        if self.max_waiting > 0 and self.requests.count >= <size_t>self.max_waiting:
            if now - self.swept_ns >= SWEEP_STEP_NS:
                self.swept_ns = now
                self.sweep(False)
            if self.requests.count >= <size_t>self.max_waiting:
                return 1 if spec.heartbeat_ns else self.refuse_request(reply, reply_len, "409 Exceeded MaxWaiting")
        r = PullRequest.__new__(PullRequest)
        r.reply = PyBytes_FromStringAndSize(reply, reply_len)
        r.left = max(min(spec.batch, BATCH_MAX), -BATCH_MAX)
        r.bytes_left = spec.max_bytes
        r.no_wait = spec.no_wait
        r.heartbeat_ns = spec.heartbeat_ns
        r.beat_ns = now + spec.heartbeat_ns
        r.expires_ns = now + spec.expires_ns if spec.expires_ns else 0
        if self.groups is not None:
            r.group = PyBytes_FromStringAndSize(spec.group, spec.group_len)
            r.client = PyBytes_FromStringAndSize(spec.client, spec.client_len)
            r.min_pending = spec.min_pending
            r.min_ack_pending = spec.min_ack_pending
            r.priority = spec.priority if spec.json else LAST_PRIORITY
        self.requests.add(r)
        if self.requests.due_ns:
            self.arm(self.requests.due_ns)
        self.kick()
        return 1

    def explained(self, body: bytes) -> str:
        """What is wrong with a request, in words."""
        if self.api_subjects is None or self.api_subjects.explain_pull is None:
            return "invalid JSON"
        return self.api_subjects.explain_pull(body)

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
            if r.expires_ns and r.expires_ns <= self.reactor.now_ns:
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

    cdef PullRequest choose_in_groups(self, uint64_t size):
        """As choose(), by the rules of the consumer's priority groups."""
        cdef size_t passed_over = 0
        cdef uint64_t ahead = self.cursor.count(self.stream.removals) + (self.again != NULL)
        cdef PullRequest r = self.requests.head, before = None
        cdef int n, verdict
        cdef bint pinned
        while r is not None:
            line = None
            pinned = False
            n = 0
            verdict = self.groups.judge(r, ahead, self.pending.live)
            if r.expires_ns and r.expires_ns <= self.reactor.now_ns:
                line = "408 Request Timeout"
            elif verdict == WRONG_PIN:
                line = "423 Nats-Wrong-Pin-Id"
            else:
                n = self.ready(r, self) if verdict == TAKES else 1
                if n == 2:
                    pinned = self.groups.claims(r)
                    if r.bytes_left and size > <uint64_t>r.bytes_left:
                        line = "409 Message Size Exceeds MaxBytes"
            if n == 1 and not self.requests.prioritized:
                self.requests.rotate()
                passed_over += 1
                if passed_over >= self.requests.count:
                    return None
                r = self.requests.head
            elif n == 1:
                before = r
                r = r.next
            else:
                if before is not None:
                    self.requests.promote(before)
                if pinned:
                    self.pin(r)                        # a sink of advisories can lead anywhere, but not to this consumer
                if n == 2 and line is None:
                    return r
                if pinned:
                    self.groups.unpin()                # it is told of the pin, and not that it has lost it
                self.requests.pop()
                if line is not None:
                    self.end_request(r, line)          # which can lead anywhere: start again
                before = None
                r = self.requests.head
        return None

    cdef int nobody_may(self) except -1:
        """There is a message, and requests, but none that may have it."""
        if self.requests.count:
            if self.requests.impatient:
                self.end_impatient()
            self.stream.await_more(self)
        return 0

    cdef int pin(self, PullRequest r) except -1:
        """Nobody is pinned: the client of this request is from now on."""
        cdef int i
        cdef uint64_t random = 0
        token = ""
        for i in range(PIN_LEN):
            if random == 0:
                random = self.reactor.random()
            token += _TOKEN[random % 62]
            random //= 62
        self.groups.assign(r, token.encode(), self.reactor.now_ns)
        self.arm(self.groups.pin_until_ns)
        if self.api_subjects is not None and self.api_subjects.pin_advisory is not None:
            self.api_subjects.pin_advisory(self, r.group.decode("utf-8", "surrogateescape"), token, "")
        return 0

    def unpin(self, str group, str reason) -> None:
        """Take the pin from whoever has it: another client gets it. Told with the reason: admin or timeout."""
        self.groups.unpin()
        if self.api_subjects is not None and self.api_subjects.pin_advisory is not None:
            self.api_subjects.pin_advisory(self, group, "", reason)
        self.kick()

    cdef int completed(self, PullRequest r, uint64_t size) except -1:
        """The head of the queue got a message."""
        if r.bytes_left:
            r.bytes_left -= size
            if r.bytes_left == 0:
                self.requests.wanted -= r.left - 1
                r.left = 1
        self.requests.served(self.reactor.now_ns)
        if r.left <= 0 and r.bytes_left:
            self.end_request(r, "409 Batch Completed")
        return 0

    cdef int end_impatient(self) except -1:
        """Nothing is there: requests that do not wait end here, unless they may wait for their first message."""
        cdef PullRequest r = self.requests.detach(), following
        while r is not None:
            following = r.next
            if r.no_wait and (r.delivered or r.expires_ns == 0):
                self.status(r.reply, "404 No Messages", "")
            else:
                self.requests.add(r)
            r = following
        return 0

    cdef int sweep(self, bint at_the_end) except -1:
        """End expired requests, forget those nobody listens for any more, send the heartbeats that are due.

        At the end of what is there, also those that do not wait (it may be the acks that are missing).
        """
        cdef PullRequest r = self.requests.detach(), following
        cdef uint64_t now = self.reactor.now_ns
        while r is not None:
            following = r.next
            if r.expires_ns and r.expires_ns <= now:
                self.end_request(r, "408 Request Timeout")
            elif at_the_end and r.no_wait and (r.delivered or r.expires_ns == 0):
                self.status(r.reply, "404 No Messages", "")
            elif self.ready(r, None):
                if r.heartbeat_ns and r.beat_ns <= now:
                    self.status(r.reply, "100 Idle Heartbeat", self.position())
                    r.beat_ns = now + r.heartbeat_ns
                self.requests.add(r)
            r = following
        return 0
