"""Fast-ingest batches of one stream: each publish names its batch and its place in it in the reply subject.

    <prefix>.<batch id>.<flow>.<ok|fail>.<batch seq>.<operation>.$FI         read from the right

Each message is an ordinary publish with all its checks; only the answers differ. The answer to the first message has the number of messages
between two flow acks. From then on the publisher gets one flow ack per that many messages, an answer for each gap and each error, and at the
end a PubAck with the batch and its count:

    {"type":"ack","seq":40,"msgs":20}   {"type":"gap","last_seq":41,"seq":43}   {"type":"err","seq":43,"error":{...}}

An answer about stored messages waits until the stream is durable up to the last of them, and up to the originals of duplicates. The number of
messages between two flow acks depends on the number of open batches: 500 divided among all of them; each ack doubles or halves it towards that.

Knows nothing of configuration and has no timers: expire() abandons a batch that got no message for `timeout_ns`.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memrchr, memset
from pelton.core.base.buffer cimport Out, hash_bytes, out_free, out_put, parse_u63
from pelton.core.base.maps cimport BytesMap
from pelton.core.broker.router cimport Message
from pelton.core.protocol.api_level import API_LEVEL
from pelton.core.protocol.publish_headers cimport Text, header_value
from pelton.core.stream.puback_queue import json_string
from pelton.core.stream.publish cimport DUPLICATE, REFUSED, FastBatchHandler, PublishPath

cdef enum:
    SUFFIX_LEN = 4                 # .$FI
    ID_MAX = 64
    FLOW_DEFAULT = 10
    FLOW_MAX = 65535
    FLOW_SHARED = 500              # messages between flow acks, divided among the open batches
    LEVEL_LEN = 23
    NO_HEADERS = 12                # a block without a line: NATS/1.0 and two line ends

cdef const char* LEVEL = b"Nats-Required-Api-Level"
cdef int64_t OFFERED_LEVEL = API_LEVEL

INVALID_PATTERN = (400, 10206, "batch publish pattern is invalid")
INVALID_ID = (400, 10207, "batch publish ID is invalid")
UNKNOWN_ID = (400, 10208, "batch publish ID unknown")
TOO_MANY = (429, 10211, "batch publish too many inflight")
LEVEL_TOO_LOW = (412, 10185, "JetStream minimum api level required")


cdef inline const char* token_before(const char* start, const char* end) noexcept nogil:
    # The start of the last token of start..end; NULL when no dot precedes it.
    cdef const char* dot = <const char*>memrchr(start, c'.', end - start)
    if dot == NULL:
        return NULL
    return dot + 1


cdef bint read_place(const char* reply, uint32_t n, Place* place) noexcept nogil:
    """Read the parts of a reply subject; False when it is not of this form."""
    cdef const char* end = reply + n - SUFFIX_LEN
    cdef const char* at = token_before(reply, end)
    cdef int64_t value
    if at == NULL:
        return False
    value = parse_u63(at, end - at)
    if value < START or value > PING:
        return False
    place.operation = <int>value
    end = at - 1
    at = token_before(reply, end)
    if at == NULL:
        return False
    value = parse_u63(at, end - at)
    if value <= 0 or (value == 1 and place.operation == COMMIT_EOB):
        return False
    if (place.operation == START and value != 1) or (place.operation == APPEND and value == 1):
        return False
    place.seq = <uint64_t>value
    end = at - 1
    at = token_before(reply, end)
    if at == NULL:
        return False
    place.gap_ok = end - at == 2 and memcmp(at, b"ok", 2) == 0
    if not place.gap_ok and not (end - at == 4 and memcmp(at, b"fail", 4) == 0):
        return False
    end = at - 1
    at = token_before(reply, end)
    if at == NULL:
        return False
    value = parse_u63(at, end - at)
    place.flow = FLOW_DEFAULT if value <= 0 else (FLOW_MAX if value > FLOW_MAX else <uint32_t>value)
    end = at - 1
    at = token_before(reply, end)
    if at == NULL:
        return False
    place.id = at
    place.id_len = <uint32_t>(end - at)
    return True


cdef class Inflight:
    """The number of open batches of all streams together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    cdef int add(self, int64_t n) except -1:
        self.count += n
        return 0


cdef class FastBatch:
    """One open batch."""


