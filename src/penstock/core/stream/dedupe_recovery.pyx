"""After opening a log: the message ids of a stream, read back from its messages.

Knows nothing of files, nor of what is refused because of an id (core/stream/publish).
"""
from libc.stdint cimport uint64_t
from penstock.core.base.buffer cimport Out, out_put
from penstock.core.log.log cimport Record
from penstock.core.protocol.publish_headers cimport PublishHeaders, scan_headers
from penstock.core.stream.dedupe cimport MessageIds
from penstock.core.stream.publish cimport PublishPath

cdef enum:
    RECALL_STEP = 16384            # messages whose ids are read back in one step of an opening


def recalling(PublishPath stream):
    """Fill the ids inside the duplicate window and the id of the last message anew, in steps: an iterator.

    Costs what there is with headers in the window.
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
    """The id of one message, if it has one."""
    cdef Record r
    cdef PublishHeaders h
    if stream.log.read(seq, &r) and r.hlen:
        scan_headers(r.body, r.hlen, &h)
        if h.message_id.at != NULL:
            out_put(into, h.message_id.at, h.message_id.n)
    return 0


cdef uint64_t recall_some(PublishPath stream, uint64_t seq) except? 18446744073709551615:
    """Note the ids of some messages from a sequence on; where to go on, 0: that was the end."""
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
