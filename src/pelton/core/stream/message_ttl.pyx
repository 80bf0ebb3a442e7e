"""Message TTLs: find the messages with a TTL in a log, and remove them from the stream when the TTL is over.

The headers say when a message ends: its timestamp plus its Nats-TTL. A deadline in the heap is only a hint: each message is read before it
is removed. Knows nothing of configuration or of delete markers, which the caller makes.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.deadlines cimport DeadlineHeap, Item
from pelton.core.log.log cimport Log, Record
from pelton.core.log.segment cimport HAS_HEADERS, Segment
from pelton.core.log.subject_table cimport SubjectState
from pelton.core.protocol.publish_headers cimport Text, header_value
from pelton.core.stream.stream cimport Stream

from pelton.core.stream.refusals import parse_ttl

cdef extern from "string.h" nogil:
    void* memmem(const void* haystack, size_t haystack_len, const void* needle, size_t needle_len)

cdef enum:
    NONE = 0
    NEVER = -1
    FEW = 16                       # up to this many removals are reported to the consumers one by one, more of them as one purge
    READ_AGAIN_NS = 1000000000     # time until the next try after the disk could not read a message
    DIGITS_MAX = 9                 # a longer number is parsed in Python

cdef uint64_t LAST_NS = 1ull << 62       # a later end counts as this time


cdef int64_t seconds_of(Record* r) except -2:
    """The seconds of a message's Nats-TTL, NONE or NEVER."""
    cdef Text t
    cdef int64_t n = 0
    cdef uint32_t i
    if r.hlen == 0:
        return NONE
    t = header_value(r.body, r.hlen, b"Nats-TTL", 8)
    if t.at == NULL or t.n == 0:
        return NONE
    if t.n <= DIGITS_MAX:
        for i in range(t.n):
            if not c'0' <= t.at[i] <= c'9':
                break
            n = n * 10 + (t.at[i] - c'0')
        else:
            return n
    text = PyBytes_FromStringAndSize(t.at, t.n).decode("utf-8", "replace")
    found = parse_ttl(text)
    if found is None:  # a number with too many digits, which an older server has accepted, counts as far away
        return 1 << 40 if text.isascii() and text.isdigit() and text.strip("0") else NONE
    return min(<object>found, 1 << 40)


cdef inline uint64_t end_of(Record* r, int64_t seconds) noexcept:
    if <uint64_t>seconds >= (LAST_NS - min(r.ts_ns, LAST_NS)) // 1000000000u:
        return LAST_NS
    return r.ts_ns + <uint64_t>seconds * 1000000000u


def learn(DeadlineHeap deadlines, Log log, start: int) -> int:
    """Add the messages with a Nats-TTL from a sequence on to the deadlines; returns how many have `never`."""
    cdef Segment s
    cdef Record r
    cdef uint64_t first = start, never = 0
    cdef uint32_t i
    cdef int64_t seconds
    for s in list(log.segments.items):
        if s.first + s.count <= first or s.live == 0:
            continue
        i = s.next_live(<uint32_t>(first - s.first) if first > s.first else 0)
        while i < s.count:
            if s.entries == NULL:
                log.segments.need(s)
            if s.entries[i].size & HAS_HEADERS and log.read(s.first + i, &r):
                seconds = seconds_of(&r)
                if seconds == NEVER:
                    never += 1
                elif seconds != NONE:
                    deadlines.put(end_of(&r, seconds), r.seq)
            i = s.next_live(i + 1)
    return never


def marked(Log log, start: int, bytes prefix) -> list[int]:
    """The messages from a sequence on that have a header whose name starts with the prefix."""
    cdef Segment s
    cdef Record r
    cdef uint64_t first = start
    cdef uint32_t i
    cdef bytes line = b"\n" + prefix
    cdef list found = []
    for s in list(log.segments.items):
        if s.first + s.count <= first or s.live == 0:
            continue
        i = s.next_live(<uint32_t>(first - s.first) if first > s.first else 0)
        while i < s.count:
            if s.entries == NULL:
                log.segments.need(s)
            if s.entries[i].size & HAS_HEADERS and log.read(s.first + i, &r):
                if memmem(r.body, r.hlen, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line)) != NULL:
                    found.append(r.seq)
            i = s.next_live(i + 1)
    return found


cdef bint is_live(object log, Item* item) except -1:
    return (<Log>log).next_live(item.seq) == item.seq


def prune(DeadlineHeap deadlines, Log log) -> int:
    """Drop the deadlines whose message is removed; returns how many."""
    return deadlines.keep_valid(is_live, log)


cdef bint is_only(Log log, uint32_t subject_id) except -1:
    cdef SubjectState* state = log.subject(subject_id)
    return state != NULL and state.msgs == 1


cdef int gone(Stream stream, list doomed) except -1:
    """Remove messages and tell the consumers."""
    if len(doomed) <= FEW:
        for seq in doomed:
            stream.path.evict(seq)
        stream.settle()
    else:
        for seq in doomed:
            stream.log.remove(seq)
        stream.told()
    return 0


def end_due(DeadlineHeap deadlines, Stream stream, limit: int, markers: bool) -> tuple[int, list[int]]:
    """Remove the messages whose TTL is over at the reactor's time; see message_ttl.pyi."""
    cdef uint64_t now = stream.reactor.now_ns
    cdef size_t left = limit
    cdef Log log = stream.log
    cdef Record r
    cdef int64_t seconds
    cdef bint wanted = markers
    cdef list due = [], doomed = [], last = []
    while left and deadlines.count and deadlines.items[0].due_ns <= now:
        due.append(deadlines.pop().seq)
        left -= 1
    due.sort()
    for seq in due:
        try:
            if not log.read(seq, &r):
                continue
        except OSError as error:
            stream.read_failed(error)
            deadlines.put(now + READ_AGAIN_NS, seq)
            continue
        seconds = seconds_of(&r)
        if seconds <= 0 or end_of(&r, seconds) > now:
            continue
        doomed.append(seq)
        if wanted:
            # the count of a subject changes with each removal: look it up for each message
            if is_only(log, r.subject_id):
                last.append(doomed.pop())
            else:
                stream.path.evict(seq)
    if wanted:
        stream.settle()
    else:
        gone(stream, doomed)
    return len(due), last


def end_aged(Stream stream, start: int, max_age_ns: int, limit: int, markers: bool) -> tuple[int, int, list[int]]:
    """Remove the messages from a sequence on that are older than max_age and have no TTL of `never`; see message_ttl.pyi."""
    cdef Log log = stream.log
    cdef uint64_t now = stream.reactor.now_ns, age = max_age_ns, seq = start
    cdef size_t left = limit
    cdef Record r
    cdef bint wanted = markers
    cdef int found
    cdef list doomed = [], last = []
    cdef uint64_t due = 0
    seq = log.next_live(seq)
    while seq and left:
        try:
            found = log.read(seq, &r)
        except OSError as error:
            stream.read_failed(error)
            due = now + READ_AGAIN_NS
            break
        if found:
            if r.ts_ns + age > now:
                due = r.ts_ns + age
                break
            if seconds_of(&r) != NEVER:
                if not wanted:
                    doomed.append(seq)
                elif is_only(log, r.subject_id):
                    last.append(seq)
                else:
                    stream.path.evict(seq)
        left -= 1
        seq = log.next_live(seq + 1)
    if wanted:
        stream.settle()
    else:
        gone(stream, doomed)
    if seq and not left:
        due = now
    return (seq if seq else log.span.last_seq + 1), due, last
