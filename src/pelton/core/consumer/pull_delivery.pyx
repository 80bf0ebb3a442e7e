"""The pull requests of a consumer: how they arrive, wait, get messages and end.

Every request ends with a status message, unless it has got all its messages. core/consumer/pull_requests parses requests and keeps
their order; core/consumer/priority_groups decides which request is next in priority groups. Knows nothing of push consumers.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from pelton.core.consumer.consumer_task cimport ENDED, ConsumerTask
from pelton.core.consumer.delivery cimport BUDGET, NEXT, STALLED, Delivery, send_status
from pelton.core.consumer.priority_groups cimport PINNED, PRIORITIZED, TAKES, WRONG_PIN, PriorityGroups, needless
from pelton.core.consumer.pull_requests cimport PullQueue, PullRequest, PullSpec, parse_pull, request_of
from pelton.core.log.log cimport Record

from pelton.core.base.durations import format_duration

cdef enum:
    PIN_LEN = 22
    SWEEP_STEP_NS = 1000000000     # a full queue of requests is searched for expired ones at most this often

_TOKEN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@cython.final
cdef class PullDelivery:
    """The pull requests of one consumer."""

    def __init__(self, ConsumerTask consumer, Delivery delivery) -> None:
        self.consumer = consumer
        self.delivery = delivery
        self.stream = consumer.stream
        self.reactor = self.stream.reactor
        self.router = self.stream.router
        self.requests = PullQueue()
        self.requested_ns = self.reactor.now_ns

    def configure(self, *, int64_t max_waiting, int64_t max_batch, int64_t max_expires_ns, int64_t max_bytes) -> None:
        """Set or change the limits of requests; 0: no limit."""
        self.max_waiting = max_waiting
        self.max_batch = max_batch
        self.max_expires_ns = max_expires_ns
        self.max_bytes = max_bytes

    cdef int set_groups(self, int policy, tuple names, uint64_t pin_ttl_ns) except -1:
        """Set or change the priority groups; a policy of 0: none."""
        if policy == 0:
            self.groups = None
        else:
            groups = tuple([name.encode("utf-8", "surrogateescape") for name in names])
            if self.groups is None:
                self.groups = PriorityGroups(policy, groups, pin_ttl_ns)
            else:
                self.groups.set_rules(policy, groups, pin_ttl_ns)
        self.requests.order_by_priority(policy == PRIORITIZED)
        return 0

    cdef int end(self, str reason) except -1:
        """End all requests: with the status `409 <reason>`, or without a status when the reason is ""."""
        cdef PullRequest r = self.requests.detach()
        while r is not None:
            if reason == "Server Shutdown":
                self.end_request(r, "409 Server Shutdown")
            elif reason:
                self.status(r.reply, f"409 {reason}", "")
            r = r.next
        self.consumer = ENDED
        return 0

    cdef int expire(self, bytes reply) except -1:
        """End the requests with this reply subject as if their time were over."""
        cdef PullRequest r = self.requests.detach(), following
        while r is not None:
            following = r.next
            if r.reply == reply:
                self.end_request(r, "408 Request Timeout")
            else:
                self.requests.add(r)
            r = following
        return 0

    # --- delivery ------------------------------------------------------------------------------------------------------
    cdef int run(self) except -1:
        cdef Delivery delivery = self.delivery
        cdef int budget = BUDGET, why
        cdef uint64_t size
        cdef PullRequest r
        cdef Record record
        while budget:
            if self.requests.count == 0:
                return 0
            why = delivery.pick()
            if why != NEXT:
                return self.rest(why)
            if not delivery.log.read(delivery.picked, &record):
                delivery.gone()
                continue
            size = delivery.prepare(&record)
            if delivery.held(record.ts_ns, size):
                return 0
            self.disturbed = False
            r = self.choose(size) if self.groups is None else self.choose_in_groups(size)
            if r is None:
                return 0 if self.groups is None else self.no_request_may()
            if self.disturbed:
                continue
            if self.groups is not None and self.groups.policy == PINNED:
                self.groups.mark(&delivery.out)
            if delivery.hand_out(r.route, r.reply) == 0:
                self.requests.pop()
                continue
            delivery.handed(record.ts_ns, size)
            self.completed(r, size)
            budget -= 1
        return 1

    cdef int rest(self, int why) except -1:
        """No message can be delivered: let the consumer run again when that changes."""
        if why == STALLED:
            return 0                                   # an ack makes room; requests with no_wait wait for it, too
        if self.requests.impatient and (
                self.delivery.committer.visible >= self.delivery.log.span.last_seq or self.delivery.committer.failure
                or self.delivery.cursor.count(self.delivery.listeners.removals) == 0):
            self.end_impatient()                       # not while a message is being written
        return self.delivery.await_more()

    cdef int tick(self) except -1:
        """End the requests, heartbeats and pins that are due at the reactor's time."""
        cdef uint64_t now = self.reactor.now_ns
        if self.requests.due_ns and self.requests.due_ns <= now:
            self.sweep(True)
        if self.groups is not None and self.groups.pin_until_ns and self.groups.pin_until_ns <= now:
            self.unpin(self.groups.pinned_group.decode("utf-8", "surrogateescape"), "timeout")
        return 0

    # --- pull requests -------------------------------------------------------------------------------------------------
    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1:
        """Queue a request, or answer it with a status that says why not."""
        cdef PullSpec spec
        if not parse_pull(body, n, &spec):
            return self.refuse_request(reply, reply_len, "400 Bad Request - " + self.explained(PyBytes_FromStringAndSize(body, n)))
        line = self.refusal(&spec)
        if line is not None:
            return self.refuse_request(reply, reply_len, line)
        self.requested_ns = self.reactor.now_ns
        if spec.expires_ns < 0:
            self.status(PyBytes_FromStringAndSize(reply, reply_len), "408 Request Timeout",
                        f"Nats-Pending-Messages: {spec.batch}\r\nNats-Pending-Bytes: {spec.max_bytes}\r\n")
            return 1
        if spec.no_wait:
            line = self.refusal_without_wait(&spec)
            if line is not None:
                return self.refuse_request(reply, reply_len, line)
        if self.max_waiting > 0 and self.requests.count >= <size_t>self.max_waiting and self.queue_is_full():
            return 1 if spec.heartbeat_ns else self.refuse_request(reply, reply_len, "409 Exceeded MaxWaiting")
        return self.enqueue(reply, reply_len, &spec)

    cdef str refusal(self, PullSpec* spec):
        if spec.heartbeat_ns and spec.heartbeat_ns > spec.expires_ns // 2:
            return "400 Bad Request - heartbeat value too large"
        if self.max_batch > 0 and spec.batch > self.max_batch:
            return f"409 Exceeded MaxRequestBatch of {self.max_batch}"
        if self.max_expires_ns > 0 and spec.expires_ns > self.max_expires_ns:
            return f"409 Exceeded MaxRequestExpires of {format_duration(self.max_expires_ns)}"
        if self.max_bytes > 0 and spec.max_bytes > self.max_bytes:
            return f"409 Exceeded MaxRequestMaxBytes of {self.max_bytes}"
        if self.groups is None:
            return needless(spec) if spec.special else None
        line = self.groups.refusal(spec)
        if line is None:
            self.groups.asked(spec, self.reactor.now_ns)
        return line

    cdef str refusal_without_wait(self, PullSpec* spec):
        cdef uint64_t ahead
        try:
            self.delivery.settle()
            ahead = self.delivery.cursor.count(self.delivery.listeners.removals) + self.delivery.pending.queued()
        except OSError as error:
            self.stream.read_failed(error)
            return f"500 {error.strerror}"
        if ahead == 0 and spec.expires_ns == 0:
            return "404 No Messages"
        if ahead and <int64_t>ahead < self.requests.wanted:
            self.sweep(False)                          # do not count ended requests
            if <int64_t>ahead < self.requests.wanted:
                return "408 Requests Pending"
        return None

    cdef bint queue_is_full(self) except -1:
        """Whether max_waiting requests wait; requests that have expired do not count."""
        if self.reactor.now_ns - self.swept_ns >= SWEEP_STEP_NS:
            self.swept_ns = self.reactor.now_ns
            self.sweep(False)
        return self.requests.count >= <size_t>self.max_waiting

    cdef int enqueue(self, const char* reply, size_t reply_len, PullSpec* spec) except -1:
        cdef PullRequest r = request_of(spec, reply, reply_len, self.reactor.now_ns)
        if self.groups is not None:
            r.join_group(spec)
        self.requests.add(r)
        if self.requests.due_ns:
            self.consumer.arm(self.requests.due_ns)
        self.consumer.kick()
        return 1

    def explained(self, body: bytes) -> str:
        """The error in the body of a request."""
        cdef object api = self.consumer.api_subjects
        if api is None or api.explain_pull is None:
            return "invalid JSON"
        return api.explain_pull(body)

    cdef int refuse_request(self, const char* reply, size_t n, str line) except -1:
        self.status(PyBytes_FromStringAndSize(reply, n), line, "")
        return 1

    cdef int status(self, bytes subject, str line, str headers) except -1:
        self.disturbed = True
        return send_status(self.router, subject, line, headers)

    cdef int end_request(self, PullRequest r, str line) except -1:
        return self.status(r.reply, line, f"Nats-Pending-Messages: {r.left}\r\nNats-Pending-Bytes: {r.bytes_left}\r\n")

    cdef PullRequest choose(self, uint64_t size):
        """The request that gets the next message, now at the head of the queue; None: no request can take it."""
        cdef size_t tries = self.requests.count
        cdef PullRequest r
        cdef int n
        while tries and self.requests.count:
            tries -= 1
            r = self.requests.head
            if r.expires_ns and r.expires_ns <= self.reactor.now_ns:
                self.end_request(self.requests.pop(), "408 Request Timeout")
                continue
            n = r.readiness(self.router, self.consumer)
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
        cdef uint64_t ahead = self.delivery.cursor.count(self.delivery.listeners.removals) + (self.delivery.again != NULL)
        cdef PullRequest r = self.requests.head, before = None
        cdef int n, verdict
        cdef bint pinned
        while r is not None:
            line = None
            pinned = False
            n = 0
            verdict = self.groups.judge(r, ahead, self.delivery.pending.live)
            if r.expires_ns and r.expires_ns <= self.reactor.now_ns:
                line = "408 Request Timeout"
            elif verdict == WRONG_PIN:
                line = "423 Nats-Wrong-Pin-Id"
            else:
                n = r.readiness(self.router, self.consumer) if verdict == TAKES else 1
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
                    self.pin(r)                        # the advisory may run other code, but not this consumer
                if n == 2 and line is None:
                    return r
                if pinned:
                    self.groups.unpin()                # the client has been told of the pin, and is not told that it is over
                self.requests.pop()
                if line is not None:
                    self.end_request(r, line)          # this may run other code: start again
                before = None
                r = self.requests.head
        return None

    cdef int no_request_may(self) except -1:
        """There are a message and requests, but no request may have the message."""
        if self.requests.count:
            if self.requests.impatient:
                self.end_impatient()
            self.delivery.listeners.await_more(self.consumer)
        return 0

    cdef int pin(self, PullRequest r) except -1:
        """No client is pinned: pin the client of this request."""
        cdef int i
        cdef uint64_t random = 0
        token = ""
        for i in range(PIN_LEN):
            if random == 0:
                random = self.reactor.random()
            token += _TOKEN[random % 62]
            random //= 62
        self.groups.assign(r, token.encode(), self.reactor.now_ns)
        self.consumer.arm(self.groups.pin_until_ns)
        if self.consumer.api_subjects is not None and self.consumer.api_subjects.pin_advisory is not None:
            self.consumer.api_subjects.pin_advisory(self.consumer, r.group.decode("utf-8", "surrogateescape"), token, "")
        return 0

    cdef int unpin(self, str group, str reason) except -1:
        self.groups.unpin()
        if self.consumer.api_subjects is not None and self.consumer.api_subjects.pin_advisory is not None:
            self.consumer.api_subjects.pin_advisory(self.consumer, group, "", reason)
        return self.consumer.kick()

    cdef int completed(self, PullRequest r, uint64_t size) except -1:
        """The head of the queue has got a message."""
        self.requests.served(size, self.reactor.now_ns)
        if r.left <= 0 and r.bytes_left:
            self.end_request(r, "409 Batch Completed")
        return 0

    cdef int end_impatient(self) except -1:
        """There is no message: end requests with no_wait, unless they may wait for their first message."""
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
        """End requests that have expired, drop those without a listener, send heartbeats that are due.

        `at_the_end`: also end those with no_wait (no message is left, unless missing acks hold it back).
        """
        cdef PullRequest r = self.requests.detach(), following
        cdef uint64_t now = self.reactor.now_ns
        while r is not None:
            following = r.next
            if r.expires_ns and r.expires_ns <= now:
                self.end_request(r, "408 Request Timeout")
            elif at_the_end and r.no_wait and (r.delivered or r.expires_ns == 0):
                self.status(r.reply, "404 No Messages", "")
            elif r.readiness(self.router, None):
                if r.heartbeat_ns and r.beat_ns <= now:
                    self.status(r.reply, "100 Idle Heartbeat", self.delivery.position())
                    r.beat(now)
                self.requests.add(r)
            r = following
        return 0

    cdef bint has_listener(self) except -1:
        cdef PullRequest r = self.requests.head
        while r is not None:
            if r.readiness(self.router, None):
                return True
            r = r.next
        return False
