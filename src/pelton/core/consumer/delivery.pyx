"""The part that pull and push consumers share: the next message to deliver, the unacknowledged messages, and the acks.

`pick` finds the next message, `prepare` makes the outgoing message from its record, `hand_out` sends it to the subscribers, `handed`
records the delivery; `acknowledge` reads an ack. Redeliveries come first, and do not count against max_ack_pending; then new messages.

The AckConfirmer answers an ack that asks for an answer when the ack is as durable as promised.

Ack subject of a delivery (v1): ``$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<stored at, ns>.<ahead>``. That of a
consumer with a dialect ends behind the third number; in the dialect of 2019 it begins with ``$JS.A.``.
Knows nothing of pull requests, flow control or heartbeats.
"""
import json

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from pelton.core.base.buffer cimport Out, out_free, out_put, put_u64
from pelton.core.broker.reactor cimport Synced
from pelton.core.broker.router cimport UNSERVED_MAX, Message, QueueGroup, RemoteSubscription, Router, Sink, Subscription
from pelton.core.consumer.consumer_task cimport ENDED, ConsumerTask
from pelton.core.consumer.pacing cimport Pacing
from pelton.core.consumer.pending cimport DELAYED, GONE, QUEUED, WAITING, Pending, PendingMessages
from pelton.core.log.cursor cimport Cursor
from pelton.core.log.log cimport Record
from pelton.core.protocol.subjects cimport Route

from pelton.core.base.durations import parse_duration
from pelton.core.consumer.snapshot import SPENT, pack, unpack

cdef enum:
    NUMBERS_ROOM = 5 * 21          # the five numbers at the end of an ack subject
    READ_AGAIN_NS = 1000000000     # time until the next try after the disk could not read a message


cdef inline bint is_text(const char* p, size_t n, const char* text, size_t text_len) noexcept nogil:
    return n == text_len and memcmp(p, text, n) == 0


cdef inline bint starts(const char* p, size_t n, const char* text, size_t text_len) noexcept nogil:
    return n >= text_len and memcmp(p, text, text_len) == 0


cdef class AckConfirmer(Synced):
    """Answers the acks that ask for an answer."""

    cdef int confirm(self, ConsumerTask consumer, uint64_t seq, const char* reply, size_t n) except -1:
        return 0

    cdef int was_reset(self, ConsumerTask consumer) except -1:
        return 0


