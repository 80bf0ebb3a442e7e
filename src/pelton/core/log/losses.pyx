"""Finding the lost sequences of a log: those that have no message, and that no removal and no skip names.

core/log/recovery calls this when all segments are found and all removals are applied.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset
from pelton.core.log.index_file cimport Evidence, read_evidence
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport Range, Ranges, ranges_add, ranges_free
from pelton.core.log.scan cimport Opened
from pelton.core.log.segment cimport Segment, is_live, new_segment
from pelton.core.log.tail_recovery cimport last_at_end

from pelton.core.log.lost import INCOMPLETE, Explained


def is_segment_name(name: str) -> bool:
    """Whether a file name is that of a segment: 20 digits and `.seg`, with a sequence from 1 to 2^63 - 1."""
    return len(name) == 24 and name.endswith(".seg") and name[:20].isascii() and name[:20].isdigit() and 1 <= int(name[:20]) < 2**63


cdef list find_orphans(Log log, list names, list opened):
    """(first, evidence) of the segments whose index file exists without a segment file."""
    cdef list found = []
    cdef Segment s
    cdef Evidence evidence
    cdef set there = {(<Opened>o).segment.first for o in opened}
    for name in names:
        if name.endswith(".idx") and is_segment_name(f"{name[:20]}.seg") and len(name) == 24 and int(name[:20]) not in there:
            s = new_segment(int(name[:20]))
            evidence = read_evidence(log.segments, s)
            if evidence is not None:
                found.append((int(name[:20]), evidence))
    return found


cdef int ranges_said(Opened o, Ranges* out) except -1:
    """Add the ranges in the REMOVE records of a segment to `out`."""
    cdef const Range* items
    cdef uint32_t k
    if o.index_file is not None:
        items = <const Range*>(PyBytes_AS_STRING(o.index_file.tables) + o.index_file.ranges_at)
        for k in range(o.index_file.range_count):
            ranges_add(out, items[k].first, items[k].count)
        return 0
    for k in range(o.segment.removes.count):
        ranges_add(out, o.segment.removes.items[k].first, o.segment.removes.items[k].count)
    if o.evidence is not None:
        for first, count in o.evidence.ranges:
            ranges_add(out, first, count)
    return 0


cdef int tell_lost(Log log, list opened, list orphans) except -1:
    """Put every lost sequence into `lost`."""
    cdef Opened o, last = <Opened>opened[len(opened) - 1]
    cdef Segment s
    cdef Opened before = None
    cdef list missing = []
    cdef uint64_t end = log.span.first_seq            # the first sequence that the caller expects
    for o in opened:
        s = o.segment
        if s.first > end:
            missing.extend(gap_before(log, o, before, orphans, end) if o is last and o.unwritten else [(end, s.first - end, "missing from the segment files")])
        if o.scan is not None:
            drop_broken(opened, o, o is not last or o.mended)
            missing.extend(o.scan.missing)
        if o.evidence is not None:
            missing.extend((low, high - low, "no record in the segment") for low, high in not_there(s, o.evidence.live))
            if o.evidence.size > s.size:
                s.mark_damaged(True)
        end = s.first + s.count
        before = o
    if log.span.last_seq >= end:
        missing.append((end, log.span.last_seq + 1 - end, "the end of the log is missing"))
    if missing:
        log.removals.lost.extend(explain(log, opened, orphans, missing))
        for first, _, _ in log.removals.lost:
            doubt(log, opened, first)
    return 0


cdef list gap_before(Log log, Opened o, Opened before, list orphans, uint64_t end):
    """The missing parts of the gap between `before` and the newest segment, whose head never reached the disk as a whole.

    A skip begins a segment with a removal record that names the gap; or the end of `before` was not synced either. So the gap has no
    message that anybody was told of, but for those that other bytes know. The rest of it is recorded as removed.
    """
    cdef uint64_t first = o.segment.first, whole = 0
    cdef list there = []
    if before is not None:
        last_at_end(log, before, &whole)
        if before.evidence is not None:
            there.extend((max(low, end), min(high, first)) for low, high in before.evidence.live)
    if whole >= end:
        there.append((end, min(whole + 1, first)))
    for _, evidence in orphans:
        there.extend((max(low, end), min(high, first)) for low, high in (<Evidence>evidence).live)
    known = Explained()
    there = [(low, high) for low, high in there if low < high]
    for low, high in there:
        known.add(low, high)
    for low, count, _ in known.left([(end, first - end, "")]):
        log.removals.add(low, count)
    return [(low, high - low, "missing from the segment files") for low, high in there]


cdef int doubt(Log log, list opened, uint64_t seq) except -1:
    """Mark the segment that the lost sequence `seq` belongs to, or follows, as damaged: it gets no index file."""
    cdef Py_ssize_t at = log.segments.position(seq)
    if at < len(opened) and (<Opened>opened[at]).segment.first <= seq:
        (<Opened>opened[at]).segment.mark_damaged(True)
    elif at:
        (<Opened>opened[at - 1]).segment.mark_damaged(True)
    return 0


cdef list not_there(Segment s, list live):
    """The parts of the runs in `live` that have no record in the segment, as (first, end); removed messages included."""
    cdef list parts = []
    cdef uint64_t seq, i
    for low, high in live:
        for seq in range(low, high):
            i = seq - s.first
            if i < s.count and (s.entries == NULL or s.entries[i].offset):
                continue
            if parts and parts[len(parts) - 1][1] == seq:
                parts[len(parts) - 1] = (parts[len(parts) - 1][0], seq + 1)
            else:
                parts.append((seq, seq + 1))
    return parts


cdef int drop_broken(list opened, Opened o, bint follows) except -1:
    """Drop the messages of each group with a hole that one flipped bit does not explain.

    Such a group may never have been stored whole, because any of the newest segments may have reached the disk in part. A group stays
    if an index file proves that the disk had all of it. With `follows` (another segment follows), a group that the end of the segment
    cuts in two is dropped, too; without it, tail recovery does that. Sequences that a removal names are no hole: the bytes of an erase
    that a power cut interrupted were on the disk together with their group.
    """
    cdef Segment s = o.segment
    cdef uint64_t i, known = o.evidence.count if o.evidence is not None else 0      # an index file describes synced records only
    cdef list broken = o.scan.broken
    if s.packed is not None:
        return 0                       # only synced segments are compressed
    if follows and o.scan.group_at:
        broken = broken + [(o.scan.group_index, s.count)]
    for low, high in broken:
        if high <= known or erased(opened, o, s.first + low, s.first + high):
            continue
        for i in range(low, high):
            if is_live(s, i):
                s.lose(<uint32_t>i)
                o.scan.missing.append((s.first + i, 1, INCOMPLETE))
    return 0


cdef bint erased(list opened, Opened o, uint64_t begin, uint64_t end) except -1:
    """Whether removals name all messages of a group that damaged bytes have destroyed, and the group ends before the segment does."""
    cdef Ranges one
    cdef size_t k
    holes = [(first, n, why) for first, n, why in o.scan.missing if why == "damaged bytes" and first < end and first + n > begin]
    if not holes or o.scan.group_at and o.segment.first + o.segment.count == end:
        return False
    named = Explained()
    for other in opened:
        memset(&one, 0, sizeof(Ranges))
        try:
            ranges_said(other, &one)
            for k in range(one.count):
                if one.items[k].first < end and one.items[k].first + one.items[k].count > begin:
                    named.add(one.items[k].first, one.items[k].first + one.items[k].count)
        finally:
            ranges_free(&one)
    return not named.left(holes)


cdef list explain(Log log, list opened, list orphans, list missing):
    """The parts of missing runs that no removal and no skip explains."""
    cdef Opened o
    cdef Ranges one
    cdef size_t k
    cdef uint64_t below = 0
    cdef uint64_t low = min([m[0] for m in missing]), high = max([m[0] + m[1] for m in missing])
    known = Explained()
    for o in opened:
        memset(&one, 0, sizeof(Ranges))
        try:
            ranges_said(o, &one)
            for k in range(one.count):
                if one.items[k].first < high and one.items[k].first + one.items[k].count > low:
                    known.add(one.items[k].first, one.items[k].first + one.items[k].count)
        finally:
            ranges_free(&one)
        below = max(below, o.segment.removed_below)
        if o.evidence is not None:
            below = max(below, o.evidence.removed_below)
            for first, end in o.evidence.gone:
                known.add(first, end)
    for _, evidence in orphans:
        below = max(below, (<Evidence>evidence).removed_below)
        for first, end in (<Evidence>evidence).gone:
            known.add(first, end)
        for first, count in (<Evidence>evidence).ranges:
            known.add(first, first + count)
    if below:
        known.add(1, below)
    return known.left(missing)