cdef class OpenFastBatches(FastBatchHandler):
    """The fast-ingest batches of one stream. The stream passes it every publish whose reply subject ends in ``.$FI``."""

    def __cinit__(self):
        memset(&self.scratch, 0, sizeof(Out))

    def __init__(self, PublishPath path, Inflight inflight, *, limit: int, timeout_ns: int) -> None:
        self.path = path
        self.inflight = inflight
        self.limit = limit
        self.timeout_ns = timeout_ns
        self.batches = {}
        self.places = BytesMap()

    def __dealloc__(self):
        out_free(&self.scratch)

    cdef int take(self, Message* m) except -1:
        cdef PublishPath path = self.path
        cdef FastBatch b
        cdef Place place
        if path.check_sealed() or path.check_usage(m) or path.check_payload_size(m):
            return 0 if path.no_ack else self.say(m, 0, path.refusal_text)
        if not read_place(m.reply, m.reply_len, &place):
            return self.refuse(m, INVALID_PATTERN)
        if place.id_len > ID_MAX:
            return self.refuse(m, INVALID_ID)
        b = self.find(&place)
        if b is None:
            if place.seq != 1 or place.operation == PING:
                return self.refuse(m, UNKNOWN_ID)
            b = self.begin(&place)
            if b is None:
                return self.refuse(m, TOO_MANY)
        b.due_ns = path.reactor.now_ns + self.timeout_ns
        if m.hlen and header_value(m.body, m.hlen, LEVEL, LEVEL_LEN).n and self.level_refused(m):
            self.end(b)
            return self.refuse(m, LEVEL_TOO_LOW)
        if place.operation == PING:
            return self.ping(b, &place, m)
        b.last += 1
        if b.last != place.seq and self.gap(b, &place, m):
            return 0
        if place.operation == COMMIT_EOB:
            b.last -= 1
            return self.commit(b, m)
        if place.seq == 1 and place.operation != COMMIT and not path.no_ack:
            self.say(m, 0, b'{"type":"ack","seq":0,"msgs":%d}' % b.every)
        return self.store(b, &place, m)

    cdef int store(self, FastBatch b, Place* place, Message* m) except -1:
        """Store an ordinary publish without its own answer, then send the batch's answer."""
        cdef PublishPath path = self.path
        cdef Message one = m[0]
        cdef uint64_t seq = 0
        cdef bint committing = place.operation == COMMIT
        cdef int outcome
        one.reply = NULL
        one.reply_len = 0
        outcome = path.accept_in_batch(&one, &seq)
        if outcome == REFUSED:
            if not b.gap_ok and b.last == 1:
                self.end(b)
                return self.say(m, 0, path.refusal_text)
            code, err_code, description = path.refusal
            self.say(m, 0, (f'{{"type":"err","seq":{place.seq},"error":{{"code":{code},"err_code":{err_code},'
                            f'"description":{json_string(description)}}}}}').encode("utf-8", "replace"))
            if b.gap_ok and not committing:
                return 0
            b.last -= 1
            return self.commit(b, m)
        if outcome == DUPLICATE:
            b.stored = b.last
            b.barrier = max(b.barrier, seq)      # another client has published the original: it may not be durable yet
            self.flow(b, m)
            if not committing:
                return 0
            if not b.gap_ok and b.last == 1:
                self.end(b)
                extra = b',"duplicate": true,"batch":%b,"count":%d' % (json_string(b.id.decode("utf-8", "replace")).encode(), place.seq)
                return self.say(m, seq, path.acks.stored_text(seq, extra))
            return self.commit(b, m)
        b.stream_seq = seq if seq else path.log.span.last_seq
        b.barrier = max(b.barrier, b.stream_seq)
        b.stored = b.last
        if committing:
            return self.commit(b, m)
        self.flow(b, m)
        return 0

    cdef int ping(self, FastBatch b, Place* place, Message* m) except -1:
        """Answer with the state of the batch; a ping with a later batch sequence than the last message reveals a gap at the end."""
        if place.seq > b.last:
            self.say(m, 0, b'{"type":"gap","last_seq":%d,"seq":%d}' % (b.last + 1, place.seq + 1))
            if not b.gap_ok:
                return self.commit(b, m)
            b.last = b.stored = place.seq
            if self.flow(b, m):
                return 0
        return self.flow_ack(b, m)

    cdef bint gap(self, FastBatch b, Place* place, Message* m) except -1:
        """Report a gap; b.last is the batch sequence that was expected."""
        self.say(m, 0, b'{"type":"gap","last_seq":%d,"seq":%d}' % (b.last, place.seq))
        if place.seq > b.last and b.gap_ok:
            b.last = place.seq
            return False
        b.last -= 1
        self.commit(b, m)
        return True

    cdef int commit(self, FastBatch b, Message* m) except -1:
        """End the batch and send its PubAck."""
        self.end(b)
        extra = b',"batch":%b,"count":%d' % (json_string(b.id.decode("utf-8", "replace")).encode(), b.last)
        return self.say(m, b.barrier, self.path.acks.stored_text(b.stream_seq, extra))

    # --- flow ----------------------------------------------------------------------------------------------------------
    cdef bint flow(self, FastBatch b, Message* m) except -1:
        cdef uint32_t most
        if b.stored < b.told + b.every:
            return False
        b.told += (b.stored - b.told) // b.every * b.every
        most = FLOW_SHARED // <uint32_t>max(len(self.batches), 1)
        most = min(max(most, 1), b.most)
        if b.every < most:
            b.every = min(b.every * 2, most)
        elif b.every > most:
            b.every = max(b.every // 2, most)
        self.flow_ack(b, m)
        return True

    cdef int flow_ack(self, FastBatch b, Message* m) except -1:
        return self.say(m, b.barrier, b'{"type":"ack","seq":%d,"msgs":%d}' % (b.told, b.every))

    cdef int say(self, Message* m, uint64_t barrier, bytes text) except -1:
        if self.path.committer.failure and barrier == 0:
            return self.path.acks.say(self.path.router, m.reply, m.reply_len, text)
        return self.path.acks.push_text(m.reply, m.reply_len, barrier, text)

    cdef int refuse(self, Message* m, tuple refusal) except -1:
        if self.path.no_ack:
            return 0
        self.path.refuse(refusal[0], refusal[1], refusal[2])
        return self.say(m, 0, self.path.refusal_text)

    cdef bint level_refused(self, Message* m) except -1:
        """Whether the message requires a higher API level than the server has; if not, remove that header from the message."""
        cdef Text level = header_value(m.body, m.hlen, LEVEL, LEVEL_LEN)
        cdef int sign = 1 if level.at[0] == c'-' or level.at[0] == c'+' else 0
        cdef int64_t wanted = parse_u63(level.at + sign, level.n - sign)
        cdef const char* line = level.at
        cdef const char* after = level.at + level.n
        if wanted < 0 or (wanted > OFFERED_LEVEL and level.at[0] != c'-'):
            return True
        while line > m.body and (line - 1)[0] != c'\n':
            line -= 1
        while after < m.body + m.hlen and after[0] != c'\n':
            after += 1
        after += 1
        self.scratch.off = self.scratch.len = 0
        out_put(&self.scratch, m.body, line - m.body)
        out_put(&self.scratch, after, m.body + m.body_len - after)
        m.hlen -= <uint32_t>(after - line)
        m.body_len -= <uint32_t>(after - line)
        m.body = self.scratch.data
        if m.hlen <= NO_HEADERS:
            m.body += m.hlen
            m.body_len -= m.hlen
            m.hlen = 0
        return False

    # --- open batches --------------------------------------------------------------------------------------------------
    cdef FastBatch find(self, Place* place):
        cdef FastBatch b = self.latest
        cdef uint64_t* at
        if b is None or PyBytes_GET_SIZE(b.id) != place.id_len or memcmp(PyBytes_AS_STRING(b.id), place.id, place.id_len) != 0:
            at = self.places.find(place.id, place.id_len, hash_bytes(place.id, place.id_len))
            if at == NULL:
                return None
            b = <FastBatch><void*>at[0]
            self.latest = b
        if b.due_ns <= self.path.reactor.now_ns:
            self.end(b)
            return None
        return b

    cdef FastBatch begin(self, Place* place):
        """Begin a batch; None: there are too many."""
        cdef FastBatch b
        if len(self.batches) >= self.limit or self.inflight.count >= self.inflight.limit:
            self.expire(self.path.reactor.now_ns)
            if len(self.batches) >= self.limit or self.inflight.count >= self.inflight.limit:
                return None
        b = FastBatch()
        b.id = PyBytes_FromStringAndSize(place.id, place.id_len)
        b.gap_ok = place.gap_ok
        b.most = place.flow
        self.batches[b.id] = b
        self.places.put(place.id, place.id_len, hash_bytes(place.id, place.id_len), <uint64_t><void*>b)
        self.inflight.add(1)
        b.every = min(<uint32_t>FLOW_SHARED, b.most) if len(self.batches) == 1 else 1
        self.latest = b
        return b

    cdef int end(self, FastBatch b) except -1:
        if self.batches.pop(b.id, None) is None:
            return 0
        self.inflight.add(-1)
        self.places.remove(PyBytes_AS_STRING(b.id), PyBytes_GET_SIZE(b.id), hash_bytes(PyBytes_AS_STRING(b.id), PyBytes_GET_SIZE(b.id)))
        if self.latest is b:
            self.latest = None
        return 0

    def expire(self, now_ns: int) -> None:
        """Abandon the batches that got no message for `timeout_ns`; their publishers get no answer."""
        cdef FastBatch b
        for b in list(self.batches.values()):
            if b.due_ns <= <uint64_t>now_ns:
                self.end(b)

    def close(self) -> None:
        """Abandon all batches."""
        cdef FastBatch b
        for b in list(self.batches.values()):
            self.end(b)
