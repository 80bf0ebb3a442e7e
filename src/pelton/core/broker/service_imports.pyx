"""Imports and exports: the border of each account, service imports, and the way of replies back to the requester.

A service import is a sink on the importer's router. It publishes the request in the exporter's account with a reply subject made for this
request alone, and the answer goes back the same way. Services may be chained over several accounts. core/broker/stream_imports has
the stream imports.

    importer: request help, reply _INBOX.7 ──► ServiceImport(help) ──► exporter: help, reply _R_.Ab12cd34.Xy98zw76vu
    importer: _INBOX.7 ◄── Response ◄── ReplySink(_R_.Ab12cd34.>) ◄── exporter: a client publishes the answer

A Response ends with its answer (singleton) or an empty one (stream, chunked), with the interest in the reply, when no answer came for the
service's threshold, or when the service has too many of them and this one was silent longest. Knows nothing of configuration: the control
plane makes these objects, and has decided which account may import what.
"""
from collections import OrderedDict

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp
from pelton.core.broker.reactor cimport Connection, Reactor, Task, Trace
from pelton.core.broker.router cimport Border, Message, QueueGroup, RemoteSubscription, Router, Sink, Subscription
from pelton.core.protocol.publish_headers cimport header_value
from pelton.core.protocol.subjects cimport Route, subject_has_wildcard, subject_matches

SINGLETON = 0
STREAMED = 1
CHUNKED = 2
STATUS_OK = 200
STATUS_NO_REPLY = 400
STATUS_INTEREST_LOST = 408
STATUS_NO_DELIVERY = 503
STATUS_TIMEOUT = 504

cdef enum:
    MOST = 262144              # responses that one service waits for at most
    MOST_BYTES = 33554432      # bytes of their reply subjects at most
    PREFIX_DIGITS = 8
    KEY_DIGITS = 10
    SCAN_MAX = 4096            # replies that are searched when a wildcard subscription ends; further ones end with the threshold

cdef bytes DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef bytes random_word(Reactor reactor, int n):
    cdef char word[16]
    cdef uint64_t random = reactor.random() >> 2
    cdef int i
    for i in range(n):
        word[i] = PyBytes_AS_STRING(DIGITS)[random % 62]
        random //= 62
    return PyBytes_FromStringAndSize(word, n)


cdef str text_of(const char* p, size_t n):
    return PyBytes_FromStringAndSize(p, n).decode("utf-8", "surrogateescape")


cdef bint is_ack(const char* p, size_t n) noexcept:
    return n > 8 and memcmp(p, b"$JS.ACK.", 8) == 0


cdef bytes head_without_info(Message* m):
    """The header block without its last line end and without an earlier Nats-Request-Info."""
    cdef bytes head = PyBytes_FromStringAndSize(m.body, m.hlen - 2) if m.hlen > 2 else b"NATS/1.0\r\n"
    while True:
        at = head.find(b"\r\nNats-Request-Info:")
        if at < 0:
            return head
        end = head.find(b"\n", at + 2)
        head = head[:at + 2] + (head[end + 1:] if end >= 0 else b"")


cdef class Sharing:
    """The state that all accounts of a server share."""

    def __init__(self, Reactor reactor) -> None:
        self.reactor = reactor
        self.chain = []
        self.services = {}

    def importers(self) -> list:
        """The accounts that the request being handled came through, the requester's own first."""
        return [(<ServiceImport>each).border.name for each in self.chain]

    def shared(self) -> bool:
        """Whether the service may learn the requester of the request being handled."""
        return len(self.chain) > 0 and (<ServiceImport>self.chain[0]).share

    cdef int add_service(self, Service service) except -1:
        self.services[service] = None
        return 0

    cdef int drop_service(self, Service service) except -1:
        self.services.pop(service, None)
        return 0

    cdef int arm(self, uint64_t due_ns) except -1:
        if self.on_due is not None and (self.due_ns == 0 or due_ns < self.due_ns):
            self.due_ns = due_ns
            self.on_due(due_ns)
        return 0

    def tick(self) -> int:
        """End the requests that have waited too long; when to call again (ns), 0: not needed."""
        cdef Service service
        cdef Response response
        cdef uint64_t now = self.reactor.now_ns, due = 0, ends
        for service in list(self.services):
            while service.responses:
                response = next(iter(service.responses.values()))
                ends = response.since_ns + service.threshold_ns
                if ends > now:
                    due = ends if due == 0 or ends < due else due
                    break
                response.close()
                self.tell(response, STATUS_TIMEOUT)
        self.due_ns = due
        return due

    cdef int tell(self, Response response, int status) except -1:
        """Report the measurement of a request that got no answer."""
        if response.requester is not None and not response.delivered:
            self.measured(response, None, status)
            response.requester = None
        return 0


