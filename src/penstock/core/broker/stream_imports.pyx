"""Stream imports: messages published in one account reach the subscribers of another.

A stream import is a sink on the exporter's router. It maps the subject and delivers the message to the subscribers in the importer's
account; the exporter's router counts their interest as its own. An imported stream is not exported again.

    exporter: publish orders.1 ──► StreamImport(orders.>) ──► importer: subscribers of shop.orders.1

A consumer's delivery comes under the deliver subject, and keeps its own subject. Knows nothing of configuration: the control plane makes
these objects, and has decided which account may import what.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from penstock.core.broker.reactor cimport Connection, Task, Trace
from penstock.core.broker.router cimport Message, Router, Sink
from penstock.core.broker.service_imports cimport AccountBorder, Inflow, text_of
from penstock.core.protocol.subjects cimport Route, subject_has_wildcard, subject_matches

from penstock.core.protocol.subjects import collide


cdef class StreamImport(Inflow):
    """An imported stream: a sink on the exporter's router. `transform` maps the exporter's subject to the importer's; without it the
    importer's subject is `local` when that is literal, or the same.
    """

    def __init__(self, AccountBorder home, AccountBorder away, str subject, str local, *, transform=None) -> None:
        self.home = home
        self.away = away
        self.subject = subject
        self.local = local
        place = local.encode("utf-8", "surrogateescape")
        literal = not subject_has_wildcard(PyBytes_AS_STRING(place), PyBytes_GET_SIZE(place))
        self.target = place if literal and transform is None else b""
        self.transform = transform
        away.add_import(self)
        home.router.share(subject, self)
        self.wake_watchers(place)

    def close(self) -> None:
        """The account does not import the stream any more."""
        if not self.closed:
            self.closed = True
            self.away.drop_import(self)
            self.home.router.unshare(self.subject, self)
            self.wake_watchers(self.local.encode("utf-8", "surrogateescape"))

    cdef int interest(self, bytes subject) except -1:
        if self.home.router.watchers and collide(subject, self.local):
            self.wake_watchers(subject)
        return 0

    def wake_watchers(self, bytes pattern) -> None:
        """Interest in a subject of the importer has come or gone: wake the tasks that watch it on the exporter's router."""
        cdef bytes place
        cdef bytes source = self.subject.encode("utf-8", "surrogateescape")
        cdef Task task
        for watched, tasks in list(self.home.router.watchers.items()):
            if not subject_matches(PyBytes_AS_STRING(<bytes>watched), PyBytes_GET_SIZE(<bytes>watched),
                                   PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source)):
                continue
            place = self.place(PyBytes_AS_STRING(<bytes>watched), PyBytes_GET_SIZE(<bytes>watched))
            if place is not None and subject_matches(
                    PyBytes_AS_STRING(place), PyBytes_GET_SIZE(place), PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
                for task in list(tasks):
                    task.wake()

    cdef bytes place(self, const char* subject, size_t n):
        """The importer's subject for a subject of the exporter; None: there is none."""
        if self.transform is not None:
            found = self.transform(text_of(subject, n))
            return None if found is None else (<str?>found).encode("utf-8", "surrogateescape")
        return self.target or PyBytes_FromStringAndSize(subject, n)

    cdef int take(self, Connection source, Message* m) except -1:
        cdef Message out = m[0]
        cdef Trace trace = self.away.router.reactor.trace if source is not None else None
        cdef bytes place = None
        if self.closed:
            return 0
        if self.transform is not None:
            place = self.place(m.subject, m.subject_len)
            if place is None:
                return 0
        elif self.target:
            place = self.target
        if place is not None:
            out.subject = PyBytes_AS_STRING(place)
            out.subject_len = <uint32_t>PyBytes_GET_SIZE(place)
        route = self.away.router.trie.route(out.subject, out.subject_len)
        if (<Route>route).n == 0:
            return 0
        if trace is None:
            return self.away.show(route, source, &out, &out, True)
        trace.events.append(("se", self.away.name, text_of(out.subject, out.subject_len), text_of(m.subject, m.subject_len)))
        if not self.allow_trace and trace.only:
            return 1
        self.away.router.reactor.set_trace(trace if self.allow_trace else None)
        try:
            return self.away.show(route, source, &out, &out, True)
        finally:
            self.away.router.reactor.set_trace(trace)

    cdef int traced(self, Connection source, Message* m) except -1:
        return self.take(source, m)            # take() adds the event of the import, and the trace continues

    cdef Sink bound(self, const char* subject, size_t n, bytes queue):
        place = self.place(subject, n)
        return None if place is None else BoundImport(self, place, queue)


cdef class BoundImport(Sink):
    """A stream import bound to one literal subject, for a consumer's deliveries."""

    def __init__(self, StreamImport source, bytes subject, bytes queue) -> None:
        self.source = source
        self.subject = subject
        self.queue = queue
        self.as_client = True

    cdef Route route(self):
        cdef Router router = self.source.away.router
        if PyBytes_GET_SIZE(self.queue):
            return router.interest_in(PyBytes_AS_STRING(self.subject), PyBytes_GET_SIZE(self.subject), self.queue)
        return router.trie.route(PyBytes_AS_STRING(self.subject), PyBytes_GET_SIZE(self.subject))

    cdef int take(self, Connection source, Message* m) except -1:
        cdef Message bare = m[0]
        cdef bytes place = self.subject
        if self.source.closed:
            return 0
        bare.subject = PyBytes_AS_STRING(place)
        bare.subject_len = <uint32_t>PyBytes_GET_SIZE(place)
        route = self.source.away.router.trie.route(PyBytes_AS_STRING(place), PyBytes_GET_SIZE(place))
        return self.source.away.show(<Route>route, source, m, &bare, True)

    cdef int ready(self, Task waiter) except -1:
        if self.source.closed:
            return 0
        return self.source.away.router.readiness(self.route(), waiter)
