"""The JetStream subjects of one account, handled without Python per message: `$JS.ACK.`, `$JS.FC.` and `$JS.API.`.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ns>.<ahead>                          9 tokens
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ns>.<ahead>[...]  11 or more
    $JS.FC.<stream>.<consumer>.<token>                                                                         5 tokens
    $JS.FC.<domain>.<account>.<stream>.<consumer>.<token>                                                      7 tokens
    $JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>

Every other `$JS.API.` subject goes to the callback. A message for an unknown consumer is not taken, so that the sender gets 503.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp
from penstock.core.base.buffer cimport hash_bytes, parse_u63
from penstock.core.base.maps cimport BytesMap
from penstock.core.broker.reactor cimport Connection
from penstock.core.broker.router cimport Message, Router, Sink
from penstock.core.consumer.consumer cimport Consumer
from penstock.core.protocol.api_level import API_LEVEL
from penstock.core.protocol.publish_headers cimport Text, header_value

cdef enum:
    TOKENS_V1 = 9
    TOKENS_V2 = 11
    FLOW_TOKENS_V1 = 5
    FLOW_TOKENS_V2 = 7
    ACK_LEN = 8                # $JS.ACK.
    FLOW_LEN = 7               # $JS.FC.
    NEXT_LEN = 26              # $JS.API.CONSUMER.MSG.NEXT.


cdef inline const char* token_end(const char* p, const char* end) noexcept nogil:
    cdef const char* dot = <const char*>memchr(p, c'.', end - p)
    return end if dot == NULL else dot


cdef class ApiSubjects(Sink):
    """Passes acks, flow-control answers and pull requests to their consumers, and all other requests to api()."""

    def __init__(self, Router router, api) -> None:
        self.router = router
        self.api = api
        self.consumers = {}
        self.owner = b""
        self.places = BytesMap()
        for prefix in ("$JS.ACK.", "$JS.API.", "$JS.FC."):
            router.attach_prefix(prefix, self)
        router.announcers.append(self.patterns)

    def patterns(self) -> list:
        """The patterns of the consumers' acks and flow-control answers, for other servers."""
        return [pattern for key in self.consumers for pattern in (b"$JS.ACK." + key + b".>", b"$JS.FC." + key + b".>")]

    def told(self, bytes key, int delta) -> None:
        """A consumer was added or removed: announce its patterns."""
        self.router.announce(b"$JS.ACK." + key + b".>", delta)
        self.router.announce(b"$JS.FC." + key + b".>", delta)

    def add(self, Consumer consumer) -> None:
        """Add a consumer: its acks and pull requests reach it from now on."""
        cdef bytes key = consumer.key
        self.consumers[key] = consumer
        self.places.put(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), hash_bytes(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)),
                        <uint64_t><void*>consumer)
        consumer.register(self)
        self.told(key, 1)

    def remove(self, Consumer consumer) -> None:
        """Undo add()."""
        cdef bytes key = consumer.key
        if self.consumers.get(key) is not consumer:
            return
        if self.last is consumer:
            self.last = None
        consumer.register(None)
        self.places.remove(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), hash_bytes(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)))
        del self.consumers[key]
        self.told(key, -1)

    cdef Consumer find(self, const char* key, size_t n):
        cdef uint64_t* place = self.places.find(key, n, hash_bytes(key, n))
        return None if place == NULL else <Consumer><void*>place[0]

    cdef int take(self, Connection source, Message* m) except -1:
        if m.subject_len > ACK_LEN and memcmp(m.subject, b"$JS.ACK.", ACK_LEN) == 0:
            return self.ack(m)
        if m.subject_len > NEXT_LEN and memcmp(m.subject, b"$JS.API.CONSUMER.MSG.NEXT.", NEXT_LEN) == 0:
            return self.next(m, m.subject + NEXT_LEN, m.subject_len - NEXT_LEN)
        if m.subject_len > FLOW_LEN and memcmp(m.subject, b"$JS.FC.", FLOW_LEN) == 0:
            return self.flow(m)
        return 1 if self.api(
            source,
            PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(m.reply, m.reply_len).decode("utf-8", "surrogateescape") if m.reply_len else "",
            PyBytes_FromStringAndSize(m.body, m.hlen),
            PyBytes_FromStringAndSize(m.body + m.hlen, m.body_len - m.hlen),
        ) else 0

    cdef const char* owned(self, const char* key, const char* end):
        """The address behind the domain and the account of a longer subject; NULL when they are not this server's."""
        cdef size_t n = PyBytes_GET_SIZE(self.owner)
        if n == 0:
            key = token_end(key, end) + 1
            return token_end(key, end) + 1
        return key + n if <size_t>(end - key) > n and memcmp(key, PyBytes_AS_STRING(self.owner), n) == 0 else NULL

    cdef int flow(self, Message* m) except -1:
        """Pass on the answer to a flow-control request."""
        cdef const char* end = m.subject + m.subject_len
        cdef const char* key = m.subject + FLOW_LEN
        cdef const char* p = key
        cdef int tokens = 2
        cdef Consumer consumer
        while p < end:
            tokens += 1
            p = token_end(p, end) + 1
        if tokens == FLOW_TOKENS_V2:
            key = self.owned(key, end)
            if key == NULL:
                return 0
        elif tokens != FLOW_TOKENS_V1:
            return 0
        p = token_end(key, end)
        p = token_end(p + 1, end)
        consumer = self.find(key, p - key)
        return 0 if consumer is None else consumer.flow_answer(m)

    # --- acks ----------------------------------------------------------------------------------------------------------
    cdef int ack(self, Message* m) except -1:
        cdef const char* end = m.subject + m.subject_len
        cdef const char* p = m.subject + ACK_LEN
        cdef const char* key
        cdef Consumer consumer = self.last
        cdef bytes prefix
        cdef int tokens = 2, taken
        if consumer is not None:
            prefix = consumer.delivery.ack_prefix
            if m.subject_len > <size_t>PyBytes_GET_SIZE(prefix) and memcmp(
                    m.subject, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix)) == 0:
                taken = self.ack_at(consumer, m.subject + PyBytes_GET_SIZE(prefix), end, m)
                if taken >= 0:
                    return taken
        key = p
        while p < end:
            tokens += 1
            p = token_end(p, end) + 1
        if tokens < TOKENS_V1 or TOKENS_V1 < tokens < TOKENS_V2:
            return 0
        if tokens >= TOKENS_V2:
            key = self.owned(key, end)
            if key == NULL:
                return 0
        p = token_end(key, end)
        p = token_end(p + 1, end)
        consumer = self.find(key, p - key)
        if consumer is None:
            return 0
        self.last = consumer
        if tokens >= TOKENS_V2:
            end = NULL                          # more tokens may follow the five numbers
        taken = self.ack_at(consumer, p + 1, end, m)
        return 1 if taken < 0 else taken           # an ack subject without valid numbers is ignored

    cdef int ack_at(self, Consumer consumer, const char* p, const char* end, Message* m) except -1:
        """Read the numbers at p; `end`: the end of the fifth (NULL: more tokens may follow). -2: they are not valid numbers."""
        cdef const char* limit = m.subject + m.subject_len
        cdef const char* stop
        cdef int64_t numbers[5]
        cdef int i
        for i in range(5):
            if p >= limit:
                return -2
            stop = token_end(p, limit)
            numbers[i] = parse_u63(p, stop - p)
            if numbers[i] < 0:
                return -2
            p = stop + 1
        if end != NULL and stop != end:
            return -2
        return consumer.delivery.acknowledge(<uint64_t>numbers[1], <uint64_t>numbers[2], <uint64_t>numbers[0], m)

    cdef int next(self, Message* m, const char* key, size_t n) except -1:
        """Pass on a pull request."""
        cdef Consumer consumer = self.find(key, n)
        cdef Text level
        cdef int64_t wanted
        if consumer is None:
            return 0
        if m.hlen and m.reply_len:
            level = header_value(m.body, m.hlen, b"Nats-Required-Api-Level", 23)
            if level.at != NULL:
                wanted = parse_u63(level.at, level.n)
                if wanted < 0 or wanted > API_LEVEL:
                    return consumer.refuse_request(m.reply, m.reply_len, "412 Required Api Level")
        return consumer.request(m.reply, m.reply_len, m.body + m.hlen, m.body_len - m.hlen)
