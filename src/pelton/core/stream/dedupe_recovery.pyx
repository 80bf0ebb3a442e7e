"""Recovery of a stream's message ids from its messages, after its log is opened.

Knows nothing of files, nor of the duplicate check (core/stream/publish).
"""
from libc.stdint cimport uint64_t
from pelton.core.log.log cimport Record
from pelton.core.protocol.publish_headers cimport PublishHeaders, scan_headers
from pelton.core.stream.publish cimport PublishPath

cdef enum:
    RECALL_STEP = 16384            # messages that one step reads


def recalling(PublishPath path):
    """Rebuild the ids inside the duplicate window and the id of the last message, in steps: an iterator.

    Reads the messages with headers inside the window.
    """
    cdef uint64_t seq, now = path.reactor.now_ns
    cdef Record r
    cdef PublishHeaders h
    path.forget_ids()
    if path.log.msgs == 0:
        return
    if path.log.read(path.log.span.last_seq, &r) and r.hlen:
        scan_headers(r.body, r.hlen, &h)
        if h.message_id.at != NULL:
            path.recall_last(&h)
    if path.duplicate_window_ns == 0:
        return
    seq = path.log.seq_at(now - path.duplicate_window_ns + 1 if now > path.duplicate_window_ns else 0)
    while True:
        seq = recall_some(path, seq)
        if seq == 0:
            return
        yield


cdef uint64_t recall_some(PublishPath path, uint64_t seq) except? 18446744073709551615:
    """Remember the ids of some messages from a sequence on; returns where to continue, 0: at the end."""
    cdef Record r
    cdef PublishHeaders h
    cdef int n
    for n in range(RECALL_STEP):
        seq = path.log.segments.next_headed(seq)
        if seq == 0:
            return 0
        if path.log.read(seq, &r):
            scan_headers(r.body, r.hlen, &h)
            if h.message_id.at != NULL:
                path.recall(&h, seq, r.ts_ns)
        seq += 1
    return seq
