"""Opening a log: from its files to one that can go on.

Each sealed segment is taken from its sidecar when that holds, else scanned (and the sidecar made anew); the last segment
is scanned unless the log was closed in order. Then all REMOVE ranges are applied: sequences are never used twice, so the
order does not matter. Nothing is deleted: damaged bytes inside a segment stay where they are and only their messages are
missing (and told in `lost`); an unfinished end of the last segment is kept beside it as `<name>.torn-<n>` before it is cut.
A group of messages at that end whose last one is not there (core/atomic) is part of what is unfinished.

Knows nothing of what a caller asks of the log afterwards.
"""
import errno

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from penstock.core.buffer cimport Out, hash_bytes, out_free
from penstock.core.log cimport Log
from penstock.core.packed cimport open_packed
from penstock.core.record cimport (
    ERASED, GAP_MAX, MESSAGE, MORE, RECORD_EXTRA_BYTES, RECORD_HEAD_BYTES, REMOVE, SEGMENT_HEAD_BYTES, Head, Range, Ranges,
    check_record, get_segment_head, is_packed_head, mend_segment_head, plausible, put_segment_head, put_skip, ranges_add, ranges_free,
    resync,
)
from penstock.core.segment cimport HAS_HEADERS, Entry, Segment, SegmentList, is_live, push
from penstock.core.sidecar cimport Sidecar, read_ranges, read_sidecar, write_sidecar
from penstock.core.subject_table cimport SubjectTable
from penstock.core.tally cimport count_bytes, count_entries, merge, recount

from penstock.core.lost import without


cdef class Scan:
    """What reading a segment from its start found besides the messages."""
    cdef uint64_t good_end       # offset after the last good record
    cdef uint64_t last_seq       # highest sequence the records speak of; first - 1 when none
    cdef uint64_t last_ts
    cdef list missing            # (first sequence, count, reason) not there because of damage
    cdef object bad_end          # None, or the sequence that the damaged bytes at the end claim (0: none)
    cdef list damaged            # (offset, end) of bytes that are no record
    cdef uint64_t group_at       # offset of the first record of a group whose last message has not come; 0: none
    cdef uint32_t group_index    # ... and its index


cdef class Opened:
    """A segment on its way into the log."""
    cdef Segment segment
    cdef Sidecar sidecar
    cdef Scan scan
    cdef bint touched            # removals newer than the sidecar
    cdef bint headless           # its head is gone: none of its records can be believed


def opening(Log log, create: bool):
    """Fill a new Log object from its folder, or start an empty log there. A generator: each step looks at about one segment."""
    cdef list names = [n for n in log.disk.list_dir(log.folder) if is_segment_name(n)]
    cdef list opened = []
    cdef Opened o
    cdef Segment last
    cdef Py_ssize_t k
    log.segments.rebuild = Rebuild(log)
    log.segments_found = len(names)
    if not names:
        if not log.disk.exists(log.folder):
            if not create:
                raise FileNotFoundError(2, "no such log", log.folder)
            log.disk.make_dir_durable(log.folder.rpartition("/")[0] or ".")
            log.disk.make_dir(log.folder)
            log.folder_made = True
        log.start_segment(log.first_seq)
        log.write()
        return
    for k in range(len(names)):
        o = open_segment(log, int(names[k][:20]), k == len(names) - 1)
        opened.append(o)
        yield
    log.disk.sync_dir(log.folder)
    # Who began this log may have been stopped before it synced the name of the folder.
    log.disk.sync_dir(log.folder.rpartition("/")[0] or ".")
    for k in range(len(opened) - 1):
        note_bad_end((<Opened>opened[k]), (<Opened>opened[k + 1]).segment.first)
    log.last_seq = (<Opened>opened[0]).segment.first - 1
    for o in opened:
        note_last(log, o)
    last = (<Opened>opened[len(opened) - 1]).segment
    log.active = last
    apply_removals(log, opened)
    mend_tail(log, <Opened>opened[len(opened) - 1])
    for o in opened:
        if o.segment is not last:
            settle(log, o)
    for o in opened:
        count(log, o)
        yield
    log.subject_count = log.subjects_table.live
    log.subject_ids = log.subjects_table.count
    log.segments.make_room(None)
    log.first_seq = log.segments.next_live(1) if log.msgs else log.last_seq + 1
    log.written_seq = log.last_seq
    if log.dirty():
        # What was mended is on the disk before anybody builds on it.
        log.write()
        log.sync_files()
        log.sync_used = False


