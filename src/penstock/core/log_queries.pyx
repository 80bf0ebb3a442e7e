"""What the control plane asks of a record log: by pattern, by subject, holes. Answered from the index, not from the files.

Knows nothing of the protocol or of why something is asked. Called by the methods of Log (core/log) of the same names.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset
from penstock.core.log cimport Log
from penstock.core.segment cimport Segment
from penstock.core.subject_table cimport LAST_STALE, Subject, SubjectState
from penstock.core.subjects cimport subject_has_wildcard, subject_matches


cdef class Wanted:
    """The subjects of a log that match a pattern, as a byte per id."""
    cdef bytes flags
    cdef uint8_t* at
    cdef uint32_t count          # ids looked at
    cdef int64_t only            # the one id of a pattern without wildcards; -1 with wildcards, -2 when it is unknown
    cdef bint every              # the pattern matches everything


cdef Wanted wanted_of(Log log, str pattern):
    cdef Wanted w = Wanted()
    cdef bytes text = pattern.encode("utf-8", "surrogateescape")
    cdef const char* p = PyBytes_AS_STRING(text)
    cdef size_t n = PyBytes_GET_SIZE(text)
    cdef Subject* table = log.subjects_table.table
    cdef uint32_t id
    w.count = log.subjects_table.count
    w.flags = PyBytes_FromStringAndSize(NULL, w.count)
    w.at = <uint8_t*>PyBytes_AS_STRING(w.flags)
    w.every = text == b">"
    w.only = -1
    if not subject_has_wildcard(p, n):
        memset(w.at, 0, w.count)
        w.only = log.find_subject(p, <uint32_t>n)
        if w.only >= 0:
            w.at[w.only] = 1
        else:
            w.only = -2
        return w
    for id in range(w.count):
        w.at[id] = w.every or (table[id].state.msgs > 0 and subject_matches(table[id].state.name, table[id].state.name_len, p, n))
    return w


cdef object name_of(Log log, uint32_t id):
    cdef Subject* s = &log.subjects_table.table[id]
    return s.state.name[:s.state.name_len].decode("utf-8", "surrogateescape")


def subjects(Log log, pattern: str) -> dict[str, int]:
    """Subject -> live messages, for subjects that match."""
    cdef Wanted w = wanted_of(log, pattern)
    cdef Subject* table = log.subjects_table.table
    cdef uint32_t id
    return {name_of(log, id): table[id].state.msgs for id in range(w.count) if w.at[id] and table[id].state.msgs}


def next_of(Log log, pattern: str, start: int) -> object:
    """The oldest message with sequence >= start whose subject matches, or None."""
    cdef Wanted w = wanted_of(log, pattern)
    cdef uint64_t seq = max(start, 1)
    cdef SubjectState* state
    if w.only == -2:
        return None
    while True:
        if w.every:
            seq = log.next_live(seq)
        elif w.only >= 0:
            state = log.subject(<uint32_t>w.only)
            if state == NULL or seq > state.last:
                return None
            seq = state.first if seq <= state.first else log.next_wanted(seq, state.last, w.at, w.count)
        else:
            seq = log.next_wanted(seq, log.last_seq, w.at, w.count)
        if seq == 0:
            return None
        found = log.get(seq)
        if found is not None:
            return found
        seq += 1


def count_from(Log log, seq: int, pattern: str) -> int:
    """Live messages with that sequence or a higher one whose subject matches."""
    cdef Wanted w = wanted_of(log, pattern)
    cdef uint64_t start = max(seq, 0)
    if w.only == -2:
        return 0
    return log.live_from(start) if w.every else log.wanted_from(start, w.at, w.count)


def last_of(Log log, pattern: str, upto: object) -> object:
    """The newest message (with sequence <= upto) whose subject matches, or None."""
    cdef Wanted w = wanted_of(log, pattern)
    cdef uint64_t top = log.last_seq if upto is None else min(max(upto, 0), log.last_seq)
    cdef uint64_t seq
    if w.only == -2 or top == 0:
        return None
    while True:
        if w.every:
            seq = log.segments.prev_live(top)
        else:
            seq = newest(log, w) if top == log.last_seq else 0
            if seq == 0:
                seq = log.segments.prev_wanted(top, w.at, w.count)
        if seq == 0:
            return None
        found = log.get(seq)
        if found is not None:
            return found


cdef uint64_t newest(Log log, Wanted w) except? 18446744073709551615:
    # The highest sequence of all wanted subjects. What is only an upper bound is made exact when it would win.
    cdef Subject* s
    cdef uint64_t best = 0
    cdef uint32_t id
    for id in range(w.count):
        if not w.at[id]:
            continue
        s = &log.subjects_table.table[id]
        if s.state.msgs and s.state.last > best:
            if s.stale & LAST_STALE:
                log.subject(id)
                if s.state.last <= best:
                    continue
            best = s.state.last
    return best


def deleted(Log log) -> list[tuple[int, int]]:
    """Holes between first_seq and last_seq, as (first, count), ascending."""
    cdef list holes = []
    cdef Segment s
    cdef uint64_t at = log.first_seq
    cdef uint32_t i, k
    for s in log.segments.items:
        i = <uint32_t>(at - s.first) if at > s.first else 0
        while i < s.count:
            k = s.next_live(i)
            if k < s.count:
                if s.first + k > at:
                    holes.append((at, s.first + k - at))
                at = s.first + k + 1
                # A run of live ones, quickly when nothing is dead.
                if s.dead == NULL:
                    at = s.first + s.count
                    break
            i = k + 1
    if at <= log.last_seq:
        holes.append((at, log.last_seq + 1 - at))
    return holes


def purge_subjects(Log log, pattern: str, below: object, keep: int) -> int:
    """Remove messages whose subject matches, below a sequence and/or all but the newest `keep`; how many."""
    cdef Wanted w = wanted_of(log, pattern)
    cdef uint64_t stop = log.last_seq if below is None else min(max(below, 1) - 1, log.last_seq)
    cdef uint64_t seq = log.first_seq
    cdef uint64_t budget, total, n = 0
    if keep < 0:
        raise ValueError(f"keep is 0 or more, not {keep}")
    if w.only == -2 or log.msgs == 0:
        return 0
    total = log.wanted_from(log.first_seq, w.at, w.count)
    if total <= <uint64_t>keep:
        return 0
    budget = total - <uint64_t>keep
    while budget and seq <= stop:
        seq = log.next_wanted(seq, stop, w.at, w.count)
        if seq == 0:
            break
        log.remove(seq)
        seq += 1
        n += 1
        budget -= 1
    return n