cdef class AccountBorder(Border):
    """The imports and exports of one account at its router."""

    def __init__(self, Sharing sharing, Router router, str name) -> None:
        self.sharing = sharing
        self.router = router
        self.name = name
        self.prefix = b""
        self.responses = {}
        self.expected = {}
        self.imports = {}
        router.set_border(self)

    def pending(self) -> int:
        """Number of requests to services of this account that wait for answers."""
        return len(self.responses)

    def awaited(self) -> int:
        """Number of reply subjects of this account that other accounts may answer on."""
        return len(self.expected)

    cdef Response expect(self, Service service, AccountBorder requester, bytes reply):
        cdef Reactor reactor = self.router.reactor
        cdef Response response
        if not self.prefix:
            self.prefix = b"_R_." + random_word(reactor, PREFIX_DIGITS) + b"."
            self.router.share(self.prefix.decode() + ">", ReplySink(self))
        while service.responses and (
            len(service.responses) >= service.most or service.reply_bytes + PyBytes_GET_SIZE(reply) > service.most_bytes
        ):
            (<Response>next(iter(service.responses.values()))).close()
        key = self.prefix + random_word(reactor, KEY_DIGITS)
        while key in self.responses:
            key = self.prefix + random_word(reactor, KEY_DIGITS)
        response = Response(service, self, requester, key, reply)
        self.responses[key] = response
        service.responses[key] = response
        service.reply_bytes += PyBytes_GET_SIZE(reply)
        waiting = requester.expected.get(reply)
        if waiting is None:
            requester.expected[reply] = {response: None}
        else:
            waiting[response] = None
        self.sharing.arm(response.since_ns + service.threshold_ns)
        return response

    cdef int enter(self, Connection source, Message* m, Message* bare, bint of_stream) except -1:
        cdef int took = 0
        cdef Route route
        if m.subject_len and m.subject[0] == c'$':
            self.router.first_asked(source, bare, &took)
        route = self.router.trie.route(m.subject, m.subject_len)
        return took + self.show(route, source, m, bare, of_stream)

    cdef int show(self, Route route, Connection source, Message* m, Message* bare, bint of_stream) except -1:
        cdef int i, took = 0
        cdef object item
        cdef Message* shown
        cdef bint traced = source is not None and self.router.reactor.trace is not None, remote = False
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                took += self.router.deliver_traced(<Subscription>item, source, m) if traced else self.router.deliver(<Subscription>item, source, m)
            elif type(item) is QueueGroup:
                if self.router.deliver_group_traced(item, source, m) if traced else self.router.deliver_group(item, source, m):
                    took += 1
                elif (<QueueGroup>item).remote is not None:
                    took += self.router.neighbours.send(None, source, bare, &route.items[i], 1)
            elif type(item) is RemoteSubscription:
                remote = True
            elif isinstance(item, Inflow) or (of_stream and (<Sink>item).elsewhere):
                continue                           # a message that was imported is not exported again as a stream
            else:
                shown = m if (<Sink>item).as_client else bare
                took += (<Sink>item).traced(source, shown) if traced else (<Sink>item).take(source, shown)
        if remote:
            took += (self.router.neighbours.send(route, source, bare, NULL, 0) if m.subject == bare.subject
                     else self.router.neighbours.hand(route, m, bare.subject[:bare.subject_len], NULL, 0))
        return took

    cdef int add_import(self, Inflow inflow) except -1:
        self.imports[inflow] = None
        return 0

    cdef int drop_import(self, Inflow inflow) except -1:
        self.imports.pop(inflow, None)
        return 0

    cdef int changed(self, bytes subject, bint came) except -1:
        cdef Inflow each
        for each in self.imports:
            each.interest(subject)
        if not came and self.expected:
            self.interest_lost(subject)
        return 0

    def interest_lost(self, bytes subject) -> None:
        """A subscription has ended: end the responses to its subject, unless there are other subscribers."""
        cdef Response response
        if not subject_has_wildcard(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            lost = [subject] if subject in self.expected else []
        elif len(self.expected) > SCAN_MAX:
            lost = []
        else:
            lost = [reply for reply in self.expected if subject_matches(
                PyBytes_AS_STRING(<bytes>reply), PyBytes_GET_SIZE(<bytes>reply),
                PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))]
        for reply in lost:
            if self.router.trie.match(PyBytes_AS_STRING(<bytes>reply), PyBytes_GET_SIZE(<bytes>reply)).n:
                continue
            for response in list(self.expected.pop(reply, ())):
                response.close()
                self.sharing.tell(response, STATUS_INTEREST_LOST)

    def close(self) -> None:
        """The account is removed: forget all requests."""
        cdef Response response
        for response in list(self.responses.values()):
            response.close()
        for waiting in list(self.expected.values()):
            for response in list(waiting):
                response.close()
        self.router.set_border(None)


