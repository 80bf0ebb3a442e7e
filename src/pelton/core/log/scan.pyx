"""Scanning a segment from its start: every good record becomes an index entry, and bad bytes are skipped.

Behind bad bytes the scan looks for the next record byte by byte. It treats the bad bytes as follows:

    one flipped bit explains them    they are one record. If it is a message, only this message is missing; a removal or a skip
                                     counts, because its content can be checked against itself (core/log/checksum_repair)
    else                             the bad record that follows by its length is tried in the same way; every sequence up to the next
                                     record that no removal and no skip names is missing

So each sequence of a segment is a message, or a removal or a skip names it, or it is missing. `broken` lists the groups of messages
with a hole that no single bit explains: such a group may never have reached the disk as a whole (core/log/losses).

Knows nothing of other segments. core/log/recovery decides what to do with the result.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport crc32c
from pelton.core.log.checksum_repair cimport mend_bytes
from pelton.core.log.encryption cimport open_record
from pelton.core.log.index_file cimport Evidence, IndexFile
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport (
    ERASED, GAP_MAX, LOST, MEMBER, MESSAGE, MORE, RECORD_EXTRA_BYTES, RECORD_HEAD_BYTES, RECORD_MARK, RECORD_MAX_BYTES, REMOVE,
    SEALED, SEGMENT_HEAD_BYTES, SKIP, TAGGED, Head, Range, check_record, get_segment_head, plausible, ranges_add, resync,
)
from pelton.core.log.segment cimport HAS_HEADERS, Segment, push
from pelton.core.log.subject_table cimport SubjectTable

cdef enum:
    BAD_RECORDS_MAX = 64         # bad records in a row that are tried for one flipped bit each
    BAD_LENGTH_MAX = 65572       # the longest removal record; a message counts as missing with or without its length


cdef class Scan:
    """The result of scanning a segment, besides the messages."""

    cdef void end_at(self, uint64_t offset) noexcept:
        self.good_end = offset

    cdef int stop_before(self, uint64_t first, uint32_t count) except -1:
        self.missing = [(seq, min(n, first - seq), why) for seq, n, why in self.missing if seq < first]
        self.broken = [(begin, min(end, count)) for begin, end in self.broken if begin < count]
        self.last_seq = min(self.last_seq, first - 1)
        return 0

    cdef int nothing_good(self, uint64_t size) except -1:
        self.damaged = [(0, size)]
        self.good_end = size
        return 0


cdef class Opened:
    """A segment that is being opened, with the index file or the scan that it was read from."""

    cdef int hold(self, Segment s) except -1:
        self.segment = s
        return 0

    cdef bint mend(self, bint known) noexcept:
        self.mended = known
        return known

    cdef int take_evidence(self, Evidence evidence) except -1:
        self.evidence = evidence
        return 0

    cdef int take_index_file(self, IndexFile index_file) except -1:
        self.index_file = index_file
        return 0

    cdef int take_scan(self, Scan scan) except -1:
        self.scan = scan
        return 0

    cdef int lose_head(self, Scan scan) except -1:
        self.headless = True
        self.scan = scan
        return 0

    cdef void begin_unwritten(self) noexcept:
        self.unwritten = True

    cdef void touch(self) noexcept:
        self.touched = True


cdef bytes read_all(Log log, Segment s):
    cdef bytes data
    if s.packed is None:
        return log.disk.read_file(log.segments.path(s, ".seg"))
    data = PyBytes_FromStringAndSize(NULL, s.packed.size)
    log.segments.read_at(s, PyBytes_AS_STRING(data), s.packed.size, 0)
    return data


cdef class State:
    """The state of a running scan."""
    cdef Log log
    cdef Segment segment
    cdef Scan found
    cdef bint hole               # unexplained bytes precede, since the last good record
    cdef uint32_t broken_from    # of a group with a hole: index of its first message in the segment
    cdef bint breaking           # more messages of the group at broken_from may follow


cdef Scan scan(Log log, Segment s):
    cdef bytes data = read_all(log, s)
    cdef char* p = PyBytes_AS_STRING(data)
    cdef size_t at = s.begins, size = PyBytes_GET_SIZE(data), begin, end
    cdef Scan found = Scan()
    cdef State state = State()
    cdef Head head
    cdef const char* plain
    cdef uint32_t n
    found.missing = []
    found.damaged = []
    found.notes = []
    found.broken = []
    found.last_seq = s.first - 1
    found.good_end = at
    state.log, state.segment, state.found = log, s, found
    while at < size:
        n = check_record(p + at, size - at, s.salt, &head)
        plain = p + at
        if n and head.kind == MESSAGE:
            plain = message_of(log, s, p + at, &head)
        if n and plain != NULL and possible(s, &head):
            take(state, plain, at, &head, False)
        else:
            end = resync(p, at, size, s.salt, s.first + s.count)
            begin = find_mendable(p, at, end, s, &head, &n)
            if begin > at:
                found.damaged.append((at, begin))
                state.hole = True
                at = begin
            if n == 0:
                found.bad_end = end == size
                continue
            if head.kind == MESSAGE and not head.state & ERASED:
                found.damaged.append((at, at + n))
            else:
                found.notes.append(f"corrected one flipped bit in the record at byte {at} of segment {s.first}, in memory; the file keeps it until "
                                   "a repair of the store")
            take(state, p + at, at, &head, True)
        at += n
        found.good_end = at
    if state.breaking:
        state.found.broken.append((state.broken_from, s.count))
    return found


cdef const char* message_of(Log log, Segment s, const char* p, Head* head) except? NULL:
    """The record of a message with a good checksum, decrypted if needed; NULL: its authentication fails."""
    if head.length < s.extra or <uint64_t>head.subject_len + head.hlen > head.length - s.extra or (
            bool(head.state & TAGGED) != (s.extra != RECORD_EXTRA_BYTES)):
        return NULL
    if s.aead is None or head.state & ERASED:
        if head.state & SEALED:
            return NULL
        return p
    return open_record(s.aead, log.cipher, p, &log.unsealed)


cdef bint possible(Segment s, Head* head) noexcept:
    """Whether a good record can be at this place of the segment."""
    cdef uint64_t expected = s.first + s.count
    return head.kind != MESSAGE or (head.seq >= expected and head.seq - expected <= GAP_MAX)


cdef uint32_t mend(char* p, size_t n, Segment s, Head* head) except? 0:
    """Correct one flipped bit in the record that bad bytes begin with, in place; its length, or 0 if one bit does not explain them."""
    cdef size_t length = n
    if mend_bytes(p, n, s.salt, head) < 0:
        length = mend_first(p, n, s.salt, head)
    return <uint32_t>length if length and can_follow(p, s, head) else 0


cdef bint can_follow(const char* p, Segment s, Head* head) noexcept:
    """Whether a corrected record can be at this place of the segment."""
    cdef uint64_t expected = s.first + s.count
    if head.seq + 1 < expected or head.seq > expected + GAP_MAX or not possible(s, head):
        return False
    return head.kind != REMOVE or ranges_possible(p, head)


cdef size_t mend_first(char* p, size_t n, uint32_t salt, Head* head) noexcept:
    """Correct one flipped bit in the first of several bad records, in place; its length, or 0 if one bit does not explain it.

    The bit may be anywhere in the record: the length field is taken as it is, and then with each of its bits changed.
    """
    cdef uint32_t claimed, length
    cdef int bit
    if n <= RECORD_EXTRA_BYTES:
        return 0                         # too short for a record, and perhaps for the length of one
    memcpy(&claimed, p, 4)
    if RECORD_EXTRA_BYTES <= claimed < n and mend_bytes(p, claimed, salt, head) >= 0:
        return claimed
    for bit in range(32):
        length = claimed ^ <uint32_t>1 << bit
        if RECORD_EXTRA_BYTES <= length < n and length <= BAD_LENGTH_MAX and mend_bytes(p, length, salt, head) >= 0:
            return length
    return 0


cdef size_t find_mendable(char* p, size_t at, size_t end, Segment s, Head* head, uint32_t* length) except? 0:
    """Correct one flipped bit in the first of the bad records from `at` on that one bit explains; its place, or `end` and length 0.

    A record before it may be damaged beyond repair; its head says where the next one begins. Without such a head (a power cut has left
    zeros), the last of the bad records is tried.
    """
    cdef Head claimed
    cdef int k
    for k in range(BAD_RECORDS_MAX):
        length[0] = mend(p + at, end - at, s, head)
        if length[0]:
            return at
        if not plausible(p + at, end - at, &claimed) or claimed.length >= end - at:
            break
        at += claimed.length
    return find_last(p, at, end, s, head, length)


cdef size_t find_last(char* p, size_t at, size_t end, Segment s, Head* head, uint32_t* length) except? 0:
    """Correct one flipped bit in the bad record that ends at `end`; its place, or `end` and length 0.

    Its length field, which may have the flipped bit, says where it begins.
    """
    cdef size_t begin, n
    cdef uint32_t claimed, differs
    for n in range(RECORD_EXTRA_BYTES, min(end - at, <size_t>BAD_LENGTH_MAX)):
        begin = end - n
        memcpy(&claimed, p + begin, 4)
        differs = claimed ^ <uint32_t>n
        if differs & (differs - 1) == 0 and mend_bytes(p + begin, n, s.salt, head) >= 0 and can_follow(p + begin, s, head):
            length[0] = <uint32_t>n
            return begin
    length[0] = 0
    return end


cdef bint ranges_possible(const char* p, Head* head) noexcept:
    cdef uint32_t k
    cdef Range r
    if (head.length - RECORD_EXTRA_BYTES) % sizeof(Range):
        return False
    for k in range((head.length - RECORD_EXTRA_BYTES) // sizeof(Range)):
        memcpy(&r, p + RECORD_HEAD_BYTES + k * sizeof(Range), sizeof(Range))
        if r.count > head.seq or r.first > head.seq + 1 - r.count:
            return False
    return head.ts_ns <= head.seq + 1


# --- one record ----------------------------------------------------------------------------------

cdef int take(State state, const char* p, size_t at, Head* head, bint mended) except -1:
    """Take a good or a corrected record; a corrected message still counts as missing."""
    cdef Segment s = state.segment
    cdef Scan found = state.found
    cdef uint64_t expected = s.first + s.count, end = expected
    if head.kind == MESSAGE:
        end = head.seq
    elif head.kind == REMOVE:
        end = head.seq + 1                      # messages up to head.seq were written before the removal
    elif expected <= head.ts_ns <= head.seq:
        end = head.ts_ns
    if expected < end <= expected + GAP_MAX:
        note_gap(state, expected, end, head)
    elif state.hole:
        found.missing.append((expected, 0, "damaged bytes"))
    if head.kind == MESSAGE:
        take_message(state, p, <uint32_t>at, head, mended)
        found.last_ts = head.ts_ns
    else:
        if head.kind != REMOVE:
            take_skip(state, head)              # may stand within a group, for a sequence without a message
        else:
            if state.breaking:
                end_broken(state)
            elif state.hole:
                found.group_at = 0              # a good record follows the damage, so the group was whole
            take_ranges(s, p, head)
    state.hole = False
    if head.seq > found.last_seq:
        found.last_seq = head.seq
    return 0


cdef int take_skip(State state, Head* head) except -1:
    cdef Segment s = state.segment
    cdef uint64_t next = s.first + s.count
    if next <= head.seq < next + GAP_MAX:
        if head.state & LOST:
            state.found.missing.append((next, head.seq + 1 - next, "damaged bytes"))
            state.found.group_at = 0                # the group was whole once: an unfinished group would have been dropped
        s.push_holes(<uint32_t>(head.seq + 1 - next))
    return 0


cdef int note_gap(State state, uint64_t first, uint64_t end, Head* head) except -1:
    """Note sequences without a message as missing."""
    cdef Segment s = state.segment
    cdef Scan found = state.found
    found.missing.append((first, end - first, "damaged bytes" if state.hole else "no record in the segment"))
    if state.hole and found.group_at and not state.breaking:
        state.breaking = True
        state.broken_from = found.group_index
    elif state.hole and head.kind == MESSAGE and head.state & MEMBER and not state.breaking:
        state.breaking = True
        state.broken_from = s.count
    s.push_holes(<uint32_t>(end - first))
    return 0


cdef int end_broken(State state) except -1:
    state.found.broken.append((state.broken_from, state.segment.count))
    state.found.group_at = 0
    state.breaking = False
    return 0


cdef int take_message(State state, const char* p, uint32_t offset, Head* head, bint mended) except -1:
    cdef Segment s = state.segment
    cdef Scan found = state.found
    cdef SubjectTable subjects = state.log.subjects_table
    cdef uint32_t id, n = head.length - s.extra
    if state.breaking and not head.state & MEMBER:
        end_broken(state)                       # this message is not in the broken group
    if head.state & MEMBER and not found.group_at and not state.breaking:
        state.breaking = True                   # the previous message of the group was in a hole before a skip
        state.broken_from = s.count
    if not head.state & MORE:
        found.group_at = 0
    elif found.group_at == 0 or not head.state & MEMBER:
        found.group_at = offset
        found.group_index = s.count
    if mended:
        if not head.state & ERASED:
            found.missing.append((head.seq, 1, "checksum mismatch"))
        s.push_holes(1)
        return 0
    if head.state & ERASED and head.subject_len == 0:
        s.push_holes(1)                         # an erased encrypted message: its subject is erased, too
        return 0
    id = subjects.intern(p + RECORD_HEAD_BYTES, head.subject_len)
    if subjects.table[id].seen != s.serial:
        subjects.seen_in(s, id)
    s.reserve(1)
    push(s, offset, id, n | (HAS_HEADERS if head.hlen else 0))
    if head.state & ERASED:
        s.set_dead(s.count - 1)
        return 0
    s.found(head.ts_ns)
    return 0


cdef int take_ranges(Segment s, const char* p, Head* head) except -1:
    cdef uint32_t k, n = (head.length - RECORD_EXTRA_BYTES) // sizeof(Range)
    cdef Range r
    for k in range(n):
        memcpy(&r, p + RECORD_HEAD_BYTES + k * sizeof(Range), sizeof(Range))
        # A removal cannot name sequences that were not given when it was written.
        if r.first <= head.seq:
            ranges_add(&s.removes, r.first, min(r.count, head.seq - r.first + 1))
    s.raise_removed_below(min(head.ts_ns, head.seq + 1))
    return 0


# --- unreadable bytes --------------------------------------------------------------------------------

cdef struct Walk:
    # The state of a walk over the heads of damaged records.
    uint64_t last            # highest sequence that the bytes before `known` may have had
    uint64_t whole           # sequence of the last message that was surely complete
    size_t at                # offset of the next head
    size_t known             # offset behind the last record that was counted
    size_t likely            # possible heads inside a record that claims more bytes than there are
    bint unread              # the bytes from `known` on belong to a message with an unreadable head
    bint overlong            # the bytes from `known` on belong to a message that claims more bytes than there are


cdef uint64_t last_named(const char* p, size_t size, uint32_t salt, uint64_t expected, uint64_t* whole) noexcept:
    # A head counts only up to the sequence that the bytes before it have room for: bytes in a payload may look like any head. A head
    # that cannot be read, or has an impossible sequence, counts as the next message. A head that claims more bytes than there are
    # belongs to a record that never reached the disk as a whole; but if another head follows, its length is damaged.
    cdef Walk w
    cdef Head head
    cdef bint rest
    cdef size_t at, room
    memset(&w, 0, sizeof(Walk))
    w.last = w.whole = expected - 1
    while w.at + RECORD_EXTRA_BYTES <= size:
        rest = w.unread
        if find_claim(p, size, &w, &head):
            count_claim(p, size, salt, &w, &head, rest)
    whole[0] = w.whole
    if w.overlong:
        return w.last + min(w.likely, <size_t>UNREADABLE_MAX)
    # Behind the last record, count as many messages as there is room for; one of them is certain. Zeros at the end were never written.
    at = size
    while at > w.known and p[at - 1] == 0:
        at -= 1
    if at > w.known:
        room = min((min(at + 3, size) - w.known) // RECORD_EXTRA_BYTES, <size_t>UNREADABLE_MAX)      # a checksum may end in zeros
        if room and not w.unread:
            whole[0] = w.last + 1
        w.last += room
    return w.last


cdef bint find_claim(const char* p, size_t size, Walk* w, Head* head) noexcept:
    """Whether the bytes at `w.at` count as the head of a record; if not, `w.at` moves on."""
    cdef uint64_t most = w.last + 1 + (w.at - w.known) // RECORD_EXTRA_BYTES       # the highest sequence with room before it
    if plausible(p + w.at, size - w.at, head):
        if w.overlong and not w.last < head.seq <= most:
            w.at += 1
            return False
        w.unread = w.overlong = False
        if not of_kind(head):
            head.kind = MESSAGE
        return True
    if w.overlong and head.mark == RECORD_MARK and w.last < head.seq <= most:
        w.overlong = False
    elif w.overlong and (head.mark == RECORD_MARK or head.seq == w.last + 1 + w.likely):
        w.likely += 1                                 # a head, or bytes of the overlong record
        w.at += RECORD_EXTRA_BYTES
        return False
    if w.overlong or head.mark != RECORD_MARK and (w.at or head.length == 0):
        w.at += 1
        return False
    if head.mark != RECORD_MARK:
        head.seq = 0
    head.kind = MESSAGE
    head.length = RECORD_EXTRA_BYTES
    w.unread = True
    return True


cdef void count_claim(const char* p, size_t size, uint32_t salt, Walk* w, const Head* head, bint rest) noexcept:
    """Count the head at `w.at` and move behind its record. `rest`: the bytes before the head are the rest of a message."""
    cdef size_t left = size - w.at, room = (w.at - w.known) // RECORD_EXTRA_BYTES
    cdef uint64_t sure
    if head.kind == MESSAGE:
        if w.last < head.seq <= w.last + 1 + room:
            sure = w.last = head.seq
        else:
            # The bytes before the head held at least one message, unless they are the rest of one.
            sure = w.last + 1 + (room > 0 and not rest)
            w.last += 1 + min(room, <size_t>UNREADABLE_MAX)
        if head.length <= left or ends_here(p + w.at, left, salt):
            w.whole = sure
    elif head.kind == REMOVE:
        if w.last < head.seq <= w.last + room:
            w.whole = w.last = head.seq               # every sequence was given before the removal was written
        elif w.last < head.seq <= w.last + GAP_MAX:
            w.last = head.seq
    else:
        if w.last + 1 < head.ts_ns <= w.last + 1 + room:
            w.whole = head.ts_ns - 1
        if w.last < head.seq <= w.last + GAP_MAX:
            w.last = head.seq
        elif w.last < head.ts_ns <= w.last + GAP_MAX:
            w.last = head.ts_ns
        elif head.seq != w.last:
            w.last += 1                               # the record skips one sequence at least
    if head.length <= left:
        w.at += head.length
    elif ends_here(p + w.at, left, salt):
        w.at = size
    else:
        w.overlong = True
        w.likely = 0
        w.at += RECORD_HEAD_BYTES
    w.known = w.at


cdef bint of_kind(const Head* head) noexcept:
    """Whether a plausible head has the form of a removal or a skip; if not, it counts as that of a message."""
    if head.kind == MESSAGE:
        return True
    if head.subject_len or head.hlen:
        return False
    return head.length == RECORD_EXTRA_BYTES if head.kind == SKIP else (head.length - RECORD_EXTRA_BYTES) % sizeof(Range) == 0


cdef bint ends_here(const char* p, size_t size, uint32_t salt) noexcept:
    """Whether these bytes are one whole record, regardless of its length field."""
    cdef uint32_t length = <uint32_t>size, crc
    if not RECORD_EXTRA_BYTES <= size <= RECORD_MAX_BYTES:
        return False
    memcpy(&crc, p + size - 4, 4)
    return crc == crc32c(p + 4, size - 8, crc32c(<const char*>&length, 4, salt))


cdef bint never_written(const char* p, uint64_t first) noexcept:
    """Whether a part of a bad head was never written and is still zeros. Version, salt, checksum and the number of the data key may
    have any value. For an encrypted segment p has the 64 bytes of both halves.
    """
    cdef const char* magic = b"PNSTKSEG"
    cdef bint sealed = p[8] == 3
    cdef uint64_t named
    cdef uint32_t salt
    cdef int i
    for i in range(28):
        if p[i] == 0 or 8 <= i < 16 or (sealed and i >= 24):
            continue
        if p[i] != (magic[i] if i < 8 else (<const char*>&first)[i - 16] if i < 24 else 0):
            return False
    if sealed and get_segment_head(p, SEGMENT_HEAD_BYTES, &named, &salt) and (p[60] or p[61] or p[62] or p[63]):
        return False                             # both halves were written
    return True


cdef Scan nothing(Segment s, uint64_t last_seq):
    """The scan of a segment that has only a head."""
    cdef Scan found = Scan()
    found.last_seq = last_seq
    found.missing = []
    found.damaged = []
    found.notes = []
    found.broken = []
    found.good_end = SEGMENT_HEAD_BYTES
    return found


cdef Scan guessed(Log log, Segment s):
    # Without the salt of the segment no record can be checked. The heads of its records still tell which sequences were given, and
    # these must not be used again. Lengths cannot be trusted either, so the scan looks for heads inside records, too. A head inside a
    # record counts only up to the sequence that there is room for, because it may be part of a payload.
    cdef bytes data = read_all(log, s)
    cdef const char* p = PyBytes_AS_STRING(data)
    cdef size_t at = 0, size = PyBytes_GET_SIZE(data)
    cdef Head head
    cdef uint64_t last = s.first - 1
    cdef Scan found
    cdef size_t heads_end = min(<size_t>s.begins, size), after = 0
    while at + RECORD_EXTRA_BYTES <= size:
        if not plausible(p + at, size - at, &head) or not s.first <= head.seq <= last + GAP_MAX or (
                at < heads_end and not last < head.seq <= last + 1 + (at - after) // RECORD_EXTRA_BYTES):
            at += 1
            continue
        last = max(last, head.seq)
        heads_end = max(heads_end, at + min(<size_t>head.length, size - at))
        at += RECORD_HEAD_BYTES
        after = at
    found = nothing(s, last)
    found.heads_end = heads_end
    return found
