"""Holds messages for a stream, or for all streams, that the server has not opened yet.

The gate holds a message for such a stream, and the server does not read from the message's connection until the stream is open (or has
failed to open): so the messages of a connection stay in order, and each connection has at most one held message. Messages from inside the
server (deliveries, advisories, republished messages) have no connection; consumers are told to wait when many bytes are held. Knows
nothing of streams.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from pelton.core.broker.reactor cimport Connection, Task
from pelton.core.broker.receivers cimport Message, Sink

cdef enum:
    ROOM_BYTES = 67108864          # of messages from inside the server; with more, consumers wait


cdef class HeldMessage:
    """One held message."""


cdef void shown(HeldMessage held, Message* m) noexcept:
    m.subject = PyBytes_AS_STRING(held.subject)
    m.subject_len = PyBytes_GET_SIZE(held.subject)
    m.reply = PyBytes_AS_STRING(held.reply)
    m.reply_len = PyBytes_GET_SIZE(held.reply)
    m.body = PyBytes_AS_STRING(held.body)
    m.hlen = held.hlen
    m.body_len = PyBytes_GET_SIZE(held.body)


cdef class StartupGate(Sink):
    """Holds messages for a sink that is not open yet."""

    def __init__(self, on_asked=None) -> None:
        self.on_asked = on_asked
        self.messages = []
        self.waiters = []

    cdef int take(self, Connection source, Message* m) except -1:
        return self.keep(source, m, None)

    cdef int ready(self, Task waiter) except -1:
        if self.held_bytes < ROOM_BYTES:
            return 2
        if waiter is not None and waiter not in self.waiters:
            self.waiters.append(waiter)
        return 1

    cdef int keep(self, Connection source, Message* m, Sink target) except -1:
        cdef HeldMessage held = HeldMessage()
        held.source = source
        held.target = target
        held.subject = PyBytes_FromStringAndSize(m.subject, m.subject_len)
        held.reply = PyBytes_FromStringAndSize(m.reply, m.reply_len) if m.reply_len else b""
        held.body = PyBytes_FromStringAndSize(m.body, m.body_len)
        held.hlen = m.hlen
        self.messages.append(held)
        self.held_bytes += m.body_len
        if source is not None:
            source.stall()
        if len(self.messages) == 1 and self.on_asked is not None:
            self.on_asked()
        return 1

    def hold(self, Connection source, str subject, str reply, bytes headers, bytes payload, Sink target) -> None:
        """Hold a message for a sink."""
        cdef Message m
        cdef bytes name = subject.encode("utf-8", "surrogateescape"), answer = reply.encode("utf-8", "surrogateescape")
        cdef bytes body = headers + payload
        m.subject = PyBytes_AS_STRING(name)
        m.subject_len = PyBytes_GET_SIZE(name)
        m.reply = PyBytes_AS_STRING(answer)
        m.reply_len = PyBytes_GET_SIZE(answer)
        m.body = PyBytes_AS_STRING(body)
        m.hlen = len(headers)
        m.body_len = PyBytes_GET_SIZE(body)
        self.keep(source, &m, target)

    def pass_on(self, Sink sink) -> None:
        """The sink is open: deliver the held messages to it, in order. None: it will not open, and no sink takes the messages."""
        cdef HeldMessage held
        cdef Message m
        cdef Task waiter
        cdef Sink target
        cdef int took
        messages, self.messages = self.messages, []
        waiters, self.waiters = self.waiters, []
        self.held_bytes = 0
        problem = None
        for held in messages:
            target = held.target if held.target is not None else sink
            took = 0
            if target is not None:
                shown(held, &m)
                try:
                    took = target.take(held.source, &m)
                except Exception as error:
                    problem, took = error, 1
            if held.source is None:
                continue
            if took == 0 and held.reply and held.source.no_responders:
                (<object>held.source.reactor.handler).nobody(held.source, held.subject, held.reply)
            held.source.wake()
        for waiter in waiters:
            waiter.wake()
        if problem is not None:
            raise problem                # of one message: the others were delivered

    def abandon(self) -> None:
        """The server stops: drop the held messages; the clients that asked for it get 503."""
        cdef HeldMessage held
        for held in self.messages:
            held.target = None
        self.pass_on(None)


cdef class GatedSink(Sink):
    """Stands before a sink, and holds the messages that need a stream which is not open yet."""

    def __init__(self, Sink behind, choose) -> None:
        self.behind = behind
        self.choose = choose

    cdef int take(self, Connection source, Message* m) except -1:
        waiting = self.choose(PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape"))
        if waiting is None:
            return self.behind.take(source, m)
        return (<StartupGate?>waiting).keep(source, m, self.behind)