cdef class Inflow(Sink):
    """A stream import, as the importer's border holds it."""

    cdef int interest(self, bytes subject) except -1:
        return 0


cdef class Service:
    """An exported service. `response_type`: SINGLETON, STREAMED or CHUNKED."""

    def __init__(self, AccountBorder border, str subject, *, int response_type, uint64_t threshold_ns, latency=None) -> None:
        self.border = border
        self.subject = subject
        self.response_type = response_type
        self.threshold_ns = threshold_ns
        self.latency = latency
        self.most = MOST
        self.most_bytes = MOST_BYTES
        self.responses = OrderedDict()
        border.sharing.add_service(self)

    def close(self) -> None:
        """The service is not exported any more: forget its requests, and take no more."""
        cdef Response response
        self.closed = True
        for response in list(self.responses.values()):
            response.close()
        self.border.sharing.drop_service(self)


cdef class Response:
    """A request that waits for answers, and where the answers go."""

    def __init__(self, Service service, AccountBorder exporter, AccountBorder importer, bytes key, bytes reply) -> None:
        self.service = service
        self.exporter = exporter
        self.importer = importer
        self.key = key
        self.reply = reply
        self.since_ns = exporter.router.reactor.now_ns

    @property
    def requester_account(self) -> str:
        """The name of the requester's account."""
        return self.importer.name

    @property
    def service_account(self) -> str:
        """The name of the exporter's account."""
        return self.exporter.name

    cdef int close(self) except -1:
        if self.closed:
            return 0
        self.closed = True
        self.exporter.responses.pop(self.key, None)
        if self.service.responses.pop(self.key, None) is not None:
            self.service.reply_bytes -= PyBytes_GET_SIZE(self.reply)
        waiting = self.importer.expected.get(self.reply)
        if waiting is not None:
            waiting.pop(self, None)
            if not waiting:
                del self.importer.expected[self.reply]
        return 0

    cdef int carry(self, Connection source, Message* m, bint shown) except -1:
        """Deliver an answer to the subscribers of the requester's reply subject; `shown`: they get it under m.subject."""
        cdef Message out = m[0], bare
        cdef Response back = None
        cdef Sharing sharing = self.exporter.sharing
        cdef bytes keep = self.reply
        cdef int took
        if self.closed:
            return 0
        if m.reply_len and not is_ack(m.reply, m.reply_len):
            back = self.importer.expect(self.service, self.exporter, PyBytes_FromStringAndSize(m.reply, m.reply_len))
            out.reply = PyBytes_AS_STRING(back.key)
            out.reply_len = <uint32_t>PyBytes_GET_SIZE(back.key)
        if self.requester is not None:
            sharing.measured(self, source, STATUS_OK)
            self.requester = None
        chain, sharing.chain = sharing.chain, []
        try:
            bare = out
            bare.subject = PyBytes_AS_STRING(keep)
            bare.subject_len = <uint32_t>PyBytes_GET_SIZE(keep)
            if shown:
                route = self.importer.router.trie.match(bare.subject, bare.subject_len)
                took = self.importer.show(route, source, &out, &bare, False)
            else:
                took = self.importer.enter(source, &bare, &bare, False)
        finally:
            sharing.chain = chain
        self.delivered = True
        if took == 0 or self.service.response_type == SINGLETON or m.body_len == 0:
            self.close()
        elif not self.closed:
            self.since_ns = self.exporter.router.reactor.now_ns
            self.service.responses.move_to_end(self.key)
        if took == 0 and back is not None:
            back.close()
        return took