def is_segment_name(name: str) -> bool:
    """Whether a file name is a segment's: 20 digits and `.seg`."""
    return len(name) == 24 and name.endswith(".seg") and name[:20].isascii() and name[:20].isdigit()


cdef Opened open_segment(Log log, uint64_t first, bint is_last):
    cdef Opened o = Opened()
    cdef Segment s = Segment()
    cdef char head[SEGMENT_HEAD_BYTES]
    cdef uint64_t named = 0
    cdef size_t got
    cdef bint good
    o.segment = s
    s.first = first
    log.segments.add(s)
    log.segments.handle(s)
    s.size = log.disk.size(s.handle)
    # A killed process leaves written bytes that are not on the disk yet: from here on they are.
    log.disk.sync(s.handle)
    s.written_size = s.synced_size = s.size
    s.sealed = not is_last
    got = log.disk.read_at(s.handle, head, SEGMENT_HEAD_BYTES, 0)
    good = get_segment_head(head, got, &named, &s.salt) or (got == SEGMENT_HEAD_BYTES and mend_segment_head(head, &named, &s.salt))
    if good and is_packed_head(head):
        s.packed = open_packed(log.disk, s.handle)
        s.size = s.written_size = s.synced_size = s.packed.size
    if not good or named != first:
        if is_last and got < SEGMENT_HEAD_BYTES:
            restart(log, s)
            return o
        o.headless = True
        s.damaged = True
        o.scan = Scan()
        o.scan.last_seq = guess_last(log, s)
        o.scan.missing = [(first, o.scan.last_seq - first + 1, "head of the segment")]
        o.scan.damaged = [(0, s.size)]
        o.scan.good_end = s.size
        return o
    o.sidecar = read_sidecar(log.segments, log.subjects_table, s)
    if o.sidecar is None:
        o.scan = scan(log, s)
        s.damaged = len(o.scan.damaged) > 0
    elif is_last:
        log.segments.need(s)
        read_ranges(log.segments, s, &s.removes)
    mark_seen(log.subjects_table, s)
    return o


cdef int restart(Log log, Segment s) except -1:
    # The process ended while this file was being made: nothing was in it.
    cdef Out out
    memset(&out, 0, sizeof(Out))
    keep_aside(log, s, 0)
    s.salt = <uint32_t>hash_bytes(<const char*>&s.first, 8)
    put_segment_head(&out, s.first, s.salt)
    try:
        log.disk.write_at(s.handle, out.data, out.len, 0)
    finally:
        out_free(&out)
    s.size = s.written_size = SEGMENT_HEAD_BYTES
    s.synced_size = 0
    return 0


cdef uint64_t guess_last(Log log, Segment s) except? 0:
    # Without its salt no record of a segment can be believed. Their heads still say how far the sequences went, and
    # those must not be given again.
    cdef bytes data = read_all(log, s)
    cdef const char* p = PyBytes_AS_STRING(data)
    cdef size_t at = 0, size = PyBytes_GET_SIZE(data)
    cdef Head head
    cdef uint64_t last = s.first - 1
    while at + RECORD_EXTRA_BYTES <= size:
        if plausible(p + at, size - at, &head) and s.first <= head.seq <= last + GAP_MAX:
            if head.seq > last:
                last = head.seq
            at += head.length
        else:
            at += 1
    return last


cdef bytes read_all(Log log, Segment s):
    cdef bytes data
    if s.packed is None:
        return log.disk.read_file(log.segments.path(s, ".seg"))
    data = PyBytes_FromStringAndSize(NULL, s.packed.size)
    log.segments.read_at(s, PyBytes_AS_STRING(data), s.packed.size, 0)
    return data


cdef int mark_seen(SubjectTable subjects, Segment s) except -1:
    cdef uint32_t k
    for k in range(s.subject_count):
        subjects.table[s.subjects[k]].seen = s.serial
    return 0


# --- reading a segment from its start ------------------------------------------------------------

