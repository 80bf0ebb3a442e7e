"""What stands for a stream, or for all of them, as long as it is not there yet.

A message that comes for it is kept, and the connection that it came from is not read from until what it waits for is there (or will
never be): so its order is kept, and nobody keeps more than one message for it. What comes from inside (deliveries, advisories,
republished messages) has no connection; consumers are told to wait when there is much of it. Knows nothing of what is waited for.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from penstock.core.broker.reactor cimport Connection, Task
from penstock.core.broker.receivers cimport Message, Sink

cdef enum:
    ROOM_BYTES = 67108864          # of messages from inside; with more, who can wait is told to


cdef class HeldMessage:
    """One message that waits."""


cdef void shown(HeldMessage held, Message* m) noexcept:
    m.subject = PyBytes_AS_STRING(held.subject)
    m.subject_len = PyBytes_GET_SIZE(held.subject)
    m.reply = PyBytes_AS_STRING(held.reply)
    m.reply_len = PyBytes_GET_SIZE(held.reply)
    m.body = PyBytes_AS_STRING(held.body)
    m.hlen = held.hlen
    m.body_len = PyBytes_GET_SIZE(held.body)


cdef class StartupGate(Sink):
    """Keeps messages for somebody who is not there yet."""

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
            source.stalled = True
        if len(self.messages) == 1 and self.on_asked is not None:
            self.on_asked()
        return 1

    def hold(self, Connection source, str subject, str reply, bytes headers, bytes payload, Sink target) -> None:
        """Keep a message for a sink."""
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
        """It is there: it gets what was kept, in order; None: it will never be, nobody takes it."""
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
            raise problem                # of one message: the others were handed over all the same

    def abandon(self) -> None:
        """The server goes: what was kept gets no answer but that nobody is there."""
        cdef HeldMessage held
        for held in self.messages:
            held.target = None
        self.pass_on(None)


cdef class GatedSink(Sink):
    """Stands before a sink: messages that need what is not there yet wait for it."""

    def __init__(self, Sink behind, choose) -> None:
        self.behind = behind
        self.choose = choose

    cdef int take(self, Connection source, Message* m) except -1:
        waiting = self.choose(PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape"))
        if waiting is None:
            return self.behind.take(source, m)
        return (<StartupGate?>waiting).keep(source, m, self.behind)
