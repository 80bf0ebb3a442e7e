"""Messages that are stored whole or not at all: checked drafts become consecutive records that recovery keeps or cuts together.

    segment    ... │ m1 MORE │ m2 MORE │ m3 │ remove (what the three have pushed out) │ ...
                   └──────── one group ─────┘

A group lies in one segment, which is begun early or grows beyond its size for it, and its bytes go to the file in one write.
The records of all its messages but the last say that more belongs to them. When a segment ends within a group, recovery puts
what is there of it aside like any torn end. What the group removes (limits, rollups) is recorded behind it, so what it has
pushed out is never missing without it.

Knows nothing of batches, of staging or of checks: the drafts have passed them.
"""
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset
from penstock.core.buffer cimport out_reserve
from penstock.core.draft cimport Draft
from penstock.core.expect cimport RARE_BATCH, PublishHeaders, scan_headers
from penstock.core.intake cimport REFUSED, Intake
from penstock.core.log cimport Log
from penstock.core.log_files cimport HOLDS, TAKES
from penstock.core.record cimport GAP_MAX, MEMBER, MORE, RECORD_HEAD_BYTES, Head, seal_record
from penstock.core.router cimport Message
from penstock.core.segment cimport SIZE_MASK, Segment
from penstock.core.usage cimport full

from penstock.core.intake import StreamRefused
from penstock.core.refusals import STAGE_STORED

cdef enum:
    EARLY_BYTES = 524288             # unwritten bytes that are written before the turn's end
    SEGMENT_MAX_BYTES = 4227858432   # offsets in a segment are 32 bits


def store_whole(Intake stream, list drafts) -> list:
    """Store drafts that have passed their checks, all or none of them, as one group; their sequences.

    Each is as if it had been published by itself: its id is remembered, limits and rules after the store apply. StreamRefused:
    the disk takes nothing, or it is too much for one segment; nothing was stored then.
    """
    cdef Draft draft
    cdef Message m
    cdef PublishHeaders h
    cdef Log log = stream.log
    cdef uint64_t size = 0, seq = 0, first, ts_ns, known = log.appended
    cdef list given = []
    for draft in drafts:
        size += len(draft.subject.encode("utf-8", "surrogateescape")) + len(draft.headers) + len(draft.payload) + log.record_extra
    if full(log.usage, size):
        stream.refuse_for_room()
        raise StreamRefused(*stream.refusal)
    try:
        hold(log, size, <uint32_t>PyList_GET_SIZE(drafts))
    except OSError as error:
        raise StreamRefused(503, 10077, error.strerror or str(error)) from error
    first = log.last_seq + 1
    ts_ns = max(stream.hub.now_ns, log.last_ts_ns)
    failure = None
    try:
        for draft in drafts:
            memset(&m, 0, sizeof(Message))
            draft.point(&m)
            scan_headers(m.body, m.hlen, &h)
            if stream.append(&m, &h, ts_ns, draft.flags, &seq) == REFUSED:
                raise StreamRefused(*stream.refusal)
            given.append(seq)
            draft.seq = seq
            draft.skipped = log.appended == known
            known = log.appended
            try:
                if stream.rules is not None and (stream.every or h.rare & ~RARE_BATCH):
                    stream.rules.ask(STAGE_STORED, draft)
            except Exception as error:
                failure = error            # the others are stored all the same
    except BaseException:
        let_go(log, first, False)
        raise
    let_go(log, first, True)
    stream.trim()
    stream.commit()
    if failure is not None:
        raise failure
    return given


cdef int hold(Log log, uint64_t size, uint32_t count) except -1:
    cdef Segment s = log.active
    if log.condition != TAKES:
        log.refuse()
        s = log.active
    if log.memory:
        return 0
    if (s.size + size > log.segment_bytes and s.count) or s.count + count >= GAP_MAX:
        log.roll(log.last_seq + 1)
        s = log.active
    if s.size + size > SEGMENT_MAX_BYTES or count >= GAP_MAX:
        raise OSError(27, "too much for one segment")
    out_reserve(&log.tail, size)
    log.condition = HOLDS
    return 0


cdef int let_go(Log log, uint64_t first_seq, bint whole) except -1:
    cdef Segment s = log.active
    cdef Head head
    cdef char* p
    cdef uint32_t i, last, end, length
    cdef bint member = False
    if log.memory:
        return 0
    log.condition = TAKES
    end = s.count
    while end and s.first + end > first_seq and s.entries[end - 1].offset == 0:
        end -= 1                       # sequences that were consumed without a message
    last = end
    i = <uint32_t>(first_seq - s.first) if first_seq > s.first else 0
    if not whole:
        last += 1                      # recovery puts them aside: nobody was told of them
    while i < end:
        if s.entries[i].offset:
            p = log.tail.data + (s.entries[i].offset - log.tail_base)
            length = (s.entries[i].size & SIZE_MASK) + s.extra
            memcpy(&head, p, RECORD_HEAD_BYTES)
            head.state |= (MORE if i + 1 < last else 0) | (MEMBER if member else 0)
            memcpy(p, &head, RECORD_HEAD_BYTES)
            seal_record(p, length, s.salt)
            member = True
        i += 1
    if log.tail.len - log.tail_written > EARLY_BYTES:
        log.write_early()
    return 0