cdef Scan scan(Log log, Segment s):
    cdef bytes data = read_all(log, s)
    cdef const char* p = PyBytes_AS_STRING(data)
    cdef size_t at = SEGMENT_HEAD_BYTES, size = PyBytes_GET_SIZE(data), end
    cdef Scan found = Scan()
    cdef Head head
    cdef uint32_t n
    cdef uint64_t expected
    cdef object bad = None
    found.missing = []
    found.damaged = []
    found.last_seq = s.first - 1
    found.good_end = at
    while at < size:
        expected = s.first + s.count
        n = check_record(p + at, size - at, s.salt, &head)
        if n and head.kind == MESSAGE and (head.seq < expected or head.seq - expected > GAP_MAX):
            n = 0
        if n == 0:
            end = resync(p, at, size, s.salt, expected)
            found.damaged.append((at, end))
            if bad is None:
                bad = claimed_seq(p + at, size - at, expected)
                if bad and s.packed is not None and plausible(p + at, size - at, &head) and head.length != end - at:
                    bad = 0                      # a damaged block takes more than the record that it begins in
            at = end
            continue
        if head.kind == MESSAGE:
            if head.seq > expected:
                if bad is not None:
                    found.missing.append(missing_of(bad, expected, head.seq - expected))
                s.push_holes(<uint32_t>(head.seq - expected))
            elif bad is not None:
                found.missing.append((expected, 0, "damaged bytes"))
            bad = None
            if not head.state & MORE:
                found.group_at = 0
            elif found.group_at == 0:
                found.group_at = at
                found.group_index = s.count
            take_message(log, s, p + at, <uint32_t>at, &head)
            found.last_ts = head.ts_ns
        elif head.kind == REMOVE:
            take_ranges(s, p + at, &head)
        elif head.seq >= expected and head.seq - expected < GAP_MAX:
            # The skipped sequences; among them may be what damage took.
            if bad is not None:
                found.missing.append(missing_of(bad, expected, head.seq + 1 - expected))
                bad = None
            s.push_holes(<uint32_t>(head.seq + 1 - expected))
        if head.kind != MESSAGE and bad is not None:
            found.group_at = 0        # something whole behind the damage: the group was, too
        if head.seq > found.last_seq:
            found.last_seq = head.seq
        at += n
        found.good_end = at
    found.bad_end = bad
    return found


cdef object claimed_seq(const char* p, size_t avail, uint64_t expected):
    # The sequence a damaged record says it has, when that can be; else 0.
    cdef Head head
    if plausible(p, avail, &head) and head.kind == MESSAGE and expected <= head.seq <= expected + GAP_MAX:
        return head.seq
    return 0


cdef object missing_of(object claimed, uint64_t first, uint64_t count):
    if claimed and first <= claimed and (count == 0 or claimed < first + count):
        return (claimed, 1, "checksum")
    return (first, count, "damaged bytes")


cdef int take_message(Log log, Segment s, const char* p, uint32_t offset, Head* head) except -1:
    cdef SubjectTable subjects = log.subjects_table
    cdef uint32_t id = subjects.intern(p + RECORD_HEAD_BYTES, head.subject_len)
    cdef uint32_t n = head.length - RECORD_EXTRA_BYTES
    if subjects.table[id].seen != s.serial:
        s.add_subject(id)
        subjects.table[id].seen = s.serial
    s.reserve(1)
    push(s, offset, id, n | (HAS_HEADERS if head.hlen else 0))
    if head.state & ERASED:
        s.set_dead(s.count - 1)
        return 0
    s.live += 1
    s.last_ts = head.ts_ns
    return 0


cdef int take_ranges(Segment s, const char* p, Head* head) except -1:
    cdef uint32_t k, n = (head.length - RECORD_EXTRA_BYTES) // sizeof(Range)
    cdef Range r
    for k in range(n):
        memcpy(&r, p + RECORD_HEAD_BYTES + k * sizeof(Range), sizeof(Range))
        ranges_add(&s.removes, r.first, r.count)
    return 0


# --- putting the segments together ---------------------------------------------------------------

cdef int note_bad_end(Opened o, uint64_t following) except -1:
    # A sealed segment that ends in damage: what is missing goes up to where the next one starts.
    cdef uint64_t expected = o.segment.first + o.segment.count
    if o.scan is not None and o.scan.bad_end is not None and not o.headless:
        o.scan.missing.append(missing_of(o.scan.bad_end, expected, following - expected if following > expected else 0))
    return 0


cdef int note_last(Log log, Opened o) except -1:
    cdef Segment s = o.segment
    cdef uint64_t last = s.first + s.count - 1
    if o.sidecar is not None and o.sidecar.last_seq > last:
        last = o.sidecar.last_seq
    if o.scan is not None and o.scan.last_seq > last:
        last = o.scan.last_seq
    if last > log.last_seq:
        log.last_seq = last
    if s.last_ts > log.last_ts_ns:
        log.last_ts_ns = s.last_ts
    if o.scan is not None and o.scan.last_ts > log.last_ts_ns:
        log.last_ts_ns = o.scan.last_ts
    return 0


