"""Messages that are stored as a whole or not at all: checked drafts become consecutive records that recovery keeps or cuts together.

    segment    ... │ m1 MORE │ m2 MORE │ m3 │ remove (messages removed by limits for the three) │ ...
                   └──────── one group ─────┘

A group lies in one segment; the log begins a new segment early, or lets one grow beyond its size, to hold it. Its bytes go to the file in one
write. The records of all its messages but the last have the MORE flag. When a segment ends within a group, recovery cuts the group off and
keeps it beside the segment, like any torn end. The removals that a group causes (limits, rollups) are recorded behind it, so a message is
never removed without the group that replaced it.

A waiting message is kept as bytes; it becomes a Draft, a Python object, when a rule looks at it.

Knows nothing of batches, of headers or of checks: the messages have passed them.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memmove, memset
from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve
from pelton.core.base.quota cimport full
from pelton.core.broker.router cimport Message
from pelton.core.log.disk_condition cimport TAKES
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport GAP_MAX, MEMBER, MORE, RECORD_HEAD_BYTES, Head, seal_record
from pelton.core.log.segment cimport SIZE_MASK, Segment
from pelton.core.protocol.publish_headers cimport RARE_BATCH, PublishHeaders, scan_headers
from pelton.core.stream.draft cimport Draft, draft_of
from pelton.core.stream.publish cimport REFUSED, PublishPath

from pelton.core.stream.publish import StreamRefused
from pelton.core.stream.refusals import STAGE_STORED

cdef enum:
    EARLY_BYTES = 524288             # unwritten bytes that are written before the turn's end
    SEGMENT_MAX_BYTES = 4227858432   # offsets in a segment are 32 bits


cdef class Group:
    """Messages that wait to be stored together."""

    def __cinit__(self):
        memset(&self.bytes, 0, sizeof(Out))
        memset(&self.members, 0, sizeof(Out))
        self.drafts = {}

    def __dealloc__(self):
        out_free(&self.bytes)
        out_free(&self.members)

    cdef int add(self, Message* m, Draft draft) except -1:
        cdef Member member
        memset(&member, 0, sizeof(Member))
        if draft is not None:
            self.drafts[self.count] = draft
        else:
            member.at = self.bytes.len
            member.subject_len = m.subject_len
            member.hlen = m.hlen
            member.body_len = m.body_len
            out_reserve(&self.bytes, <size_t>m.subject_len + m.body_len)
            out_put(&self.bytes, m.subject, m.subject_len)
            out_put(&self.bytes, m.body, m.body_len)
        out_put(&self.members, <const char*>&member, sizeof(Member))
        self.count += 1
        return 0

    cdef int point(self, size_t i, Message* m) except -1:
        cdef Draft draft = self.known(i)
        cdef Member* member
        memset(m, 0, sizeof(Message))
        if draft is not None:
            return draft.point(m)
        member = &(<Member*>self.members.data)[i]
        m.subject = self.bytes.data + member.at
        m.subject_len = member.subject_len
        m.body = m.subject + member.subject_len
        m.hlen = member.hlen
        m.body_len = member.body_len
        return 0

    cdef Draft known(self, size_t i):
        return self.drafts.get(i) if self.drafts else None

    cdef Draft draft(self, size_t i):
        cdef Message m
        cdef Draft draft = self.known(i)
        if draft is None:
            self.point(i, &m)
            draft = self.drafts[i] = draft_of(&m)
        return draft

    cdef int end_with(self, const char* line, uint32_t n) except -1:
        cdef size_t i = self.count - 1
        cdef Draft draft = self.known(i)
        cdef Member* member
        cdef char* end
        if draft is not None:
            draft.change(headers=draft.headers[:len(draft.headers) - 2] + line[:n] + b"\r\n")
            return 0
        out_reserve(&self.bytes, n)
        member = &(<Member*>self.members.data)[i]
        end = self.bytes.data + member.at + member.subject_len + member.hlen - 2
        memmove(end + n, end, member.body_len - member.hlen + 2)
        memcpy(end, line, n)
        member.hlen += n
        member.body_len += n
        self.bytes.len += n
        return 0


def store_whole(PublishPath path, list drafts) -> list:
    """Store drafts that have passed their checks as one group, all or none; returns their sequences.

    Each message is treated as if it was published alone: the stream remembers its id, and applies limits and the rules after the store.
    Raises StreamRefused when the disk takes nothing, or the messages do not fit one segment; then nothing is stored.
    """
    cdef Draft draft
    cdef Group group = Group()
    for draft in drafts:
        group.add(NULL, draft)
    store_group(path, group)
    return [(<Draft>each).seq for each in drafts]


cdef uint64_t store_group(PublishPath path, Group group) except? 0:
    cdef Draft draft
    cdef Message m
    cdef PublishHeaders h
    cdef Log log = path.log
    cdef uint64_t size = 0, seq = 0, first, ts_ns
    cdef size_t i
    cdef bint asked
    for i in range(group.count):
        group.point(i, &m)
        size += m.subject_len + m.body_len + log.record_extra
    if full(log.quota, size):
        path.refuse_for_room()
        raise StreamRefused(*path.refusal)
    try:
        hold(log, size, <uint32_t>group.count)
    except OSError as error:
        raise StreamRefused(503, 10077, error.strerror or str(error)) from error
    first = log.span.last_seq + 1
    ts_ns = max(path.reactor.now_ns, log.span.last_ts_ns)
    failure = None
    try:
        for i in range(group.count):
            group.point(i, &m)
            scan_headers(m.body, m.hlen, &h)
            asked = path.rules is not None and (path.every or h.rare & ~RARE_BATCH)
            draft = group.draft(i) if asked else group.known(i)
            if path.append_or_skip(&m, &h, ts_ns, 0 if draft is None else draft.flags, &seq, draft) == REFUSED:
                raise StreamRefused(*path.refusal)
            if draft is not None:
                draft.stored(seq)
            if asked:
                try:
                    path.rules.ask(STAGE_STORED, draft)
                except OSError:
                    pass                       # the message is stored; older ones that can't be read now are removed with a later message
                except Exception as error:
                    failure = error            # the other messages are stored all the same
    except BaseException:
        let_go(log, first, False)
        raise
    let_go(log, first, True)
    path.trim()
    path.committer.enlist()
    if failure is not None:
        raise failure
    return seq


cdef int hold(Log log, uint64_t size, uint32_t count) except -1:
    cdef Segment s = log.files.active
    if log.state.condition != TAKES or (log.disk is not None and log.disk.spent):
        log.files.refuse()
        s = log.files.active
    if log.memory:
        return 0
    if (s.size + size > log.segment_bytes and s.count) or s.count + count >= GAP_MAX:
        log.files.roll(log.span.last_seq + 1)
        s = log.files.active
    if s.size + size > SEGMENT_MAX_BYTES or count >= GAP_MAX:
        raise OSError(27, "the batch is too large for one segment")
    out_reserve(&log.tail.out, size)
    log.state.hold()
    return 0


cdef int let_go(Log log, uint64_t first_seq, bint whole) except -1:
    cdef Segment s = log.files.active
    cdef Head head
    cdef char* p
    cdef uint32_t i, last, end, length
    cdef bint member = False
    if log.memory:
        return 0
    log.state.release()
    end = s.count
    while end and s.first + end > first_seq and s.entries[end - 1].offset == 0:
        end -= 1                       # sequences of messages that are not stored
    last = end
    i = <uint32_t>(first_seq - s.first) if first_seq > s.first else 0
    if not whole:
        last += 1                      # recovery cuts the group off: none of its messages was acknowledged
    while i < end:
        if s.entries[i].offset:
            p = log.tail.out.data + (s.entries[i].offset - log.tail.base)
            length = (s.entries[i].size & SIZE_MASK) + s.extra
            memcpy(&head, p, RECORD_HEAD_BYTES)
            head.state |= (MORE if i + 1 < last else 0) | (MEMBER if member else 0)
            memcpy(p, &head, RECORD_HEAD_BYTES)
            seal_record(p, length, s.salt)
            member = True
        i += 1
    if log.tail.unwritten() > EARLY_BYTES:
        log.files.write_early()
    return 0
