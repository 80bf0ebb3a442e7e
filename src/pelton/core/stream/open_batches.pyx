"""The open atomic batches of one stream. Messages wait until the last one says commit; then all are checked and stored together, or none is.

    Nats-Batch-Id: x          every message of the batch
    Nats-Batch-Sequence: 1    counts them without a gap
    Nats-Batch-Commit: 1      the last one; `eob`: the one before was the last, this is not stored

A waiting message is answered with an empty ack, which promises nothing: an open batch is in memory only, and ends with the server.
core/stream/batch_checks has the checks at the commit, core/stream/atomic_batch the store.

Knows nothing of configuration and has no timers: expire() abandons a batch that got no message for `timeout_ns`.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp
from pelton.core.base.buffer cimport parse_u63
from pelton.core.broker.router cimport Message
from pelton.core.protocol.publish_headers cimport Text, header_value
from pelton.core.stream.atomic_batch cimport Group, store_group
from pelton.core.stream.batch_checks cimport check_group
from pelton.core.stream.draft cimport Draft
from pelton.core.stream.fast_batch cimport Inflight
from pelton.core.stream.puback_queue import json_string
from pelton.core.stream.publish cimport HANDLED, REFUSED, STORED, AtomicBatchHandler, PublishPath

from pelton.core.stream.publish import StreamRefused

cdef enum:
    ID_MAX = 64
    MESSAGE_BYTES = 32             # memory of a waiting message besides its bytes, about
    DRAFT_BYTES = 1024             # ... and of one with a Draft
    COMMIT_LINE_LEN = 22

cdef const char* COMMIT_LINE = b"Nats-Batch-Commit: 1\r\n"


cdef inline int ending_of(Text commit) noexcept nogil:
    if commit.at == NULL:
        return NOT_YET
    if commit.n == 1 and commit.at[0] == c'1':
        return WITH_THIS
    return BEFORE_THIS if commit.n == 3 and memcmp(commit.at, b"eob", 3) == 0 else UNKNOWN


cdef class OpenBatch:
    """One open batch."""


cdef class OpenAtomicBatches(AtomicBatchHandler):
    """The atomic batches of one stream. The stream passes it every message with a batch id."""

    def __init__(self, PublishPath path, Inflight inflight, Inflight held, *, limit: int, messages_max: int, timeout_ns: int,
                 offer, opened, abandoned) -> None:
        self.path = path
        self.inflight, self.held = inflight, held
        self.limit, self.messages_max, self.timeout_ns = limit, messages_max, timeout_ns
        self.offer, self.opened, self.abandoned = offer, opened, abandoned
        self.batches = {}

    def __len__(self):
        return len(self.batches)

    cdef int take(self, Message* m, Draft draft) except -1:
        cdef PublishPath path = self.path
        cdef Text id = header_value(m.body, m.hlen, b"Nats-Batch-Id", 13)
        cdef Text number = header_value(m.body, m.hlen, b"Nats-Batch-Sequence", 19)
        cdef int ending = ending_of(header_value(m.body, m.hlen, b"Nats-Batch-Commit", 17))
        cdef int64_t sequence = parse_u63(number.at, number.n)
        cdef OpenBatch b
        cdef Text level
        cdef Message own
        if id.n > ID_MAX:
            return path.refuse(400, 10179, "atomic publish batch ID is invalid")
        if sequence < 0:
            return path.refuse(400, 10175, "atomic publish sequence is missing")
        b = self.find(id.at, id.n)
        if b is None:
            if sequence != 1:
                if sequence - (ending == BEFORE_THIS) > self.messages_max:
                    return self.refuse_size()
                return path.refuse(400, 10176, "atomic publish batch is incomplete")
            if self.begin(id.at, id.n) == REFUSED:
                return REFUSED
            b = self.latest
        if ending == UNKNOWN:
            self.drop(b, None)
            return path.refuse(400, 10200, "atomic publish batch commit is invalid")
        level = header_value(m.body, m.hlen, b"Nats-Required-Api-Level", 23)
        if level.n:
            block = self.offer(PyBytes_FromStringAndSize(m.body, m.hlen))
            if block is None:
                self.drop(b, "unsupported")
                return path.refuse(412, 10185, "JetStream minimum api level required")
            body = block + PyBytes_FromStringAndSize(m.body + m.hlen, m.body_len - m.hlen)
            own = m[0]
            m = &own
            m.body, m.hlen, m.body_len = PyBytes_AS_STRING(body), <uint32_t>len(block), <uint32_t>PyBytes_GET_SIZE(body)
            if draft is not None:
                draft.change(headers=block)
        b.due_ns = path.reactor.now_ns + self.timeout_ns
        b.last += 1
        if b.last != sequence or (sequence == 1 and ending == BEFORE_THIS):
            self.drop(b, "incomplete")
            return path.refuse(400, 10176, "atomic publish batch is incomplete")
        if ending != BEFORE_THIS and self.keep(b, m, draft) == REFUSED:
            return REFUSED
        if ending == NOT_YET:
            self.say(m, 0, b"")
            return HANDLED
        self.drop(b, None)
        return self.commit(b, m, ending == BEFORE_THIS)

    cdef int keep(self, OpenBatch b, Message* m, Draft draft) except -1:
        cdef int64_t size = <int64_t>m.body_len + m.subject_len + (MESSAGE_BYTES if draft is None else DRAFT_BYTES)
        if b.last > self.messages_max:
            self.drop(b, "large")
            return self.refuse_size()
        b.held_bytes += size
        self.held.add(size)
        if self.held.count > self.held.limit:
            self.drop(b, "large")
            return self.path.refuse(503, 10023, "insufficient resources")
        b.group.add(m, draft)
        return STORED

    cdef int commit(self, OpenBatch b, Message* m, bint before) except -1:
        try:
            return self.store(b, m, before)
        except StreamRefused as refused:
            return self.path.refuse(refused.code, refused.err_code, refused.description)
        except OSError as error:
            return self.path.refuse_for_disk(error)

    cdef int store(self, OpenBatch b, Message* m, bint before) except -1:
        cdef int outcome = check_group(self.path, b.group, self.ttl, COMMIT_LINE_LEN if before else 0)
        cdef uint64_t seq
        if outcome:
            return outcome
        if before:
            b.group.end_with(COMMIT_LINE, COMMIT_LINE_LEN)
        seq = store_group(self.path, b.group)
        batch_id = json_string(b.id.decode("utf-8", "surrogateescape")).encode("utf-8", "replace")
        self.say(m, seq, self.path.acks.stored_text(seq, b',"batch":%b,"count":%d' % (batch_id, b.group.count)))
        return HANDLED

    cdef int say(self, Message* m, uint64_t barrier, bytes text) except -1:
        if m.reply_len and not self.path.no_ack:
            self.path.acks.push_text(m.reply, m.reply_len, barrier, text)
            return self.path.committer.enlist()
        return 0

    cdef int refuse_size(self) except -1:
        return self.path.refuse(400, 10199, f"atomic publish batch is too large: {self.messages_max}")

    # --- open batches --------------------------------------------------------------------------------------------------
    cdef OpenBatch find(self, const char* id, uint32_t n):
        cdef OpenBatch b = self.latest
        if b is None or PyBytes_GET_SIZE(b.id) != n or memcmp(PyBytes_AS_STRING(b.id), id, n) != 0:
            b = self.batches.get(PyBytes_FromStringAndSize(id, n))
            if b is None:
                return None
            self.latest = b
        if b.due_ns <= self.path.reactor.now_ns:
            self.drop(b, "timeout")
            return None
        return b

    cdef int begin(self, const char* id, uint32_t n) except -1:
        """Begin a batch, and make it the latest."""
        cdef OpenBatch b
        if len(self.batches) >= self.limit or self.inflight.count >= self.inflight.limit:
            return self.path.refuse(429, 10210, "atomic publish too many inflight")
        b = OpenBatch()
        b.id = PyBytes_FromStringAndSize(id, n)
        b.group = Group()
        b.due_ns = self.path.reactor.now_ns + self.timeout_ns
        self.batches[b.id] = self.latest = b
        self.inflight.add(1)
        self.opened(b.due_ns)
        return STORED

    cdef int drop(self, OpenBatch b, str reason) except -1:
        """The batch ends; with a reason, abandoned() is called."""
        if self.batches.pop(b.id, None) is None:
            return 0
        if self.latest is b:
            self.latest = None
        self.inflight.add(-1)
        self.held.add(-b.held_bytes)
        if reason is not None:
            self.abandoned(b.id.decode("utf-8", "surrogateescape"), reason)
        return 0

    def expire(self, now_ns: int) -> int:
        """Abandon the batches that are due; returns when the next one is due, 0: none is open."""
        cdef OpenBatch b
        cdef uint64_t next_ns = 0
        for b in list(self.batches.values()):
            if b.due_ns <= <uint64_t>now_ns:
                self.path.reactor.count_freed(b.held_bytes)
                self.drop(b, "timeout")
            elif next_ns == 0 or b.due_ns < next_ns:
                next_ns = b.due_ns
        return next_ns

    def close(self) -> None:
        """Drop all open batches without calling abandoned()."""
        cdef OpenBatch b
        for b in list(self.batches.values()):
            self.drop(b, None)