cdef int apply_removals(Log log, list opened) except -1:
    cdef Opened o
    cdef Ranges one
    cdef Segment holder
    cdef size_t k
    cdef list known = []
    cdef bint damage = False
    for o in opened:
        damage = damage or (o.scan is not None and bool(o.scan.missing))
    for o in opened:
        holder = o.segment
        memset(&one, 0, sizeof(Ranges))
        try:
            if o.sidecar is not None:
                ranges_of(o.sidecar, &one)
            else:
                for k in range(holder.removes.count):
                    ranges_add(&one, holder.removes.items[k].first, holder.removes.items[k].count)
            for k in range(one.count):
                apply_range(log, opened, holder, one.items[k])
                if damage:
                    known.append((one.items[k].first, one.items[k].first + one.items[k].count))
        finally:
            ranges_free(&one)
    if damage:
        known.sort()
        for o in opened:
            if o.scan is not None:
                log.lost.extend(m for first, count, reason in o.scan.missing for m in without(first, count, reason, known))
    return 0


cdef int ranges_of(Sidecar sidecar, Ranges* out) except -1:
    cdef const Range* items = <const Range*>(PyBytes_AS_STRING(sidecar.tables) + sidecar.ranges_at)
    cdef uint32_t k
    for k in range(sidecar.range_count):
        ranges_add(out, items[k].first, items[k].count)
    return 0


cdef int apply_range(Log log, list opened, Segment holder, Range r) except -1:
    cdef Py_ssize_t at = log.segments.position(r.first)
    cdef Segment s
    cdef Opened o
    cdef uint64_t end = r.first + r.count, i, stop
    while at < len(opened):
        o = <Opened>opened[at]
        s = o.segment
        at += 1
        if s.first >= end:
            break
        if s is not holder:
            if s.relog_low == 0 or holder.first < s.relog_low:
                s.relog_low = holder.first
            if holder.first > s.relog_high:
                s.relog_high = holder.first
        i = r.first - s.first if r.first > s.first else 0
        stop = end - s.first if end - s.first < s.count else s.count
        while i < stop:
            if is_live(s, i):
                s.set_dead(<uint32_t>i)
                s.live -= 1
                s.index_old = True
                o.touched = True
            i += 1
    return 0


cdef int mend_tail(Log log, Opened o) except -1:
    # The last segment takes the next appends: its unfinished end is put aside. A sequence that the cut record had is not
    # given again: a consumer may have seen it.
    cdef Segment s = o.segment
    cdef bytes cut
    cdef Head head
    cdef uint64_t expected, seen = 0, first
    cdef Py_ssize_t at
    if o.headless or s.packed is not None:
        # It can't be carried on: its head is gone, or it is compressed (the file of the segment behind it never reached the disk).
        # It stays as it is, and a new segment follows.
        s.sealed = True
        log.start_segment(log.last_seq + 1)
        if s.packed is not None:
            note_bad_end(o, log.last_seq + 1)
            settle(log, o)
        return 0
    if o.scan is not None and o.scan.group_at:
        seen = drop_group(o)
    expected = s.first + s.count
    if o.scan is not None and o.scan.good_end < s.size:
        cut = keep_aside(log, s, o.scan.good_end)
        s.damaged = len(o.scan.damaged) > (o.scan.bad_end is not None)
        at = len(cut) if o.scan.bad_end is None else o.scan.damaged[len(o.scan.damaged) - 1][0] - o.scan.good_end
        if plausible(PyBytes_AS_STRING(cut) + at, len(cut) - at, &head) and head.kind == MESSAGE and (
                expected <= head.seq <= expected + GAP_MAX):
            seen = max(seen, head.seq)
            if head.length <= <uint64_t>(len(cut) - at):
                first = expected if o.scan.group_at else head.seq
                log.lost.append((first, head.seq + 1 - first, "damaged at the end"))
    log.tail_base = s.size
    log.active = s
    log.segments.active = s
    if s.entries == NULL and s.count:
        log.segments.need(s)
    s.has_index = False       # it will not match any more
    if seen > log.last_seq:
        log.last_seq = seen
    if log.last_seq >= expected:
        # Also after records that name sequences whose own record is gone.
        if log.last_seq - expected > GAP_MAX:
            log.roll(log.last_seq + 1)
            return 0
        s.push_holes(<uint32_t>(log.last_seq + 1 - expected))
        put_skip(&log.tail, log.last_seq, s.salt)
        s.size += RECORD_EXTRA_BYTES
    return 0


