"""The consumers of a stream as the stream sees them: who takes which message, who waits for the next one, who has messages unacknowledged.

A publish pays only for consumers that take the message: consumers without filters that have seen everything wait in one list, which runs
when more messages become visible; filters are matched once per subject, and the result is kept by subject id.

Knows nothing of the kinds of consumers: it calls Listeners. Knows nothing of publishes either.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.broker.reactor cimport Reactor, Task
from pelton.core.log.log cimport Log
from pelton.core.log.subject_table cimport SubjectState, SubjectWatcher
from pelton.core.protocol.subjects cimport Route, SubjectTrie, empty_route

cdef enum:
    SCRUB_STEP = 4096              # old routes that one change of filters drops


cdef class Listener(Task):
    """A consumer as the stream sees it."""

    cdef int signalled(self, uint64_t seq) except -1:
        return 0

    cdef int wants(self, uint32_t subject_id) except -1:
        return 0

    cdef int forgets(self, uint32_t subject_id) except -1:
        return 0

    cdef int removed(self, uint64_t seq) except -1:
        return 0

    cdef int expire_below(self, uint64_t seq) except -1:
        return 0

    cdef int purged(self) except -1:
        return 0

    cdef int needs(self, uint64_t seq) except -1:
        return 0


@cython.final
cdef class Listeners(SubjectWatcher):
    """The consumers of one stream. As a SubjectWatcher it drops what is kept by the id of a subject that has no messages any more."""

    def __init__(self, Reactor reactor, Log log) -> None:
        self.reactor = reactor
        self.log = log
        self.all, self.unfiltered, self.waiting, self.holders = {}, [], [], []
        self.filters = SubjectTrie()
        self.filters_changed()

    # --- who takes a message -------------------------------------------------------------------------------------------
    cdef bint anyone_takes(self, const char* subject, size_t n) except -1:
        if PyList_GET_SIZE(self.unfiltered):
            return True
        return self.filters.count > 0 and self.filters.route(subject, n).n > 0

    cdef int stored(self, uint32_t subject_id, const char* subject, size_t n, uint64_t seq) except -1:
        """Tell the consumers whose filters the message passes."""
        cdef Route route
        cdef int i
        if self.filters.count == 0:
            return 0
        route = self.route_for(subject_id, subject, n)
        for i in range(route.n):
            (<Listener>route.items[i]).signalled(seq)
        return 0

    cdef Route route_for(self, uint32_t subject_id, const char* subject, size_t n):
        cdef Py_ssize_t known = PyList_GET_SIZE(self.interested)
        cdef Route route
        cdef int i
        if <Py_ssize_t>subject_id >= known:
            self.interested.extend([None] * (max(<Py_ssize_t>subject_id + 1, <Py_ssize_t>self.log.subject_ids) - known))
        elif <object>PyList_GET_ITEM(self.interested, subject_id) is not None:
            route = <Route>PyList_GET_ITEM(self.interested, subject_id)
            if route.generation == self.epoch:
                return route
        route = self.filters.match_for(subject, n, self.epoch)
        if route.n == 0:
            route = self.nobody            # one for all such subjects
        self.interested[subject_id] = route
        for i in range(route.n):
            (<Listener>route.items[i]).wants(subject_id)
        return route

    cdef int gone(self, uint32_t id) except -1:
        cdef SubjectState* subject = &self.log.subjects_table.table[id].state
        cdef Route route = None
        cdef int i
        if self.filters.count == 0:
            return 0
        if <Py_ssize_t>id < PyList_GET_SIZE(self.interested):
            route = self.interested[id]
            self.interested[id] = None
        if route is None or route.generation != self.epoch:
            route = self.filters.match(subject.name, subject.name_len)
        for i in range(route.n):
            (<Listener>route.items[i]).forgets(id)
        return 0

    # --- coming and going ----------------------------------------------------------------------------------------------
    cdef int filters_changed(self) except -1:
        """Every route must be looked up again. Old routes are dropped bit by bit, so that they do not keep consumers alive for long."""
        cdef Py_ssize_t i, end
        self.epoch += 1
        self.nobody = empty_route(self.epoch)
        if self.filters.count == 0:
            self.interested = []
            return 0
        if self.scrubbed >= PyList_GET_SIZE(self.interested):
            self.scrubbed = 0
        end = min(self.scrubbed + SCRUB_STEP, PyList_GET_SIZE(self.interested))
        for i in range(self.scrubbed, end):
            self.interested[i] = None
        self.scrubbed = end
        return 0

    cdef int add(self, Listener listener, tuple filters) except -1:
        """Add a consumer, or add one again whose filters have changed, after drop() with the old ones."""
        cdef bytes pattern
        self.all[listener] = None
        if not filters:
            return self.unfiltered.append(listener) or 0
        for pattern in filters:
            self.filters.insert(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern), listener)
        return self.filters_changed()

    cdef int drop(self, Listener listener, tuple filters) except -1:
        cdef bytes pattern
        if listener not in self.all:
            return 0
        del self.all[listener]
        if listener.awaiting:
            self.waiting.remove(listener)
        if listener.holding:
            self.holders.remove(listener)
        listener.awaiting = listener.holding = False
        if not filters:
            return self.unfiltered.remove(listener) or 0
        for pattern in filters:
            self.filters.discard(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern), listener)
        return self.filters_changed()

    def takers(self, str subject) -> list:
        """The consumers that take messages of a literal subject."""
        cdef bytes name = subject.encode("utf-8", "surrogateescape")
        return self.unfiltered + list(self.filters.match(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name)).held)

    # --- waiting for messages ------------------------------------------------------------------------------------------
    cdef int await_more(self, Listener listener) except -1:
        """Run the listener when more messages become visible."""
        if not listener.awaiting:
            listener.awaiting = True
            self.waiting.append(listener)
        return 0

    cdef int wake(self) except -1:
        cdef Listener listener
        if not self.waiting:
            return 0
        waiting, self.waiting = self.waiting, []
        for listener in waiting:
            listener.awaiting = False
            self.reactor.enlist_delivery(listener)
        return 0

    # --- removals ------------------------------------------------------------------------------------------------------
    cdef int hold(self, Listener listener) except -1:
        """The listener has unacknowledged messages: tell it of removals."""
        if not listener.holding:
            listener.holding = True
            self.holders.append(listener)
        return 0

    cdef int removed(self, uint64_t seq, bint oldest) except -1:
        cdef Py_ssize_t i
        cdef Listener listener
        if not oldest:
            self.removals += 1
        i = PyList_GET_SIZE(self.holders)
        while i:
            i -= 1
            listener = <Listener>PyList_GET_ITEM(self.holders, i)
            if not listener.removed(seq):
                listener.holding = False
                del self.holders[i]
        return 0

    cdef int expire_below(self, uint64_t seq) except -1:
        cdef Listener listener
        for listener in list(self.holders):
            listener.expire_below(seq)
        return 0

    cdef int purged(self) except -1:
        """Consumers with unacknowledged messages look at the log now, the others when they have something to do."""
        cdef Listener listener
        self.removals += 1
        self.purges += 1
        self.purged_first = self.log.span.first_seq
        for listener in list(self.holders):
            listener.purged()
        return 0
