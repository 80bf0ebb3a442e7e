"""A consumer as its parts see it: its stream, its name, its place on the reactor's lists, its deadline.

A Consumer has its parts (core/consumer/delivery, pull_delivery, push_delivery), and each part has the consumer as a ConsumerTask: to
let the consumer run, and to mark its state as changed. A closed consumer leaves its parts, so that it is freed without the garbage
collector; ENDED replaces it there.
"""
from libc.stdint cimport uint64_t
from pelton.core.stream.listeners cimport Listener
from pelton.core.stream.stream cimport Stream


cdef class ConsumerTask(Listener):
    """A consumer as its parts see it; see Consumer."""

    def __init__(self, Stream stream, str name, bytes owner = b"") -> None:
        self.stream = stream
        self.reactor = stream.reactor
        self.name = name
        self.key = f"{stream.name}.{name}".encode("utf-8", "surrogateescape")
        self.address = owner + self.key
        self.changed = True

    cdef int register(self, object api_subjects) except -1:
        self.api_subjects = api_subjects
        return 0

    cdef int kick(self) except -1:
        if not self.queued and not self.closed:
            self.reactor.enlist_delivery(self)
        return 0

    cdef int touch(self) except -1:
        if not self.changed:
            self.changed = True
            if self.on_change is not None:
                self.on_change()
        return 0

    def unsaved(self) -> None:
        """The last snapshot was not written: mark the state as changed again."""
        self.touch()

    cdef int arm(self, uint64_t at_ns) except -1:
        if self.deadline_ns == 0 or at_ns < self.deadline_ns:
            self.deadline_ns = at_ns
            if self.deadline_changed is not None:
                self.deadline_changed(self, at_ns)
        return 0

    cdef bint in_demand(self) noexcept:
        return False

    cdef int request(self, const char* reply, size_t reply_len, const char* body, size_t n) except -1:
        return 0


ENDED = ConsumerTask.__new__(ConsumerTask)
ENDED.closed = ENDED.changed = True