cdef class ReplySink(Sink):
    """The sink of all reply subjects of an account."""

    def __init__(self, AccountBorder border) -> None:
        self.border = border

    cdef int take(self, Connection source, Message* m) except -1:
        cdef Response response = self.border.responses.get(PyBytes_FromStringAndSize(m.subject, m.subject_len))
        return 0 if response is None else response.carry(source, m, False)

    cdef Sink bound(self, const char* subject, size_t n, bytes queue):
        response = self.border.responses.get(PyBytes_FromStringAndSize(subject, n))
        return None if response is None else BoundReply(response, queue)


cdef class BoundReply(Sink):
    """One reply subject, for a consumer that delivers to it."""

    def __init__(self, Response response, bytes queue) -> None:
        self.response = response
        self.queue = queue
        self.as_client = True

    cdef int take(self, Connection source, Message* m) except -1:
        return self.response.carry(source, m, True)

    cdef int ready(self, Task waiter) except -1:
        cdef Response r = self.response
        cdef Router router = r.importer.router
        if r.closed:
            return 0
        return router.readiness(router.interest_in(PyBytes_AS_STRING(r.reply), PyBytes_GET_SIZE(r.reply), self.queue), waiter)


cdef class ServiceImport(Sink):
    """A service in the importer's account. `transform` maps the importer's subject to the exporter's; without it the exporter's subject is
    `target`, or the same when that is "".
    """

    def __init__(self, AccountBorder border, Service service, str subject, *, str target="", transform=None, bint share=False) -> None:
        self.border = border
        self.service = service
        self.subject = subject
        self.target = target.encode("utf-8", "surrogateescape")
        self.transform = transform
        self.share = share
        self.sharing = border.sharing
        border.router.share(subject, self)

    def close(self) -> None:
        """The account does not import the service any more."""
        if not self.closed:
            self.closed = True
            self.border.router.unshare(self.subject, self)

    cdef int traced(self, Connection source, Message* m) except -1:
        return self.take(source, m)            # take() adds the event of the import, and the trace continues

    cdef int ready(self, Task waiter) except -1:
        return 2

    cdef bytes info_line(self, Connection source):
        """The header line that tells the service the requester."""
        cdef list chain = self.sharing.chain
        cdef ServiceImport first = self, each
        cdef bint server = self.service.border.system
        if source is None or self.sharing.describe is None:
            return b""
        if chain:
            first = chain[0]
            for each in chain:
                server = server or each.share
            server = server or self.share
        info = self.sharing.describe(source, first.share, server, self.border.name if chain else "")
        return b"Nats-Request-Info: " + <bytes?>info + b"\r\n" if info else b""

    cdef Response expect_answer(self, Connection source, Message* m):
        """The Response for the request's answer, None: the request has no reply subject. Sets the service's latency measurement."""
        cdef AccountBorder exporter = self.service.border
        cdef Response response = None
        cdef object headers = None
        if self.service.latency is not None:
            headers = self.sharing.sample(self.service, source, PyBytes_FromStringAndSize(m.body, m.hlen))
        if m.reply_len and not is_ack(m.reply, m.reply_len):
            response = exporter.expect(self.service, self.border, PyBytes_FromStringAndSize(m.reply, m.reply_len))
            response.shared = self.share
            if headers is not None and self.service.response_type == SINGLETON:
                response.requester = source
                response.headers = headers
        elif m.reply_len == 0 and headers is not None:
            unanswered = Response(self.service, exporter, self.border, b"", b"")
            (<Response>unanswered).closed = True
            (<Response>unanswered).shared = self.share
            (<Response>unanswered).requester = source
            (<Response>unanswered).headers = headers
            self.sharing.measured(unanswered, None, STATUS_NO_REPLY)
        return response

    cdef tuple write_info(self, Connection source, Message* m, Message* out, Message* bare):
        """Add the header line that tells the service the requester to `out`, and none to `bare`; the bytes that both point to."""
        cdef bytes line = self.info_line(source)
        cdef bytes payload = PyBytes_FromStringAndSize(m.body + m.hlen, m.body_len - m.hlen)
        cdef bytes head = head_without_info(m), bare_body = None, body = None
        if m.hlen and header_value(m.body, m.hlen, b"Nats-Request-Info", 17).at != NULL:
            bare_body = head + b"\r\n" + payload
            bare.body = PyBytes_AS_STRING(bare_body)
            bare.hlen = <uint32_t>PyBytes_GET_SIZE(head) + 2
            bare.body_len = <uint32_t>PyBytes_GET_SIZE(bare_body)
        if line:
            body = head + line + b"\r\n" + payload
            out.body = PyBytes_AS_STRING(body)
            out.hlen = <uint32_t>(PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(line) + 2)
            out.body_len = <uint32_t>PyBytes_GET_SIZE(body)
        return bare_body, body

    cdef int take(self, Connection source, Message* m) except -1:
        cdef Message out = m[0], bare
        cdef AccountBorder exporter = self.service.border
        cdef Sharing sharing = self.sharing
        cdef Response response
        cdef ServiceImport each
        cdef Trace trace = sharing.reactor.trace if source is not None else None
        cdef bytes subject = self.target
        cdef int took
        for each in sharing.chain:
            if each.service is self.service:
                return 0                           # the imports form a circle
        if self.closed or self.service.closed:
            return 0
        response = self.expect_answer(source, m)
        if response is not None:
            out.reply = PyBytes_AS_STRING(response.key)
            out.reply_len = <uint32_t>PyBytes_GET_SIZE(response.key)
        if self.transform is not None:
            found = self.transform(text_of(m.subject, m.subject_len))
            if found is None:
                return 0
            subject = (<str?>found).encode("utf-8", "surrogateescape")
        if exporter.router.mapping is not None:
            found = exporter.router.mapping(
                subject.decode("utf-8", "surrogateescape") if subject else text_of(m.subject, m.subject_len))
            if found is None:
                if response is not None:
                    response.close()
                return 0
            subject = (<str?>found).encode("utf-8", "surrogateescape")
        if subject:
            out.subject = PyBytes_AS_STRING(subject)
            out.subject_len = <uint32_t>PyBytes_GET_SIZE(subject)
        bare = out
        kept = self.write_info(source, m, &out, &bare)
        if trace is not None:
            trace.events.append(("si", exporter.name, text_of(m.subject, m.subject_len), text_of(out.subject, out.subject_len)))
            if trace.only and not self.service.allow_trace:
                return 1                           # the Response ends with the service's threshold
            sharing.reactor.set_trace(trace if self.service.allow_trace else None)
        sharing.chain.append(self)
        try:
            took = exporter.enter(source, &out, &bare, False)
        finally:
            sharing.chain.pop()
            sharing.reactor.set_trace(trace)
        if took == 0 and response is not None:
            response.close()
            sharing.tell(response, STATUS_NO_DELIVERY)
        return took
