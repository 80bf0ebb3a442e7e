"""What a consumer hands out and what is acknowledged: the part that pull and push consumers share.

`pick` finds the next message, `prepare` makes of its record what goes out, `hand_out` gives it to who listens, `handed` remembers it;
`acknowledge` is the way back. Redeliveries come first, and do not count against max_ack_pending; then new messages.

An ack that asks for an answer gets it from the AckConfirmer when it is as durable as promised.

Ack subject of a delivery (v1): ``$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<stored at, ns>.<ahead>``.
Knows nothing of requests, flow control or heartbeats.
"""
import json

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from penstock.core.base.buffer cimport Out, out_free, out_put, put_u64
from penstock.core.broker.reactor cimport Synced
from penstock.core.broker.router cimport UNSERVED_MAX, Message, QueueGroup, RemoteSubscription, Sink, Subscription
from penstock.core.consumer.pending cimport DELAYED, GONE, QUEUED, WAITING, Pending, PendingMessages
from penstock.core.log.cursor cimport Cursor
from penstock.core.log.log cimport Record
from penstock.core.protocol.subjects cimport Route
from penstock.core.stream.stream cimport Listener, Stream

from penstock.core.base.durations import parse_duration

cdef enum:
    NUMBERS_ROOM = 5 * 21          # the five numbers at the end of an ack subject


cdef inline bint is_text(const char* p, size_t n, const char* text, size_t text_len) noexcept nogil:
    return n == text_len and memcmp(p, text, n) == 0


cdef inline bint starts(const char* p, size_t n, const char* text, size_t text_len) noexcept nogil:
    return n >= text_len and memcmp(p, text, text_len) == 0


cdef class AckConfirmer(Synced):
    """Answers the acks that ask for it."""

    cdef int confirm(self, Delivery consumer, uint64_t seq, const char* reply, size_t n) except -1:
        return consumer.answer(reply, n)

    cdef int begun_anew(self, Delivery consumer) except -1:
        return 0