@cython.final
cdef class Delivery:
    """The next message to deliver, the unacknowledged messages and the acks of one consumer."""

    def __cinit__(self):
        memset(&self.scratch, 0, sizeof(Out))

    def __init__(self, ConsumerTask consumer, start_seq: int) -> None:
        self.consumer = consumer
        self.stream = consumer.stream
        self.listeners = self.stream.listeners
        self.committer = self.stream.committer
        self.router = self.stream.router
        self.reactor = self.stream.reactor
        self.log = self.stream.log
        self.set_dialect("")
        self.cursor = Cursor(self.log, max(start_seq, self.log.span.first_seq))
        self.pending = PendingMessages()
        self.pending.set_floor(0, self.cursor.passed)
        self.purges = self.listeners.purges
        self.backoff_ns = ()

    def __dealloc__(self):
        out_free(&self.scratch)

    # --- configuration -------------------------------------------------------------------------------------------------
    def configure(self, *, int ack_policy, uint64_t ack_wait_ns, tuple backoff_ns, int64_t max_deliver, int64_t max_ack_pending,
                  bint headers_only, int sample_percent) -> None:
        """Set or change the settings of deliveries and acks."""
        self.ack_policy = ack_policy
        self.ack_wait_ns = ack_wait_ns
        self.backoff_ns = backoff_ns
        self.max_deliver = max_deliver
        self.max_ack_pending = max_ack_pending
        self.headers_only = headers_only
        self.sample_percent = sample_percent
        self.stalled = False

    cdef int set_dialect(self, str dialect) except -1:
        """The form of the ack subjects: "" today's, or "2019", "2020"."""
        self.brief = dialect != ""
        self.ack_prefix = (b"$JS.A." if dialect == "2019" else b"$JS.ACK.") + self.consumer.address + b"."
        if len(self.ack_prefix) > REPLY_ROOM - NUMBERS_ROOM:
            raise ValueError("stream and consumer names are too long")
        memcpy(self.reply, PyBytes_AS_STRING(self.ack_prefix), PyBytes_GET_SIZE(self.ack_prefix))
        return 0

    cdef int set_filters(self, tuple patterns, bint first_time, bint last_per_subject) except -1:
        if first_time or patterns != self.cursor.filters:
            self.listeners.drop(self.consumer, self.cursor.filters if self.cursor.filtered else ())
            self.cursor.set_filters(patterns)
            self.listeners.add(self.consumer, patterns if self.cursor.filtered else ())
            if self.pending.live:
                self.listeners.hold(self.consumer)
        if last_per_subject and first_time:
            self.cursor.start_with_last()
            self.pending.set_floor(0, self.cursor.passed)
        return 0

    cdef int set_pace(self, uint64_t rate_limit_bps, bint replay_original) except -1:
        """Limit the rate of deliveries, or replay at the original pace; a replay that has begun continues."""
        cdef Pacing old = self.pacing
        self.pacing = None
        self.held_ns = 0
        if rate_limit_bps or replay_original:
            burst = self.stream.path.max_msg_size if self.stream.path.max_msg_size > 0 else self.reactor.max_payload
            self.pacing = Pacing(rate_limit_bps, burst, self.log.span.last_seq if replay_original else 0)
            if replay_original and old is not None:
                self.pacing.resume(old)
        return 0

    cdef int confirm_acks_with(self, AckConfirmer confirmer) except -1:
        self.confirmer = confirmer
        return 0

    cdef int end(self) except -1:
        self.listeners.drop(self.consumer, self.cursor.filters if self.cursor.filtered else ())
        self.consumer = ENDED
        return 0

    # --- delivery ------------------------------------------------------------------------------------------------------
    cdef int pick(self) except -1:
        cdef Pending* e = self.pending.next_due()
        while e != NULL:
            if self.max_deliver <= 0 or e.deliveries < self.max_deliver:
                self.picked = e.seq
                self.again = e
                return NEXT
            self.exhausted(e)
            e = self.pending.next_due()
        self.again = NULL
        if self.ack_policy != POLICY_NONE and self.max_ack_pending > 0 and self.pending.live >= <size_t>self.max_ack_pending:
            self.stalled = True
            return STALLED
        self.picked = self.cursor.peek(self.committer.visible)
        return NEXT if self.picked else NOTHING

    cdef int gone(self) except -1:
        if self.again != NULL:
            self.pending.remove(self.again, self.delivered, self.cursor.passed)
            self.consumer.touch()
            self.room_made()
        else:
            self.cursor.pass_over(self.picked)
        return 0

    cdef uint64_t prepare(self, Record* r) except 0:
        cdef uint64_t ahead = self.cursor.count(self.listeners.removals)
        cdef char* p = self.reply + PyBytes_GET_SIZE(self.ack_prefix)
        cdef Message* m = &self.out
        if self.again == NULL and ahead:
            ahead -= 1
        p = put_u64(p, self.again.deliveries + 1 if self.again != NULL else 1)
        p[0] = c'.'
        p = put_u64(p + 1, r.seq)
        p[0] = c'.'
        p = put_u64(p + 1, self.delivered + 1)
        if not self.brief:
            p[0] = c'.'
            p = put_u64(p + 1, r.ts_ns)
            p[0] = c'.'
            p = put_u64(p + 1, ahead)
        m.subject = r.subject
        m.subject_len = r.subject_len
        m.reply = self.reply
        m.reply_len = <uint32_t>(p - self.reply)
        m.body = r.body
        m.hlen = r.hlen
        m.body_len = r.body_len
        if self.headers_only:
            self.strip()
        return <uint64_t>m.subject_len + m.reply_len + m.body_len

    cdef int strip(self) except -1:
        """Replace the body by a header with its size."""
        cdef Message* m = &self.out
        cdef char number[24]
        cdef uint32_t size = m.body_len - m.hlen
        self.scratch.off = self.scratch.len = 0
        if m.hlen >= 2:
            out_put(&self.scratch, m.body, m.hlen - 2)
        else:
            out_put(&self.scratch, b"NATS/1.0\r\n", 10)
        out_put(&self.scratch, b"Nats-Msg-Size: ", 15)
        out_put(&self.scratch, number, put_u64(number, size) - number)
        out_put(&self.scratch, b"\r\n\r\n", 4)
        m.body = self.scratch.data
        m.hlen = m.body_len = <uint32_t>self.scratch.len
        return 0

    cdef bint held(self, uint64_t ts_ns, uint64_t size) except -1:
        if self.pacing is None or self.again != NULL:
            return False
        self.held_ns = self.pacing.hold_until(self.picked, ts_ns, size, self.reactor.now_ns)
        if self.held_ns:
            self.consumer.arm(self.held_ns)
            return True
        return False

    cdef int hand_out(self, Route route, bytes target) except -1:
        cdef int i, took = 0, n = 0
        cdef PyObject* unserved[UNSERVED_MAX]
        cdef bint remote = False
        cdef object item, copy
        cdef Message m
        if route.n > 1:
            # Closing a subscriber may run any code, also code that changes the log: the next subscriber gets a copy.
            copy = PyBytes_FromStringAndSize(self.out.subject, self.out.subject_len), PyBytes_FromStringAndSize(
                self.out.body, self.out.body_len)
            self.out.subject = PyBytes_AS_STRING(<bytes>(<tuple>copy)[0])
            self.out.body = PyBytes_AS_STRING(<bytes>(<tuple>copy)[1])
            self.kept = copy
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                took += self.router.deliver(<Subscription>item, None, &self.out)
            elif type(item) is QueueGroup:
                if self.router.deliver_group(<QueueGroup>item, None, &self.out):
                    took += 1
                elif (<QueueGroup>item).remote is not None and n < UNSERVED_MAX:
                    unserved[n] = route.items[i]
                    n += 1
            elif type(item) is RemoteSubscription:
                remote = True
            elif item is not self.stream:
                # Another stream stores deliveries: under their deliver subject, and from bytes that do not move.
                copy = PyBytes_FromStringAndSize(self.out.body, self.out.body_len)
                m = self.out
                if not (<Sink>item).as_client:
                    m.subject = PyBytes_AS_STRING(target)
                    m.subject_len = <uint32_t>PyBytes_GET_SIZE(target)
                m.body = PyBytes_AS_STRING(copy)
                took += (<Sink>item).take(None, &m)
        if remote or n:
            took += self.router.neighbours.hand(route if remote else None, &self.out, target, unserved, n)
        return took

    cdef int handed(self, uint64_t ts_ns, uint64_t size) except -1:
        """The picked message was sent: record the delivery."""
        cdef uint64_t now = self.reactor.now_ns, due
        cdef Pending* e = self.again
        self.delivered += 1
        self.delivered_ns = now
        if not self.consumer.changed:
            self.consumer.touch()
        if e != NULL:
            self.pending.dequeued()
            e.deliveries += 1
            e.since_ns = now
            e.state = WAITING
            due = now + self.wait_ns(e.deliveries)
        else:
            self.cursor.took(self.picked)
            if self.pacing is not None:
                self.pacing.sent(ts_ns, size, now)
            if self.ack_policy == POLICY_NONE:
                self.pending.set_floor(self.delivered, self.picked)
                if self.stream.retention is not None:
                    self.stream.retention.settled(self.picked)
                return 0
            self.pending.push(self.picked, self.delivered, now)
            if not self.consumer.holding:
                self.listeners.hold(self.consumer)
            if self.ack_policy == POLICY_FLOW:
                return 0                       # no ack wait
            due = now + self.wait_ns(1)
        if self.due_ns == 0 or due < self.due_ns:
            self.due_ns = due
            self.consumer.arm(due)
        return 0

    cdef int await_more(self) except -1:
        if not self.cursor.caught_up and self.consumer.in_demand():
            self.listeners.await_more(self.consumer)
        return 0

    cdef int read_later(self) except -1:
        """The disk could not read the next message: try again later, and do not skip it."""
        self.held_ns = self.reactor.now_ns + READ_AGAIN_NS
        return self.consumer.arm(self.held_ns)

    cdef int tick(self) except -1:
        """Do the work due at the reactor's time; due_ns and held_ns have the next deadlines."""
        cdef uint64_t now = self.reactor.now_ns
        if self.due_ns and self.due_ns <= now:
            self.redeliver_due()
        if self.held_ns and self.held_ns <= now:
            self.held_ns = 0
            self.consumer.kick()
        return 0

    cdef str position(self):
        cdef uint64_t last = self.cursor.passed
        if self.cursor.caught_up:
            last = max(last, self.committer.visible)          # no message after `passed` matches the filters
        return f"Nats-Last-Consumer: {self.delivered}\r\nNats-Last-Stream: {last}\r\n"

    cdef uint64_t last_wait_ns(self) except? 18446744073709551615:
        cdef uint64_t latest = 0
        cdef size_t i
        for i in range(self.pending.off, self.pending.len):
            if self.pending.data[i].state != GONE:
                latest = max(latest, self.pending.data[i].since_ns + self.wait_ns(self.pending.data[i].deliveries))
        return latest

    cdef uint64_t wait_ns(self, uint64_t deliveries) except? 18446744073709551615:
        """The ack wait after this many deliveries."""
        cdef uint64_t n = len(self.backoff_ns)
        if n == 0:
            return self.ack_wait_ns
        return self.backoff_ns[min(deliveries, n) - 1]

    cdef int settle(self) except -1:
        """Bring position and unacknowledged messages up to date with a purge, and with the stream's first sequence."""
        cdef uint64_t first = self.log.span.first_seq
        if self.purges != self.listeners.purges:
            self.purged()
        if self.cursor.next_seq < first:
            self.cursor.skip_below(first)
        if self.pending.live and self.pending.first().seq < first:
            self.pending.remove_below(first, self.delivered, self.cursor.passed)
            self.consumer.touch()
            self.room_made()
        if self.spent is not None:
            self.forget_spent(first)
        return 0

    def forget_spent(self, uint64_t first) -> None:
        """Drop the entries of messages that are not in the stream any more."""
        if min(self.spent) < first:
            self.spent = {seq: n for seq, n in self.spent.items() if seq >= first} or None

    cdef int look_again(self) except -1:
        self.due_ns = 1 if self.pending.live and self.ack_policy != POLICY_FLOW else 0
        return self.consumer.arm(self.reactor.now_ns) if self.due_ns else 0

    # --- called by the stream ------------------------------------------------------------------------------------------
    cdef int signalled(self, uint64_t seq) except -1:
        if self.cursor.caught_up:
            self.cursor.jump(seq)
            if self.consumer.in_demand():
                self.listeners.await_more(self.consumer)
        return 0

    cdef int removed(self, uint64_t seq) except -1:
        cdef Pending* e = self.pending.find(seq)
        if e != NULL:
            self.drop_removed(e)
        elif self.spent is not None and seq in self.spent:
            self.forget(seq)
        return self.pending.live > 0 or self.spent is not None

    cdef int expire_below(self, uint64_t seq) except -1:
        while self.pending.live and self.pending.first().seq < seq:
            self.drop_removed(self.pending.first())
        return 0

    cdef int drop_removed(self, Pending* e) except -1:
        """The stream has removed an unacknowledged message: it counts as terminated."""
        cdef uint64_t seq = e.seq, cseq = e.cseq, deliveries = e.deliveries
        self.pending.remove(e, self.delivered, self.cursor.passed)
        self.acked_ns = self.reactor.now_ns
        self.consumer.touch()
        self.room_made()
        if self.consumer.api_subjects is not None and self.consumer.api_subjects.term_advisory is not None:
            self.consumer.api_subjects.term_advisory(self.consumer, cseq, seq, deliveries, "Unacknowledged message was deleted")
        return 0

    def forget(self, seq: int) -> None:
        """Forget a message that has reached max_deliver: it is settled."""
        del self.spent[seq]
        self.spent = self.spent or None
        self.consumer.touch()

    cdef int purged(self) except -1:
        cdef uint32_t subject_id, size
        cdef uint64_t first = self.listeners.purged_first
        self.purges = self.listeners.purges
        self.cursor.purged_below(first)
        self.pending.purge_below(first)
        self.consumer.touch()
        for entry in self.pending.entries():
            if not self.log.peek(entry[0], &subject_id, &size):
                self.pending.remove(self.pending.find(entry[0]), self.delivered, self.cursor.passed)
        if self.spent is not None:
            self.spent = {seq: n for seq, n in self.spent.items() if self.log.peek(seq, &subject_id, &size)} or None
        if self.pending.live == 0:
            self.pending.set_floor(self.delivered, max(self.cursor.passed, self.pending.floor_seq))
        self.room_made()
        return 0

    # --- acks ----------------------------------------------------------------------------------------------------------
    cdef int acknowledge(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, Message* m) except -1:
        cdef const char* p = m.body + m.hlen
        cdef size_t n = m.body_len - m.hlen
        cdef bint answer = True, promise = False       # promise: acks that a crash must not take back
        cdef Pending* e
        if self.consumer.closed or self.ack_policy == POLICY_NONE or self.ack_policy == POLICY_FLOW:
            return 0
        if n == 0 or is_text(p, n, b"+ACK", 4) or is_text(p, n, b"+OK", 3):
            if self.sample_percent:
                self.sample(seq, cseq, deliveries)
            answer = promise = self.ack_one(seq, cseq)
        elif starts(p, n, b"+NXT", 4):
            if self.sample_percent:
                self.sample(seq, cseq, deliveries)
            self.ack_one(seq, cseq)
            self.consumer.request(m.reply, m.reply_len, p + 4, n - 4)
            answer = False
        elif starts(p, n, b"-NAK", 4):
            self.negative(seq, cseq, deliveries, p + 4, n - 4)
        elif is_text(p, n, b"+WPI", 4):
            e = self.pending.find(seq)
            if e != NULL and e.state != QUEUED:
                e.state = WAITING
                e.since_ns = self.reactor.now_ns
                self.consumer.touch()
        elif starts(p, n, b"+TERM", 5):
            promise = self.terminate(seq, cseq, deliveries, p + 5, n - 5)
        if answer and m.reply_len:
            if self.confirmer is None or not promise:
                return self.answer(m.reply, m.reply_len)
            self.confirmer.confirm(self.consumer, seq, m.reply, m.reply_len)
        return 1

    cdef int answer(self, const char* reply, size_t n) except -1:
        cdef Message m
        memset(&m, 0, sizeof(Message))
        m.subject = reply
        m.subject_len = <uint32_t>n
        m.body = b""
        self.router.send(&m)
        return 1

    cdef int ack_one(self, uint64_t seq, uint64_t cseq) except -1:
        """1: the message was delivered (pending or not); 0: it never was."""
        cdef Pending* e
        if seq > self.cursor.passed:
            return 0
        if self.ack_policy == POLICY_ALL:
            return self.ack_upto(seq, cseq)
        e = self.pending.find(seq)
        if e == NULL:
            self.acked_ns = self.reactor.now_ns
            if self.spent is not None and seq in self.spent:
                self.forget(seq)
            if self.stream.retention is not None:
                self.stream.retention.settled(seq)            # a late ack: the stream removes messages that no consumer needs
            return 1
        self.pending.remove(e, self.delivered, self.cursor.passed)
        if self.stream.retention is not None:
            self.stream.retention.settled(seq)
        self.acked_ns = self.reactor.now_ns
        if not self.consumer.changed:
            self.consumer.touch()
        if self.stalled:
            self.room_made()
        return 1

    cdef int needs(self, uint64_t seq) except -1:
        return seq > self.cursor.passed or self.pending.find(seq) != NULL or (self.spent is not None and seq in self.spent)

    def settle_all(self, list done) -> None:
        """These messages are acknowledged: the stream may remove them."""
        for seq in done:
            self.stream.retention.settled(seq)

    cdef int ack_upto(self, uint64_t seq, uint64_t cseq) except -1:
        """Acknowledge all messages up to this one.

        A redelivery has a later consumer sequence: all deliveries up to it are acknowledged.
        """
        cdef list done = self.pending.upto(seq) if self.stream.retention is not None else None
        cdef Pending* e = self.pending.find(seq)
        cdef uint64_t only = e.cseq if e != NULL and e.deliveries == 1 else cseq       # the consumer sequence of its only delivery
        cdef uint64_t before = self.pending.floor_cseq
        if cseq <= before:
            return 1
        if (self.pending.remove_upto(seq, self.delivered, self.cursor.passed) == 0 and seq <= self.pending.floor_seq
                and self.spent is None):
            return 1
        # A reset begins the consumer sequences again, and a late ack from before it may have a higher one. As the floor that would
        # settle deliveries since the reset that are not acknowledged, and their acks would have no effect.
        if e == NULL and self.pending.live:              # its message was removed, or has reached max_deliver
            only = max(before, self.pending.first().cseq - 1)
        self.pending.set_floor(min(only, cseq) if cseq <= self.delivered else self.pending.floor_cseq,
                               max(min(seq, self.cursor.passed), self.pending.floor_seq))
        if self.spent is not None:
            if done is not None:
                done.extend([one for one in self.spent if one <= seq])
            self.forget_spent(seq + 1)
        if done is not None:
            self.settle_all(done)
        self.acked_ns = self.reactor.now_ns
        self.consumer.touch()
        if self.stalled:
            self.room_made()
        return 1

    cdef int sample(self, uint64_t seq, uint64_t cseq, uint64_t deliveries) except -1:
        """Report some acks of pending messages as a metric, under explicit acks."""
        cdef Pending* e = self.pending.find(seq)
        cdef object api = self.consumer.api_subjects
        if e == NULL or self.ack_policy != POLICY_EXPLICIT or api is None or api.ack_metric is None:
            return 0
        if <int>((self.reactor.random() >> 8) % 100) < self.sample_percent:
            waited = self.reactor.now_ns - e.since_ns if self.reactor.now_ns > e.since_ns else 0
            api.ack_metric(self.consumer, cseq, seq, waited, deliveries)
        return 0

    cdef int room_made(self) except -1:
        if self.stalled and (self.max_ack_pending <= 0 or self.pending.live < <size_t>self.max_ack_pending):
            self.stalled = False
            self.consumer.kick()
        return 0

    cdef int negative(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1:
        """The client refused a message (-NAK): deliver it again, now or after a delay."""
        cdef Pending* e = self.pending.find(seq)
        cdef uint64_t delay
        if e == NULL or cseq <= self.pending.floor_cseq or cseq > self.delivered:
            return 0                             # as in ack_upto: a delivery before the ack floor is settled
        delay = nak_delay(PyBytes_FromStringAndSize(p, n)) if n else 0
        self.consumer.touch()
        if delay:
            e.state = DELAYED
            e.since_ns = self.reactor.now_ns + delay
            if self.due_ns == 0 or e.since_ns < self.due_ns:
                self.due_ns = e.since_ns
                self.consumer.arm(e.since_ns)
        else:
            # Also at max_deliver: pick() drops the message when a client wants messages.
            self.pending.enqueue(e)
            self.consumer.kick()
        if self.consumer.api_subjects is not None and self.consumer.api_subjects.nak_advisory is not None:
            self.consumer.api_subjects.nak_advisory(self.consumer, cseq, seq, deliveries)
        return 0

    cdef int terminate(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1:
        """The client does not want the message again (+TERM). As ack_one()."""
        cdef int known = self.ack_one(seq, cseq)
        if self.consumer.api_subjects is not None and self.consumer.api_subjects.term_advisory is not None:
            reason = PyBytes_FromStringAndSize(p, n).decode("utf-8", "replace").strip() if n else ""
            self.consumer.api_subjects.term_advisory(self.consumer, cseq, seq, deliveries, reason)
        return known

    cdef int exhausted(self, Pending* e) except -1:
        """The message has reached max_deliver: drop it from pending, and send the advisory."""
        cdef uint64_t seq = e.seq, deliveries = e.deliveries
        self.pending.drop(e)
        if self.spent is None:
            self.spent = {}
        self.spent[seq] = deliveries
        self.consumer.touch()
        self.room_made()
        if self.consumer.api_subjects is not None and self.consumer.api_subjects.max_deliver_advisory is not None:
            self.consumer.api_subjects.max_deliver_advisory(self.consumer, seq, deliveries)
        return 0

    cdef int redeliver_due(self) except -1:
        """Queue the messages whose redelivery is due, and find out when the next one is."""
        cdef uint64_t now = self.reactor.now_ns, due, next_ns = 0
        cdef size_t i
        cdef Pending* e
        cdef list over = []                      # those that have reached max_deliver
        cdef bint any_due = False
        for i in range(self.pending.off, self.pending.len):
            e = self.pending.data + i
            if e.state == GONE or e.state == QUEUED:
                continue
            due = e.since_ns if e.state == DELAYED else e.since_ns + self.wait_ns(e.deliveries)
            if due > now:
                if next_ns == 0 or due < next_ns:
                    next_ns = due
            elif self.max_deliver > 0 and e.deliveries >= self.max_deliver:
                over.append(e.seq)
            else:
                self.pending.enqueue(e)
                any_due = True
        self.due_ns = next_ns
        for seq in over:
            e = self.pending.find(seq)
            if e != NULL:
                self.exhausted(e)
        if any_due:
            self.consumer.kick()
        return 0

    # --- the stored state ----------------------------------------------------------------------------------------------
    cdef uint64_t reset(self, uint64_t seq) except? 0:
        """Start again at a sequence, as if nothing had been delivered; 0: behind the ack floor. Returns the sequence."""
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
            self.confirmer.was_reset(self.consumer)
        self.consumer.touch()
        self.settle()
        return seq

    cdef bytes snapshot(self):
        cdef size_t i
        cdef Pending* e
        entries = []
        for i in range(self.pending.off, self.pending.len):
            e = self.pending.data + i
            if e.state != GONE:
                entries.append((e.seq, e.cseq, e.since_ns, e.deliveries, e.state))
        if self.spent is not None:
            entries += [(seq, 0, 0, deliveries, SPENT) for seq, deliveries in self.spent.items()]
        return pack(
            (self.delivered, self.cursor.passed, self.cursor.next_seq, self.delivered_ns, self.pending.floor_cseq,
             self.pending.floor_seq, self.acked_ns), entries, self.cursor.remaining_starts())

    cdef int restore(self, bytes data) except -1:
        cdef uint64_t last = self.log.span.last_seq
        cdef uint32_t subject_id, size
        cdef Pending* e
        numbers, entries, first_ones = unpack(data)
        delivered, passed, next_seq, self.delivered_ns, floor_cseq, floor_seq, self.acked_ns = numbers
        if delivered:
            passed, next_seq, floor_seq = min(passed, last), min(next_seq, last + 1), min(floor_seq, last)
        # Put the cursor behind every delivered message, whatever the record has: a backup may come from any server.
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
            self.listeners.hold(self.consumer)
        return self.settle()


cdef int send_status(Router router, bytes subject, str line, str headers) except -1:
    cdef Message m
    cdef bytes block = f"NATS/1.0 {line}\r\n{headers}\r\n".encode()
    m.subject = PyBytes_AS_STRING(subject)
    m.subject_len = <uint32_t>PyBytes_GET_SIZE(subject)
    m.reply = NULL
    m.reply_len = 0
    m.body = PyBytes_AS_STRING(block)
    m.hlen = m.body_len = <uint32_t>PyBytes_GET_SIZE(block)
    return router.send(&m)


NAK_BYTES = 1000     # bytes behind -NAK that are parsed; no valid delay is longer


def nak_delay(bytes text) -> int:
    """The delay behind -NAK in nanoseconds: ``{"delay": ns}`` or a duration; 0 when it is neither."""
    words = text[:NAK_BYTES].decode("utf-8", "replace").strip()
    if words.startswith("{"):
        try:
            value = json.loads(words).get("delay", 0)
        except (ValueError, RecursionError):
            return 0
        delay = value if isinstance(value, int) and not isinstance(value, bool) else 0
    else:
        delay = parse_duration(words) or 0
    return min(max(delay, 0), 1 << 62)
