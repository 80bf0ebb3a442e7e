"""The end of the newest segment, when a log is opened: it takes the next appends, or a new segment follows it.

    an unfinished end       is kept beside it and cut off; a sequence that it may have had is not given again
    a head that is bad      the segment stays as it is, its end with it: what that may have had is not given again either
    a file that is too      short for what is known to have been given: skips are written that say so, of what is lost too
    short

Asked by core/log/recovery when all segments are there and all removals applied.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.log.deferred_writes cimport keep_aside, set_aside, start_found
from penstock.core.log.log cimport Log
from penstock.core.log.record cimport GAP_MAX, RECORD_EXTRA_BYTES
from penstock.core.log.scan cimport UNREADABLE_MAX, Opened, last_named, read_all
from penstock.core.log.segment cimport Segment

cdef enum:
    LOST_RUNS_MAX = 256          # more runs of lost sequences at an end are written down as one


cdef int mend_tail(Log log, Opened o, bint numbered) except -1:
    # The last segment takes the next appends: its unfinished end is put aside. A sequence that the cut record had is not
    # given again: a consumer may have seen it. In a `numbered` log it is: it is the same message then.
    cdef Segment s = o.segment
    cdef bytes cut
    cdef uint64_t expected, seen = 0, first, whole = 0, told = log.last_seq
    cdef Py_ssize_t at
    if o.headless or o.mended or s.packed is not None:
        # It can't be carried on: its head is bad, or it is compressed (the file of the segment behind it never reached the disk).
        # It stays as it is, and a new segment follows; without anything in it that could be believed, the new one has its name.
        if not numbered:
            pass_over_end(log, o)
        if s.first == log.last_seq + 1:
            say_removals(log, s)
            log.segments.close_handle(s)
            log.segments.discard(s)
            log.subjects_table.leave(s)
            set_aside(log, f"{s.first:020}.seg")
        start_found(log, log.last_seq + 1)
        begin_anew(log)
        if s.first != log.active.first and (s.packed is not None or o.mended):
            settle(log, o)
        return 0
    s.seal(False)
    if told < s.first + s.count:
        told = 0                             # nothing behind the end was told as lost yet
    if o.scan is not None and o.scan.group_at and (o.evidence is None or o.evidence.count <= o.scan.group_index):
        seen = drop_group(log, o)            # else the index file says that the disk had all of it
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
                log.removals.lost.append((first, whole + 1 - first, "damaged at the end"))
    if o.evidence is not None and o.evidence.size > s.size:
        # The index file does not match the segment any more and goes: what only it records of removals is recorded again.
        for low, high in o.evidence.gone:
            log.removals.add(low, high - low)
        for low, high in o.evidence.ranges:
            log.removals.add(low, high)
    log.activate(s, s.size)
    if s.entries == NULL and s.count:
        log.segments.need(s)
    s.index_lost()            # it will not match any more
    log.raise_last(seen, 0)
    if log.last_seq >= expected:
        # Also after records that name sequences whose own record is gone.
        if log.last_seq - expected > GAP_MAX:
            try:
                log.roll(log.last_seq + 1)
            except OSError as error:
                log.state.roll_ended(True)
                log.owe(error, None)
            return 0
        put_skips(log, s, expected)
    return 0


cdef int say_removals(Log log, Segment s) except -1:
    """A segment goes out of the log that has no message, but may say what is removed of others: that is written once more."""
    cdef uint64_t end = log.last_seq + 1
    cdef size_t k
    for k in range(s.removes.count):
        if s.removes.items[k].first < end:
            log.removals.add(s.removes.items[k].first, min(s.removes.items[k].count, end - s.removes.items[k].first))
    if s.removed_below > 1:
        log.removals.add(1, min(s.removed_below, end) - 1)
    return 0


cdef int pass_over_end(Log log, Opened o) except -1:
    """Of a segment that is not carried on: no sequence of its damaged end is given again."""
    cdef Segment s = o.segment
    cdef bytes data
    cdef uint64_t first = log.last_seq + 1, expected = s.first + s.count, last, whole = 0
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
        # A block that can't be decompressed: zeros stand for what was on the disk.
        last = expected - 1 + min(<uint64_t>(len(data) - at) // RECORD_EXTRA_BYTES, <uint64_t>UNREADABLE_MAX)
        whole = min(expected, last)
    else:
        last = last_named(PyBytes_AS_STRING(data) + at, len(data) - at, s.salt, expected, &whole)
    if whole >= first:
        log.removals.lost.append((first, whole + 1 - first, "damaged at the end"))
    if last >= first:
        if last > max(whole, first - 1):
            first = max(whole + 1, first)
            log.removals.add(first, last + 1 - first)
        log.raise_last(last, 0)
    return 0


cdef int begin_anew(Log log) except -1:
    """A record that says nothing: what is missing before this segment is not a skip that was cut off."""
    return log.tail.skip(log.active, 0, log.last_seq, False)


cdef int put_skips(Log log, Segment s, uint64_t expected) except -1:
    """Write down which of the sequences behind the end are lost, so that each opening tells."""
    cdef uint64_t at = expected, end = log.last_seq + 1
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
    # The last messages are a group that was not finished: they were never there. The highest sequence one of them has.
    cdef Segment s = o.segment
    cdef uint64_t last = s.first + s.count - 1, first = s.first + o.scan.group_index
    s.cut_to(o.scan.group_index)
    o.scan.end_at(o.scan.group_at)
    log.removals.forget_lost(first, last)
    return last


cdef int settle(Log log, Opened o) except -1:
    # A sealed segment: its file is closed until somebody reads.
    cdef Segment s = o.segment
    s.seal(True)
    log.segments.close_handle(s)
    s.trim()
    if s.entries != NULL and o.index_file is None:
        log.segments.count_entries(s)
    return 0
