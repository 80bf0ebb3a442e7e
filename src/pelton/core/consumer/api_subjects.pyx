"""The JetStream subjects of one account, handled without Python per message: `$JS.ACK.`, `$JS.FC.` and `$JS.API.`.

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ns>.<ahead>                          9 tokens
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ns>.<ahead>[...]  11 or more
    $JS.FC.<stream>.<consumer>.<token>                                                                         5 tokens
    $JS.FC.<domain>.<account>.<stream>.<consumer>.<token>                                                      7 tokens
    $JS.API.CONSUMER.MSG.NEXT.<stream>.<consumer>

and those of the dialects of 2019 and 2020 (api/dialects), whose ack subjects end behind three numbers:

    $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>                                               7 tokens
    $JS.A.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>                                                 7 tokens
    $JS.RN.<stream>.<consumer>

Every other subject of the API or of a dialect goes to the callback. A message for an unknown consumer is not taken, so that the sender gets
503.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp
from pelton.core.base.buffer cimport hash_bytes, parse_u63
from pelton.core.base.maps cimport BytesMap
from pelton.core.broker.reactor cimport Connection
from pelton.core.broker.router cimport Message, Router, Sink
from pelton.core.consumer.consumer cimport Consumer
from pelton.core.protocol.api_level import API_LEVEL
from pelton.core.protocol.publish_headers cimport Text, header_value

cdef enum:
    TOKENS_BRIEF = 7
    TOKENS_V1 = 9
    TOKENS_V2 = 11
    FLOW_TOKENS_V1 = 5
    FLOW_TOKENS_V2 = 7
    ACK_LEN = 8                # $JS.ACK.
    FLOW_LEN = 7               # $JS.FC.
    API_LEN = 8                # $JS.API.
    NEXT_LEN = 26              # $JS.API.CONSUMER.MSG.NEXT.
    OLD_ACK_LEN = 6            # $JS.A.
    OLD_NEXT_LEN = 7           # $JS.RN.

# of the dialects: beginnings of subjects that go to the callback, and whole subjects
cdef tuple OLD_BEGINNINGS = (b"$JS.STREAM.", b"$JS.MSGSET.", b"$JS.OBSERVABLE.", b"$JS.TEMPLATE.", b"$JS.BYSEQ.")
cdef tuple OLD_SUBJECTS = (b"$JS.ENABLED", b"$JS.INFO", b"$JS.MSGSETS", b"$JS.OBSERVABLES")


PREFIXES = ("$JS.ACK.", "$JS.API.", "$JS.FC.", "$JS.")


cdef inline bint begins(Message* m, bytes text) noexcept:
    return m.subject_len > <size_t>PyBytes_GET_SIZE(text) and memcmp(m.subject, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)) == 0


cdef inline bint all_digits(const char* p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if not c'0' <= p[i] <= c'9':
            return False
    return True


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
        for prefix in PREFIXES:
            router.attach_prefix(prefix, self)
        router.announcers.append(self.patterns)

    def patterns(self) -> list:
        """The patterns of the consumers' acks and flow-control answers, for other servers."""
        return [
            pattern for consumer in self.consumers.values()
            for pattern in ((<Consumer>consumer).delivery.ack_prefix + b">", b"$JS.FC." + (<Consumer>consumer).address + b".>")
        ]

    def told(self, Consumer consumer, int delta) -> None:
        """A consumer was added or removed: announce its patterns."""
        self.router.announce(consumer.delivery.ack_prefix + b">", delta)
        self.router.announce(b"$JS.FC." + consumer.address + b".>", delta)

    def add(self, Consumer consumer) -> None:
        """Add a consumer: its acks and pull requests reach it from now on."""
        cdef bytes key = consumer.key
        self.consumers[key] = consumer
        self.places.put(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), hash_bytes(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)),
                        <uint64_t><void*>consumer)
        consumer.register(self)
        self.told(consumer, 1)

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
        self.told(consumer, -1)

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
        if not (m.subject_len > API_LEN and memcmp(m.subject, b"$JS.API.", API_LEN) == 0):
            return self.take_old(source, m)
        return self.ask(source, m)

    cdef int ask(self, Connection source, Message* m) except -1:
        if source is not None:
            source.reactor.budget.note_slow()
        return 1 if self.api(
            source,
            PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(m.reply, m.reply_len).decode("utf-8", "surrogateescape") if m.reply_len else "",
            PyBytes_FromStringAndSize(m.body, m.hlen),
            PyBytes_FromStringAndSize(m.body + m.hlen, m.body_len - m.hlen),
        ) else 0

    cdef int take_old(self, Connection source, Message* m) except -1:
        """Take a message of the dialects; no subject of a domain with such a name, as `$JS.STREAM.API.INFO`."""
        cdef bytes text
        cdef const char* body = m.body + m.hlen
        cdef size_t n = m.body_len - m.hlen
        cdef bint limited = source is not None and source.allowed is not None       # api() also asks for leave to use today's subject
        if m.subject_len > OLD_ACK_LEN and memcmp(m.subject, b"$JS.A.", OLD_ACK_LEN) == 0:
            return self.ask(source, m) if limited else self.old_ack(m)
        if m.subject_len > OLD_NEXT_LEN and memcmp(m.subject, b"$JS.RN.", OLD_NEXT_LEN) == 0:
            if limited:
                return self.ask(source, m)
            consumer = self.find(m.subject + OLD_NEXT_LEN, m.subject_len - OLD_NEXT_LEN)
            if consumer is None:
                return 0
            return (<Consumer>consumer).request(m.reply, m.reply_len, body, n if all_digits(body, n) else 0)   # other text asks for one
        for text in OLD_BEGINNINGS:
            if begins(m, text):
                n = PyBytes_GET_SIZE(text)
                if m.subject_len > n + 4 and memcmp(m.subject + n, b"API.", 4) == 0:
                    return 0
                return self.ask(source, m)
        for text in OLD_SUBJECTS:
            if m.subject_len == <size_t>PyBytes_GET_SIZE(text) and memcmp(m.subject, PyBytes_AS_STRING(text), m.subject_len) == 0:
                return self.ask(source, m)
        return 0

    cdef int old_ack(self, Message* m) except -1:
        """Pass on an ack of 2019."""
        cdef const char* end = m.subject + m.subject_len
        cdef const char* p = token_end(m.subject + OLD_ACK_LEN, end)
        cdef Consumer consumer
        p = token_end(p + 1, end) if p < end else end
        consumer = self.find(m.subject + OLD_ACK_LEN, p - m.subject - OLD_ACK_LEN)
        if consumer is None:
            return 0
        return 1 if self.ack_at(consumer, p + 1, end, 3, m) != 0 else 0

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
        cdef int tokens = 2, taken, numbers = 5
        if consumer is not None:
            prefix = consumer.delivery.ack_prefix
            if m.subject_len > <size_t>PyBytes_GET_SIZE(prefix) and memcmp(
                    m.subject, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix)) == 0:
                taken = self.ack_at(consumer, m.subject + PyBytes_GET_SIZE(prefix), end, 3 if consumer.delivery.brief else 5, m)
                if taken >= 0:
                    return taken
        key = p
        while p < end:
            tokens += 1
            p = token_end(p, end) + 1
        if tokens == TOKENS_BRIEF:
            numbers = 3
        elif tokens < TOKENS_V1 or TOKENS_V1 < tokens < TOKENS_V2:
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
        taken = self.ack_at(consumer, p + 1, end, numbers, m)
        return 1 if taken < 0 else taken           # an ack subject without valid numbers is ignored

    cdef int ack_at(self, Consumer consumer, const char* p, const char* end, int count, Message* m) except -1:
        """Read `count` numbers at p; `end`: the end of the last (NULL: more tokens may follow). -2: they are not valid numbers."""
        cdef const char* limit = m.subject + m.subject_len
        cdef const char* stop = p
        cdef int64_t numbers[5]
        cdef int i
        for i in range(count):
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
        cdef int sign
        if consumer is None:
            return 0
        if m.hlen and m.reply_len:
            level = header_value(m.body, m.hlen, b"Nats-Required-Api-Level", 23)
            if level.n:
                sign = level.at[0] == c'-' or level.at[0] == c'+'
                wanted = parse_u63(level.at + sign, level.n - sign)
                if wanted < 0 or (wanted > API_LEVEL and level.at[0] != c'-'):
                    return consumer.refuse_request(m.reply, m.reply_len, "412 Required Api Level")
        return consumer.request(m.reply, m.reply_len, m.body + m.hlen, m.body_len - m.hlen)
