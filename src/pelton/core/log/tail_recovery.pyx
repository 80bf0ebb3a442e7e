"""Tail recovery: repairing the end of the newest segment when a log is opened. The next appends go there, or to a new segment.

    torn end                copied to a file beside the segment and cut off; sequences that it may have had are not used again
    damaged head            the segment stays unchanged and a new one follows; sequences that its end may have had are not used again
    missing end             the file ends before the last sequence that was given: skip records name the missing sequences, and say
                            which of them are lost

core/log/recovery calls this when all segments are found and all removals are applied.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.log.recovery_writes cimport keep_aside, set_aside, start_found
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport GAP_MAX, RECORD_EXTRA_BYTES
from pelton.core.log.scan cimport UNREADABLE_MAX, Opened, last_named, read_all
from pelton.core.log.segment cimport Segment

cdef enum:
    LOST_RUNS_MAX = 256          # more runs of lost sequences at an end are recorded as one run


cdef int mend_tail(Log log, Opened o, bint numbered) except -1:
    # Makes the newest segment ready for appends: puts its torn end aside. The sequence of the torn record is not used again, because
    # a consumer may have seen the message. A `numbered` log uses it again: there it is the same message.
    cdef Segment s = o.segment
    cdef bytes cut
    cdef uint64_t expected, seen = 0, first, whole = 0, told = log.span.last_seq
    cdef Py_ssize_t at
    if o.headless or o.mended or s.packed is not None:
        # Nothing can be appended: the head is damaged, or the file is compressed (the file of the next segment never reached the disk).
        # The segment stays unchanged and a new one follows. If none of its records is valid, the new segment takes its name.
        if not numbered:
            pass_over_end(log, o)
        if s.first == log.span.last_seq + 1:
            say_removals(log, s)
            log.disk.close_file(s)
            log.segments.discard(s)
            log.subjects_table.leave(s)
            set_aside(log, f"{s.first:020}.seg")
        start_found(log, log.span.last_seq + 1)
        begin_anew(log)
        if s.first != log.files.active.first and (s.packed is not None or o.mended):
            settle(log, o)
        return 0
    s.seal(False)
    if told < s.first + s.count:
        told = 0                             # `lost` has no sequence behind the end yet
    if o.scan is not None and o.scan.group_at and (o.evidence is None or o.evidence.count <= o.scan.group_index):
        seen = drop_group(log, o)            # not when the index file proves that the whole group was on the disk
    expected = s.first + s.count
    if o.scan is not None and o.scan.good_end < s.size:
        cut = keep_aside(log, s, o.scan.good_end)
        s.mark_damaged(len(o.scan.damaged) > o.scan.bad_end or len(o.scan.missing) > 0 or len(o.scan.notes) > 0)
        at = len(cut) if not o.scan.bad_end else o.scan.damaged[len(o.scan.damaged) - 1][0] - o.scan.good_end
        if not numbered:
            first = max(expected, seen + 1)
            seen = max(seen, last_named(PyBytes_AS_STRING(cut) + at, len(cut) - at, s.salt, first, &whole))
            if whole >= first and whole > told:
                first = max(expected, told + 1)
                log.removals.lost.append((first, whole + 1 - first, "damaged bytes at the end of the log"))
    if o.evidence is not None and o.evidence.size > s.size:
        # The index file does not match the segment any more and will be unlinked: record the removals that only the index file has.
        for low, high in o.evidence.gone:
            log.removals.add(low, high - low)
        for low, high in o.evidence.ranges:
            log.removals.add(low, high)
    log.files.activate(s, s.size)
    if s.entries == NULL and s.count:
        log.segments.need(s)
    s.index_lost()            # after the next append it does not match
    log.span.raise_last(seen, 0)
    if log.span.last_seq >= expected:
        # Also when other records name sequences whose own records are missing.
        if log.span.last_seq - expected > GAP_MAX:
            try:
                log.files.roll(log.span.last_seq + 1)
            except OSError as error:
                log.state.roll_ended(True)
                log.defer(error, None)
            return 0
        put_skips(log, s, expected)
    return 0


cdef int say_removals(Log log, Segment s) except -1:
    """Record again the removals that a segment without messages records, because the segment leaves the log."""
    cdef uint64_t end = log.span.last_seq + 1
    cdef size_t k
    for k in range(s.removes.count):
        if s.removes.items[k].first < end:
            log.removals.add(s.removes.items[k].first, min(s.removes.items[k].count, end - s.removes.items[k].first))
    if s.removed_below > 1:
        log.removals.add(1, min(s.removed_below, end) - 1)
    return 0


cdef int pass_over_end(Log log, Opened o) except -1:
    """Make sure that no sequence of the damaged end is used again, for a segment that takes no appends."""
    cdef uint64_t first = log.span.last_seq + 1, whole = 0, last = last_at_end(log, o, &whole)
    if whole >= first:
        log.removals.lost.append((first, whole + 1 - first, "damaged bytes at the end of the log"))
    if last >= first:
        if last > max(whole, first - 1):
            first = max(whole + 1, first)
            log.removals.add(first, last + 1 - first)
        log.span.raise_last(last, 0)
    return 0


cdef uint64_t last_at_end(Log log, Opened o, uint64_t* whole) except? 0:
    cdef Segment s = o.segment
    cdef bytes data
    cdef uint64_t expected = s.first + s.count, last
    cdef Py_ssize_t at
    if o.headless:
        at = o.scan.heads_end
        expected = o.scan.last_seq + 1
    elif o.scan is not None and o.scan.bad_end:
        at = o.scan.damaged[len(o.scan.damaged) - 1][0]
    else:
        return 0
    data = read_all(log, s)
    at = min(at, len(data))
    if s.packed is not None and s.count:
        # A block cannot be decompressed and reads as zeros.
        last = expected - 1 + min(<uint64_t>(len(data) - at) // RECORD_EXTRA_BYTES, <uint64_t>UNREADABLE_MAX)
        whole[0] = min(expected, last)
        return last
    return last_named(PyBytes_AS_STRING(data) + at, len(data) - at, s.salt, expected, whole)


cdef int begin_anew(Log log) except -1:
    """Begin a new segment with an empty skip record: recovery then knows that a gap before the segment is not a torn skip."""
    return log.tail.skip(log.files.active, 0, log.span.last_seq, False)


cdef int put_skips(Log log, Segment s, uint64_t expected) except -1:
    """Record which sequences behind the end are lost, so that each later opening reports them."""
    cdef uint64_t at = expected, end = log.span.last_seq + 1
    cdef list lost = sorted([(max(first, expected), first + count) for first, count, _ in log.removals.lost if count and first + count > expected])
    if len(lost) > LOST_RUNS_MAX:
        lost = [(lost[0][0], end)]
    for first, stop in lost:
        if first > at:
            log.tail.skip(s, at, first - 1, False)
        if stop > max(first, at):
            log.tail.skip(s, max(first, at), stop - 1, True)
            s.mark_damaged(True)
            at = stop
    if at < end:
        log.tail.skip(s, at, end - 1, False)
    s.push_holes(<uint32_t>(end - expected))
    return 0


cdef uint64_t drop_group(Log log, Opened o) except? 0:
    # Drops an unfinished group at the end: its messages never counted. Returns the highest sequence of the group.
    cdef Segment s = o.segment
    cdef uint64_t last = s.first + s.count - 1, first = s.first + o.scan.group_index
    s.cut_to(o.scan.group_index)
    o.scan.end_at(o.scan.group_at)
    log.removals.forget_lost(first, last)
    return last


cdef int settle(Log log, Opened o) except -1:
    # Seals a segment and closes its file until the next read.
    cdef Segment s = o.segment
    s.seal(True)
    log.disk.close_file(s)
    s.trim()
    if s.entries != NULL and o.index_file is None:
        log.segments.count_entries(s)
    return 0