cdef class Delivery(Listener):
    """The shared part of a consumer; see Consumer."""

    def __cinit__(self):
        memset(&self.scratch, 0, sizeof(Out))

    def __init__(self, Stream stream, str name, *, start_seq: int) -> None:
        self.stream = stream
        self.router = stream.router
        self.reactor = stream.reactor
        self.log = stream.log
        self.name = name
        self.key = stream.name_bytes + b"." + name.encode("utf-8", "surrogateescape")
        self.ack_prefix = b"$JS.ACK." + self.key + b"."
        if len(self.ack_prefix) > REPLY_ROOM - NUMBERS_ROOM:
            raise ValueError("stream and consumer names are too long")
        memcpy(self.reply, PyBytes_AS_STRING(self.ack_prefix), PyBytes_GET_SIZE(self.ack_prefix))
        self.cursor = Cursor(self.log, max(start_seq, self.log.first_seq))
        self.pending = PendingMessages()
        self.pending.set_floor(0, self.cursor.passed)
        self.purges = stream.purges
        self.backoff_ns = ()
        self.changed = True

    def __dealloc__(self):
        out_free(&self.scratch)

    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1:
        return 0

    cdef bint in_demand(self) noexcept:
        return False

    cdef int touch(self) except -1:
        if not self.changed:
            self.changed = True
            if self.on_change is not None:
                self.on_change()
        return 0

    def unsaved(self) -> None:
        """The last snapshot could not be written."""
        self.touch()

    # --- delivery ------------------------------------------------------------------------------------------------------
    cdef int kick(self) except -1:
        """Run at the end of this turn."""
        if not self.queued and not self.closed:
            self.reactor.enlist_delivery(self)
        return 0

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
        self.picked = self.cursor.peek(self.stream.visible)
        return NEXT if self.picked else NOTHING

    cdef int gone(self) except -1:
        if self.again != NULL:
            self.pending.remove(self.again, self.delivered, self.cursor.passed)
            self.touch()
            self.room_made()
        else:
            self.cursor.took(self.picked)
        return 0

    cdef uint64_t prepare(self, Record* r) except 0:
        cdef uint64_t ahead = self.cursor.count(self.stream.removals)
        cdef char* p = self.reply + PyBytes_GET_SIZE(self.ack_prefix)
        cdef Message* m = &self.out
        if self.again == NULL and ahead:
            ahead -= 1
        p = put_u64(p, self.again.deliveries + 1 if self.again != NULL else 1)
        p[0] = c'.'
        p = put_u64(p + 1, r.seq)
        p[0] = c'.'
        p = put_u64(p + 1, self.delivered + 1)
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
        """Replace the body by a header that tells its size."""
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
            self.arm(self.held_ns)
            return True
        return False

    cdef int hand_out(self, Route route, bytes target) except -1:
        cdef int i, took = 0, n = 0
        cdef PyObject* unserved[UNSERVED_MAX]
        cdef bint remote = False
        cdef object item, copy
        cdef Message m
        if route.n > 1:
            # A subscriber that is cut off can lead anywhere, also to a change of the log: the next one gets a copy.
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
                # Another stream takes deliveries: under the subject they are delivered to, from bytes that stay where they are.
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
        """The picked message went out."""
        cdef uint64_t now = self.reactor.now_ns, due
        cdef Pending* e = self.again
        self.delivered += 1
        self.delivered_ns = now
        if not self.changed:
            self.touch()
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
            if not self.holding:
                self.stream.hold(self)
            if self.ack_policy == POLICY_FLOW:
                return 0                       # no ack wait
            due = now + self.wait_ns(1)
        if self.due_ns == 0 or due < self.due_ns:
            self.due_ns = due
            self.arm(due)
        return 0

    cdef uint64_t wait_ns(self, uint64_t deliveries) except? 18446744073709551615:
        """How long an ack may take after that many deliveries."""
        cdef uint64_t n = len(self.backoff_ns)
        if n == 0:
            return self.ack_wait_ns
        return self.backoff_ns[min(deliveries, n) - 1]

    cdef int settle(self) except -1:
        """The stream may start later now: messages below are neither ahead nor pending."""
        cdef uint64_t first = self.log.first_seq
        if self.purges != self.stream.purges:
            self.purged()
        if self.cursor.next_seq < first:
            self.cursor.skip_below(first)
        if self.pending.live and self.pending.first().seq < first:
            self.pending.remove_below(first, self.delivered, self.cursor.passed)
            self.touch()
            self.room_made()
        if self.spent is not None:
            self.forget_spent(first)
        return 0

    def forget_spent(self, uint64_t first) -> None:
        """What is not in the stream any more needs no remembering."""
        if min(self.spent) < first:
            self.spent = {seq: n for seq, n in self.spent.items() if seq >= first} or None

    cdef int look_again(self) except -1:
        self.due_ns = 1 if self.pending.live and self.ack_policy != POLICY_FLOW else 0
        return self.arm(self.reactor.now_ns) if self.due_ns else 0

    cdef int arm(self, uint64_t at_ns) except -1:
        """tick() is wanted at a time."""
        if self.deadline_ns == 0 or at_ns < self.deadline_ns:
            self.deadline_ns = at_ns
            if self.deadline_changed is not None:
                self.deadline_changed(self, at_ns)
        return 0

    # --- what the stream tells -----------------------------------------------------------------------------------------
    cdef int signalled(self, uint64_t seq) except -1:
        if self.cursor.caught_up:
            self.cursor.jump(seq)
            if self.in_demand():
                self.stream.await_more(self)
        return 0

    cdef int wants(self, uint32_t subject_id) except -1:
        return self.cursor.want(subject_id)

    cdef int forgets(self, uint32_t subject_id) except -1:
        return self.cursor.forget(subject_id)

    cdef int removed(self, uint64_t seq) except -1:
        cdef Pending* e = self.pending.find(seq)
        if e != NULL:
            self.lost(e)
        elif self.spent is not None and seq in self.spent:
            self.forget(seq)
        return self.pending.live > 0 or self.spent is not None

    def expire_below(self, uint64_t seq) -> None:
        """Messages below a sequence are leaving the stream for their age."""
        while self.pending.live and self.pending.first().seq < seq:
            self.lost(self.pending.first())

    cdef int lost(self, Pending* e) except -1:
        """As if it had been refused for good."""
        cdef uint64_t seq = e.seq, cseq = e.cseq, deliveries = e.deliveries
        self.pending.remove(e, self.delivered, self.cursor.passed)
        self.acked_ns = self.reactor.now_ns
        self.touch()
        self.room_made()
        if self.api_subjects is not None and self.api_subjects.term_advisory is not None:
            self.api_subjects.term_advisory(self, cseq, seq, deliveries, "Unacknowledged message was deleted")
        return 0

    def forget(self, seq: int) -> None:
        """A message that went out as often as it may is settled."""
        del self.spent[seq]
        self.spent = self.spent or None
        self.touch()

    cdef int purged(self) except -1:
        cdef uint32_t subject_id, size
        cdef uint64_t first = self.stream.purged_first
        self.purges = self.stream.purges
        self.cursor.purged_below(first)
        self.pending.purge_below(first)
        self.touch()
        self.room_made()
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
        cdef bint answer = True, promise = False       # promise: what must not come back after a crash
        cdef Pending* e
        if self.closed or self.ack_policy == POLICY_NONE or self.ack_policy == POLICY_FLOW:
            return 0
        if n == 0 or is_text(p, n, b"+ACK", 4) or is_text(p, n, b"+OK", 3):
            if self.sample_percent:
                self.sample(seq, cseq, deliveries)
            answer = promise = self.ack_one(seq, cseq)
        elif starts(p, n, b"+NXT", 4):
            if self.sample_percent:
                self.sample(seq, cseq, deliveries)
            self.ack_one(seq, cseq)
            self.request(m.reply, m.reply_len, p + 4, n - 4)
            answer = False
        elif starts(p, n, b"-NAK", 4):
            self.negative(seq, cseq, deliveries, p + 4, n - 4)
        elif is_text(p, n, b"+WPI", 4):
            e = self.pending.find(seq)
            if e != NULL and e.state != QUEUED:
                e.state = WAITING
                e.since_ns = self.reactor.now_ns
                self.touch()
        elif starts(p, n, b"+TERM", 5):
            self.terminate(seq, cseq, deliveries, p + 5, n - 5)
            promise = True
        if answer and m.reply_len:
            if self.confirmer is None or not promise:
                return self.answer(m.reply, m.reply_len)
            self.confirmer.confirm(self, seq, m.reply, m.reply_len)
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
        """1: known (whether it was pending or not); 0: never delivered."""
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
                self.stream.retention.settled(seq)            # a late ack: what no consumer needs goes
            return 1
        self.pending.remove(e, self.delivered, self.cursor.passed)
        if self.stream.retention is not None:
            self.stream.retention.settled(seq)
        self.acked_ns = self.reactor.now_ns
        if not self.changed:
            self.touch()
        if self.stalled:
            self.room_made()
        return 1

    cdef int needs(self, uint64_t seq) except -1:
        return seq > self.cursor.passed or self.pending.find(seq) != NULL or (self.spent is not None and seq in self.spent)

    def settle_all(self, list done) -> None:
        """These messages are acknowledged: the stream may let go of them."""
        for seq in done:
            self.stream.retention.settled(seq)

    def floor(self) -> int:
        """The stream sequence up to which everything is acknowledged."""
        self.settle()
        return self.pending.floor_seq

    cdef int ack_upto(self, uint64_t seq, uint64_t cseq) except -1:
        """Everything up to a message is acknowledged.

        A redelivery has a later consumer sequence: what was handed out up to there counts as acknowledged.
        """
        cdef list done = self.pending.upto(seq) if self.stream.retention is not None else None
        if cseq <= self.pending.floor_cseq or self.pending.remove_upto(seq, self.delivered, self.cursor.passed) == 0:
            return 1
        if self.pending.live:
            self.pending.set_floor(min(cseq, self.delivered), seq)
        if self.spent is not None:
            if done is not None:
                done.extend([one for one in self.spent if one <= seq])
            self.forget_spent(seq + 1)
        if done is not None:
            self.settle_all(done)
        self.acked_ns = self.reactor.now_ns
        self.touch()
        if self.stalled:
            self.room_made()
        return 1

    cdef int sample(self, uint64_t seq, uint64_t cseq, uint64_t deliveries) except -1:
        """Of some acks a metric tells; of those of messages that are pending, under explicit acks."""
        cdef Pending* e = self.pending.find(seq)
        if e == NULL or self.ack_policy != POLICY_EXPLICIT or self.api_subjects is None or self.api_subjects.ack_metric is None:
            return 0
        if <int>((self.reactor.random() >> 8) % 100) < self.sample_percent:
            self.api_subjects.ack_metric(self, cseq, seq, self.reactor.now_ns - e.since_ns if self.reactor.now_ns > e.since_ns else 0, deliveries)
        return 0

    cdef int room_made(self) except -1:
        if self.stalled and (self.max_ack_pending <= 0 or self.pending.live < <size_t>self.max_ack_pending):
            self.stalled = False
            self.kick()
        return 0

    cdef int negative(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1:
        """A message was refused: it goes out again, now or after a delay."""
        cdef Pending* e = self.pending.find(seq)
        cdef uint64_t delay
        if e == NULL:
            return 0
        delay = nak_delay(PyBytes_FromStringAndSize(p, n)) if n else 0
        self.touch()
        if delay:
            e.state = DELAYED
            e.since_ns = self.reactor.now_ns + delay
            if self.due_ns == 0 or e.since_ns < self.due_ns:
                self.due_ns = e.since_ns
                self.arm(e.since_ns)
        else:
            # Also after the last delivery that it may have: pick() then lets it go when somebody wants messages.
            self.pending.enqueue(e)
            self.kick()
        if self.api_subjects is not None and self.api_subjects.nak_advisory is not None:
            self.api_subjects.nak_advisory(self, cseq, seq, deliveries)
        return 0

    cdef int terminate(self, uint64_t seq, uint64_t cseq, uint64_t deliveries, const char* p, size_t n) except -1:
        """A message shall not go out again."""
        self.ack_one(seq, cseq)
        if self.api_subjects is not None and self.api_subjects.term_advisory is not None:
            reason = PyBytes_FromStringAndSize(p, n).decode("utf-8", "replace").strip() if n else ""
            self.api_subjects.term_advisory(self, cseq, seq, deliveries, reason)
        return 0

    cdef int exhausted(self, Pending* e) except -1:
        """It went out as often as it may: it leaves, and that is told."""
        cdef uint64_t seq = e.seq, deliveries = e.deliveries
        self.pending.drop(e)
        if self.spent is None:
            self.spent = {}
        self.spent[seq] = deliveries
        self.touch()
        self.room_made()
        if self.api_subjects is not None and self.api_subjects.max_deliver_advisory is not None:
            self.api_subjects.max_deliver_advisory(self, seq, deliveries)
        return 0

    cdef int redeliver_due(self) except -1:
        """Queue what is due, and find out when the next will be."""
        cdef uint64_t now = self.reactor.now_ns, due, next_ns = 0
        cdef size_t i
        cdef Pending* e
        cdef list spent = []
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
                spent.append(e.seq)
            else:
                self.pending.enqueue(e)
                any_due = True
        self.due_ns = next_ns
        for seq in spent:
            e = self.pending.find(seq)
            if e != NULL:
                self.exhausted(e)
        if any_due:
            self.kick()
        return 0


NAK_BYTES = 1000     # behind -NAK are looked at; nothing longer is meant


def nak_delay(bytes text) -> int:
    """Nanoseconds of a delay behind -NAK: ``{"delay": ns}`` or a duration text; 0 when it is neither."""
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