cdef uint64_t drop_group(Opened o) except? 0:
    # The last messages are a group that was not finished: they were never there. The highest sequence one of them has.
    cdef uint32_t i
    cdef Segment s = o.segment
    cdef uint64_t last = s.first + s.count - 1
    for i in range(o.scan.group_index, s.count):
        if is_live(s, i):
            s.live -= 1
        else:
            s.dead[i >> 6] &= ~(<uint64_t>1 << (i & 63))
    s.count = o.scan.group_index
    o.scan.good_end = o.scan.group_at
    return last


cdef bytes keep_aside(Log log, Segment s, uint64_t at):
    # Cuts the file at `at`; what was behind it is kept, durably, in a file of its own first.
    cdef bytes cut = read_all(log, s)[at:]
    cdef int n = 1
    cdef str path = log.segments.path(s, "")
    if cut:
        while log.disk.exists(f"{path}.torn-{n}"):
            n += 1
        try:
            log.disk.write_file_atomic(f"{path}.torn-{n}", cut, True)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # A full disk has torn that write, and has no room for a copy: better served without it than not at all.
            log.disk.unlink(f"{path}.torn-{n}.tmp")
        log.disk.truncate(s.handle, at)
        log.disk.sync(s.handle)
    s.size = s.written_size = s.synced_size = at
    return cut


cdef int settle(Log log, Opened o) except -1:
    # A sealed segment: its file is closed until somebody reads.
    cdef Segment s = o.segment
    s.sealed = True
    log.segments.close_handle(s)
    s.trim()
    if s.entries != NULL and o.sidecar is None:
        log.segments.loaded_bytes += s.count * sizeof(Entry)
    return 0


cdef int count(Log log, Opened o) except -1:
    # Subjects, messages and bytes of a segment; called in order of the sequences.
    cdef Segment s = o.segment
    cdef uint32_t k
    if s.live == 0:
        s.live_bytes = 0
    elif o.sidecar is not None and not o.touched:
        for k in range(s.subject_count):
            merge(log.subjects_table, s.subjects[k], o.sidecar.rows[k].live, s.first + o.sidecar.rows[k].first,
                  s.first + o.sidecar.rows[k].last)
    else:
        count_entries(log, s)
    log.msgs += s.live
    log.bytes += s.live_bytes
    if o.sidecar is None and s is not log.active and s.live and not s.damaged:
        write_sidecar(log.segments, log.subjects_table, s, log.last_seq)
    if s.live == 0 and s is not log.active:
        if s.damaged:
            return 0      # nothing in it can be read, but it is not recorded as dead: it stays
        log.retire(s)
    log.segments.make_room(s)
    return 0


# --- while the log is open: a sidecar that no longer holds ---------------------------------------

cdef class Rebuild:
    """Called with a segment whose entries can't be read back: reads them from its records."""
    cdef object log          # weak, so that a log dropped without close goes at once

    def __init__(self, Log log) -> None:
        import weakref
        self.log = weakref.ref(log)

    def __call__(self, Segment s) -> None:
        """Fill s.entries again and write its sidecar anew."""
        cdef Log log = self.log()
        cdef Segment fresh = Segment()
        cdef uint32_t i
        cdef bint short = False
        fresh.first = s.first
        fresh.salt = s.salt
        fresh.packed = s.packed
        fresh.size = s.size
        fresh.sealed = True
        log.segments.serials += 1
        fresh.serial = log.segments.serials
        scan(log, fresh)
        if fresh.count < s.count:
            fresh.push_holes(s.count - fresh.count)
        s.entries = fresh.entries
        s.cap = fresh.cap
        fresh.entries = NULL
        fresh.cap = 0
        s.removes = fresh.removes
        memset(&fresh.removes, 0, sizeof(Ranges))
        for i in range(s.count):
            if is_live(s, i) and s.entries[i].offset == 0:
                log.lost.append((s.first + i, 1, "checksum"))
                s.damaged = True
                s.set_dead(i)
                s.live -= 1
                short = True
        # While the log is being opened, removals newer than the sidecar are marked and not counted yet.
        count_bytes(log, s)
        if short:
            recount(log)
        if not s.damaged:
            write_sidecar(log.segments, log.subjects_table, s, log.last_seq)
