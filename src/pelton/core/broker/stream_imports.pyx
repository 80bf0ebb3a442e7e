"""Stream imports: messages published in one account reach the subscribers of another.

A stream import is a sink on the exporter's router. It maps the subject and delivers the message to the subscribers in the importer's
account; the exporter's router counts their interest as its own. An imported stream is not exported again.

    exporter: publish orders.1 ──► StreamImport(orders.>) ──► importer: subscribers of shop.orders.1

A consumer's delivery comes under the deliver subject, and keeps its own subject. Knows nothing of configuration: the control plane makes
these objects, and has decided which account may import what.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from pelton.core.broker.reactor cimport Connection, Task, Trace
from pelton.core.broker.router cimport Message, Router, Sink
from pelton.core.broker.service_imports cimport AccountBorder, Inflow, is_ack, text_of
from pelton.core.protocol.subjects cimport Route, subject_has_wildcard, subject_matches

from pelton.core.protocol.subjects import collide


cdef class StreamImport(Inflow):
    """An imported stream: a sink on the exporter's router. `transform` maps the exporter's subject to the importer's; without it the
    importer's subject is `local` when that is literal, or the same.
    """

    def __init__(self, AccountBorder exporter, AccountBorder importer, str subject, str local, *, transform=None) -> None:
        self.exporter = exporter
        self.importer = importer
        self.subject = subject
        self.local = local
        pattern = local.encode("utf-8", "surrogateescape")
        literal = not subject_has_wildcard(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern))
        self.target = pattern if literal and transform is None else b""
        self.transform = transform
        importer.add_import(self)
        exporter.router.share(subject, self)
        self.wake_watchers(pattern)

    def close(self) -> None:
        """The account does not import the stream any more."""
        if not self.closed:
            self.closed = True
            self.importer.drop_import(self)
            self.exporter.router.unshare(self.subject, self)
            self.wake_watchers(self.local.encode("utf-8", "surrogateescape"))

    cdef int interest(self, bytes subject) except -1:
        if self.exporter.router.watchers and collide(subject, self.local):
            self.wake_watchers(subject)
        return 0

    def wake_watchers(self, bytes pattern) -> None:
        """Interest in a subject of the importer has come or gone: wake the tasks that watch it on the exporter's router."""
        cdef bytes local
        cdef bytes source = self.subject.encode("utf-8", "surrogateescape")
        cdef Task task
        for watched, tasks in list(self.exporter.router.watchers.items()):
            if not subject_matches(PyBytes_AS_STRING(<bytes>watched), PyBytes_GET_SIZE(<bytes>watched),
                                   PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source)):
                continue
            local = self.local_subject(PyBytes_AS_STRING(<bytes>watched), PyBytes_GET_SIZE(<bytes>watched))
            if local is not None and subject_matches(
                    PyBytes_AS_STRING(local), PyBytes_GET_SIZE(local), PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
                for task in list(tasks):
                    task.wake()

    cdef bytes local_subject(self, const char* subject, size_t n):
        """The importer's subject for a subject of the exporter; None: there is none."""
        if self.transform is not None:
            found = self.transform(text_of(subject, n))
            return None if found is None else (<str?>found).encode("utf-8", "surrogateescape")
        return self.target or PyBytes_FromStringAndSize(subject, n)

    cdef int take(self, Connection source, Message* m) except -1:
        cdef Message out = m[0]
        cdef Trace trace = self.importer.router.reactor.trace if source is not None else None
        cdef bytes local = None
        if self.closed:
            return 0
        if self.transform is not None:
            local = self.local_subject(m.subject, m.subject_len)
            if local is None:
                return 0
        elif self.target:
            local = self.target
        if local is not None:
            out.subject = PyBytes_AS_STRING(local)
            out.subject_len = <uint32_t>PyBytes_GET_SIZE(local)
        route = self.importer.router.trie.route(out.subject, out.subject_len)
        if (<Route>route).n == 0:
            return 0
        if trace is None:
            return self.importer.show(route, source, &out, &out, True)
        trace.events.append(("se", self.importer.name, text_of(out.subject, out.subject_len), text_of(m.subject, m.subject_len)))
        if not self.allow_trace and trace.only:
            return 1
        self.importer.router.reactor.set_trace(trace if self.allow_trace else None)
        try:
            return self.importer.show(route, source, &out, &out, True)
        finally:
            self.importer.router.reactor.set_trace(trace)

    cdef int traced(self, Connection source, Message* m) except -1:
        return self.take(source, m)            # take() adds the event of the import, and the trace continues

    cdef Sink bound(self, const char* subject, size_t n, bytes queue):
        local = self.local_subject(subject, n)
        return None if local is None else BoundImport(self, local, queue)


cdef class BoundImport(Sink):
    """A stream import bound to one literal subject, for a consumer's deliveries."""

    def __init__(self, StreamImport source, bytes subject, bytes queue) -> None:
        self.source = source
        self.subject = subject
        self.queue = queue
        self.as_client = True

    cdef Route route(self):
        cdef Router router = self.source.importer.router
        if PyBytes_GET_SIZE(self.queue):
            return router.interest_in(PyBytes_AS_STRING(self.subject), PyBytes_GET_SIZE(self.subject), self.queue)
        return router.trie.route(PyBytes_AS_STRING(self.subject), PyBytes_GET_SIZE(self.subject))

    cdef int take(self, Connection source, Message* m) except -1:
        cdef Message bare = m[0]
        cdef bytes local = self.subject
        if self.source.closed:
            return 0
        bare.subject = PyBytes_AS_STRING(local)
        bare.subject_len = <uint32_t>PyBytes_GET_SIZE(local)
        route = self.source.importer.router.trie.route(PyBytes_AS_STRING(local), PyBytes_GET_SIZE(local))
        # only deliveries have a subject of their own; a flow control request shows the subject to which it is delivered
        return self.source.importer.show(<Route>route, source, m if is_ack(m.reply, m.reply_len) else &bare, &bare, True)

    cdef int ready(self, Task waiter) except -1:
        if self.source.closed:
            return 0
        return self.source.importer.router.readiness(self.route(), waiter)
