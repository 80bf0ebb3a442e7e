"""A publish with headers for rules: the stream's rules look at it and may change it before it is stored.

A draft is made once for such a message, and passed to each stage of pelton.core.stream.refusals. Knows nothing of the rules.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from pelton.core.broker.router cimport Message


cdef class Draft:
    """One message on its way into a stream."""

    def change(self, *, subject: str | None = None, headers: bytes | None = None, payload: bytes | None = None) -> None:
        """Replace parts of the message; later checks and the store use the new ones."""
        if subject is not None:
            self.subject = subject
        if headers is not None:
            self.headers = headers
        if payload is not None:
            self.payload = payload
        self.changed = True

    cdef int point(self, Message* m) except -1:
        self.subject_bytes = self.subject.encode("utf-8", "surrogateescape")
        self.body = self.headers + self.payload
        m.subject = PyBytes_AS_STRING(self.subject_bytes)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(self.subject_bytes)
        m.body = PyBytes_AS_STRING(self.body)
        m.hlen = <uint32_t>PyBytes_GET_SIZE(self.headers)
        m.body_len = <uint32_t>PyBytes_GET_SIZE(self.body)
        self.changed = False
        return 0

    cdef int take_headers(self, Message* m) except -1:
        self.headers = PyBytes_FromStringAndSize(m.body, m.hlen)
        return 0

    cdef int note(self, str name, object value) except -1:
        self.notes[name] = value
        return 0

    cdef int skip(self) except -1:
        self.skipped = True
        return 0

    cdef int stored(self, uint64_t seq) except -1:
        self.seq = seq
        return 0


def draft(str subject, bytes payload, bytes headers = b"", str reply = "") -> Draft:
    """Make a draft of a message of the server's own."""
    cdef Draft made = Draft.__new__(Draft)
    made.subject = made.original = subject
    made.reply = reply
    made.headers = headers
    made.payload = payload
    made.notes = {}
    return made


cdef Draft draft_of(Message* m):
    cdef Draft draft = Draft.__new__(Draft)
    draft.subject = draft.original = PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape")
    draft.reply = PyBytes_FromStringAndSize(m.reply, m.reply_len).decode("utf-8", "surrogateescape") if m.reply_len else ""
    draft.headers = PyBytes_FromStringAndSize(m.body, m.hlen) if m.hlen else b""
    draft.payload = PyBytes_FromStringAndSize(m.body + m.hlen, m.body_len - m.hlen)
    draft.notes = {}
    return draft


cdef Draft draft_of_record(Message* m, int flags, bint sourced):
    cdef Draft draft = draft_of(m)
    draft.flags = flags
    draft.sourced = sourced
    return draft
