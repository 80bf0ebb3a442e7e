"""Recovery of a stream's message ids from its messages, after its log is opened.

Knows nothing of files, nor of the duplicate check (core/stream/publish).
"""
from libc.stdint cimport uint64_t
from penstock.core.base.buffer cimport Out, out_put
from penstock.core.log.log cimport Record
from penstock.core.protocol.publish_headers cimport PublishHeaders, scan_headers
from penstock.core.stream.dedupe cimport MessageIds
from penstock.core.stream.publish cimport PublishPath

cdef enum:
    RECALL_STEP = 16384            # messages that one step reads


def recalling(PublishPath stream):
    """Rebuild the ids inside the duplicate window and the id of the last message, in steps: an iterator.

    Reads the messages with headers inside the window.
    """
    cdef uint64_t seq, now = stream.reactor.now_ns
    stream.ids = MessageIds()
    stream.last_id.len = 0
    if stream.log.msgs == 0:
        return
    recall(stream, stream.log.last_seq, &stream.last_id)
    if stream.duplicate_window_ns == 0:
        return
    seq = stream.log.seq_at(now - stream.duplicate_window_ns + 1 if now > stream.duplicate_window_ns else 0)
    while True:
        seq = recall_some(stream, seq)
        if seq == 0:
            return
        yield


cdef int recall(PublishPath stream, uint64_t seq, Out* into) except -1:
    """Read the id of one message, if it has one."""
    cdef Record r
    cdef PublishHeaders h
    if stream.log.read(seq, &r) and r.hlen:
        scan_headers(r.body, r.hlen, &h)
        if h.message_id.at != NULL:
            out_put(into, h.message_id.at, h.message_id.n)
    return 0


cdef uint64_t recall_some(PublishPath stream, uint64_t seq) except? 18446744073709551615:
    """Remember the ids of some messages from a sequence on; returns where to continue, 0: at the end."""
    cdef uint64_t now = stream.reactor.now_ns
    cdef Record r
    cdef PublishHeaders h
    cdef int n
    for n in range(RECALL_STEP):
        seq = stream.log.segments.next_headed(seq)
        if seq == 0:
            return 0
        if stream.log.read(seq, &r):
            scan_headers(r.body, r.hlen, &h)
            if h.message_id.at != NULL and r.ts_ns + stream.duplicate_window_ns > now:
                if stream.ids.find(h.message_id.at, h.message_id.n) == 0:
                    stream.ids.add(h.message_id.at, h.message_id.n, seq, min(r.ts_ns, now))
        seq += 1
    return seq
