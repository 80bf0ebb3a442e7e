"""Rollups: remove the messages older than a message, on its subject or on all.

Knows nothing of headers, nor of the permission to roll up (engine/rules).
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.log.subject_table cimport SubjectState
from pelton.core.stream.stream cimport Stream

from pelton.core.log import maintenance

cdef enum:
    FEW = 16                       # up to this many removals are reported to the consumers one by one, more of them as one purge


def roll_up(Stream stream, below: int, str subject = "") -> int:
    """Remove the messages older than a sequence, on one literal subject or ("") on all; returns how many.

    The cost depends on the number of removed messages, not on the size of the stream.
    """
    cdef bytes name = subject.encode("utf-8", "surrogateescape")
    cdef uint64_t end = below, n = 0, first = stream.log.span.first_seq
    cdef SubjectState* state
    cdef int64_t id = -1
    if name:
        id = stream.log.find_subject(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
        state = stream.log.subject(<uint32_t>id) if id >= 0 else NULL
        if state == NULL or state.first >= end:
            return 0
        if state.msgs <= FEW:
            while state != NULL and state.first < end:
                n += stream.path.evict(state.first)
                state = stream.log.subject(<uint32_t>id)
            if stream.log.span.first_seq != first:
                stream.told()            # consumers that are below the first message move to it
            stream.settle()
            return n
    if id < 0 or state.msgs == stream.log.msgs:
        n = maintenance.purge(stream.log, below)
    else:
        while state != NULL and state.first < end:
            n += stream.log.remove(state.first)
            state = stream.log.subject(<uint32_t>id)
    if n:
        stream.told()
    return n
