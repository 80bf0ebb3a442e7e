"""Recovery: opening a log from its files.

A sealed segment is read from its index file when that is valid; else it is scanned (core/log/scan) and gets a new index file. The
last segment is scanned unless the log was closed cleanly. Then all removals are applied; their order does not matter, because a
sequence is never used twice. Recovery deletes nothing:

    damaged bytes                    stay in the file; their messages are reported in `lost`
    torn end of the last segment     copied to `<name>.torn-<n>` and cut; the same for a group of messages at the end without its last
                                     message (core/stream/atomic_batch)
    destroyed head                   rebuilt in memory from the index file, or from the records (core/log/checksum_repair); on the disk,
                                     too, if it was only not written as a whole
    file that is not part of the log (a copy under another name, a file that overlaps others) renamed to `<name>.seg.aside-<n>`
    missing segment, or end of one   the sequences that no removal and no skip names are lost; the index file says which of them were
                                     messages

So each sequence up to the last one is a message, or a removal or a skip names it, or it is lost. Each opening reports the lost ones.
"""
from errno import EIO
from functools import partial

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset
from pelton.core.base.disk cimport Disk
from pelton.core.log.checksum_repair cimport find_salt
from pelton.core.log.compressed_segment cimport ends_packed, open_packed
from pelton.core.log.counts cimport count_bytes, count_entries, merge_rows, recount
from pelton.core.log.recovery_writes cimport complete_head, restart, set_aside, start_found, sync_found, sync_names, write_found
from pelton.core.log.encryption cimport aead_of
from pelton.core.log.disk_condition cimport FAILED, TAKES
from pelton.core.log.index_file cimport Evidence, read_evidence, read_ranges, read_index_file, write_index_file
from pelton.core.log.log cimport Log
from pelton.core.log.losses cimport find_orphans, ranges_said, tell_lost
from pelton.core.log.record cimport (
    SEALED_EXTRA_BYTES, SEALED_HEAD_BYTES, SEGMENT_HEAD_BYTES, Range, Ranges, get_sealed_half, get_segment_head, is_packed_head,
    is_sealed_head, mend_segment_head, ranges_free,
)
from pelton.core.log.scan cimport Opened, Scan, guessed, never_written, read_all, scan
from pelton.core.log.segment cimport Segment, is_live, new_segment
from pelton.core.log.tail_recovery cimport begin_anew, mend_tail, settle

from pelton.core.log.disk_recovery import reopened
from pelton.core.log.files import UNSURE
from pelton.core.log.losses import is_segment_name


def open_log(folder: str | None, disk: Disk | None = None, *, segment_bytes: int = 16 * 1024 * 1024, first_seq: int = 1,
             create: bool = True, cipher: object = None, numbered: bool = False, synced: bool = False) -> Log:
    """Open (and recover) the log in a folder, or make a new one; folder None: a new log in memory. See the stub."""
    cdef LogOpening opening
    if folder is None:
        return Log(segment_bytes=segment_bytes, first_seq=first_seq)
    opening = LogOpening(folder, disk, segment_bytes=segment_bytes, first_seq=first_seq, create=create, cipher=cipher, numbered=numbered,
                         patient=False, synced=synced)
    while opening.step():
        pass
    return opening.log


def begin_log(folder: str, disk: Disk, before: object, *, segment_bytes: int = 16 * 1024 * 1024, first_seq: int = 1,
              cipher: object = None) -> Log:
    """Begin a new log whose files are made by its first write. See the stub."""
    cdef Log log = Log.__new__(Log)
    log.prepare(folder, disk, segment_bytes, first_seq, cipher)
    log.segments.rebuild_with(Rebuild(log))
    log.deferred.add_first(before)
    log.deferred.add_first(partial(make_folder, log))
    start_found(log, first_seq)
    skipped_before(log, first_seq)
    log.opened()
    return log


cdef class LogOpening:
    """The opening of one log in steps of about one segment each. See the stub."""

    def __init__(self, folder: str, disk: Disk | None = None, *, segment_bytes: int = 16 * 1024 * 1024, first_seq: int = 1,
                 create: bool = True, cipher: object = None, numbered: bool = False, patient: bool = True, synced: bool = False) -> None:
        """See the stub."""
        self.log = Log.__new__(Log)
        self.log.prepare(folder, Disk() if disk is None else disk, segment_bytes, first_seq, cipher)
        self.steps = opened_in_steps(self, create, numbered, patient, synced)

    def step(self) -> bool:
        """Open about one more segment; whether there is more to do."""
        if self.steps is None:
            return False
        for _ in self.steps:
            return True
        self.steps = None
        self.log.opened()
        if self.unsure is not None or self.log.state.condition != TAKES and (self.log.state.condition == FAILED or self.log.files.unsynced.names):
            self.log.marks.doubt(self.synced_seq)
        if self.unsure is not None and self.log.disk.exists(f"{self.log.folder}/{UNSURE}"):
            reopened(self.log, self.unsure)
        return False

    def progress(self) -> tuple[int, int]:
        """(segments done, segments in all)."""
        return len(self.log.segments.items), self.segments_found

    def abandon(self) -> None:
        """End the opening; the caller must not use the log afterwards."""
        cdef Segment s
        self.steps = None
        self.log.state.close()
        for s in self.log.segments.items:
            self.log.disk.close_file(s)


def opened_in_steps(LogOpening opening, create: bool, numbered: bool, patient: bool, synced: bool):
    """Fill a new Log object from its folder, or start an empty log there. A generator: each step looks at about one segment.

    Writes that the disk refuses are deferred (core/log/recovery_writes). But without `patient`, a new log that cannot be made is an OSError.
    `synced`: the log was closed cleanly, so its files and their names are on the disk.
    """
    cdef Log log = opening.log
    cdef list names = log.disk.list_dir(log.folder)
    cdef list found = [n for n in names if is_segment_name(n)]
    cdef list opened = []
    cdef list doubted
    cdef Py_ssize_t k
    cdef Opened o
    cdef Segment last
    cdef list orphans = []
    log.segments.rebuild_with(Rebuild(log))
    opening.segments_found = len(found)
    if UNSURE in names:
        read_unsure(opening)
    for k in range(len(found)):
        open_next(log, opened, found[k], k == len(found) - 1, numbered, synced)
        yield
    doubted = list(log.files.unsynced.sealed)
    if not opened:
        find_folder(log, create, patient)
    orphans = find_orphans(log, names, opened)
    if not opened:
        start_empty(log, names, orphans, patient)
        return
    if not synced:
        sync_names(log)
    log.span.given_before((<Opened>opened[0]).segment.first)
    for o in opened:
        note_last(log, o)
    for e in orphans:
        log.span.raise_last(max((<Evidence>e[1]).last_seq, e[0] + (<Evidence>e[1]).count - 1), 0)
    o = <Opened>opened[len(opened) - 1]
    last = o.segment
    log.files.found_active(last)
    log.subjects_table.note_seen(last)          # appends go to this segment
    apply_removals(log, opened, orphans)
    if o.index_file is not None:
        log.segments.need(last)
        read_ranges(log.segments, last, &last.removes)
    tell_lost(log, opened, orphans)
    mend_tail(log, o, numbered)
    for o in opened:
        if o.segment is not last:
            settle(log, o)
    for o in opened:
        count(log, o)
        yield
    if doubted:
        join_doubts(opening, doubted)
    end_opening(opening, last, doubted, (<Opened>opened[len(opened) - 1]).evidence)


cdef int read_unsure(LogOpening opening) except -1:
    """Read the file that an earlier process left whose log was FAILED. When it cannot be read, all segments are doubtful."""
    cdef bytes line
    opening.unsure = set()
    try:
        lines = opening.log.disk.read_file(f"{opening.log.folder}/{UNSURE}").split(b"\n")
    except OSError:
        return 0
    for line in lines:
        if line.isdigit():
            opening.unsure.add(int(line))
        elif line.startswith(b"synced ") and line[7:].isdigit():
            opening.synced_seq = int(line[7:])
    return 0


cdef int join_doubts(LogOpening opening, list doubted) except -1:
    """Add the segments in doubt since an earlier process to those whose sync has failed now: the file `unsure` is written anew."""
    if opening.unsure is None:
        opening.unsure = {(<Segment>s).first for s in doubted}
    else:
        doubted += [s for s in opening.log.segments.items if s not in doubted and (not opening.unsure or (<Segment>s).first in opening.unsure)]
        opening.unsure.update([(<Segment>s).first for s in doubted])
    return 0


cdef int end_opening(LogOpening opening, Segment last, list doubted, Evidence evidence) except -1:
    """Write what was repaired, when all segments are counted. `last`: the newest segment that was found; `evidence`: from its index file."""
    cdef Log log = opening.log
    (<Rebuild>log.segments.rebuild).opened = True
    if (<Rebuild>log.segments.rebuild).short:
        (<Rebuild>log.segments.rebuild).count_anew(log)
    log.end_counting()
    if log.files.active is last and not last.has_index and evidence is not None:
        write_found(log, doubted, opening.synced_seq, log.segments.path(last, ".idx"))     # the index file is out of date
    else:
        write_found(log, doubted, opening.synced_seq, None)
    if log.files.active is last:
        go_on(log)
    return 0


cdef int go_on(Log log) except -1:
    """Make an encrypted log continue in a new segment; when the disk refuses, before the next append."""
    if log.cipher is None or not (log.files.active.key_number or log.cipher.number):
        return 0
    log.state.want_new_segment(True)
    try:
        if log.state.condition == TAKES:
            log.files.resume()
    except OSError as error:
        log.state.full(error.errno or EIO)
    return 0


cdef int find_folder(Log log, bint create, bint patient) except -1:
    """Make sure that the folder of a log without segments exists."""
    if log.disk.exists(log.folder):
        log.files.unsynced.folder_found()                   # the process that made it may have ended before it synced the name
        return 0
    if not create:
        raise FileNotFoundError(2, "no such log", log.folder)
    try:
        make_folder(log)
    except OSError as error:
        if not patient:
            raise
        log.defer(error, partial(make_folder, log))
    return 0


def make_folder(Log log) -> None:
    """Make the folder of a log. OSError."""
    log.disk.make_dir_durable(log.folder.rpartition("/")[0] or ".")
    log.disk.make_dir(log.folder)
    log.files.unsynced.folder_found()


cdef int start_empty(Log log, list names, list orphans, bint patient) except -1:
    cdef uint64_t first = log.span.first_seq, end
    for name in names:
        if name[20:].startswith(".seg.aside-") and is_segment_name(name[:24]):
            first = max(first, int(name[:20]))         # a process ended before it had made the file that replaces this one
    for at, evidence in orphans:
        end = max(at + (<Evidence>evidence).count, (<Evidence>evidence).last_seq + 1)
        first = max(first, end)
        log.removals.lost.extend((low, high - low, "the segment file is missing") for low, high in (<Evidence>evidence).live)
    log.span.begin_at(first)
    if patient:
        start_found(log, first)
    else:
        log.files.start_segment(first)
    if orphans:
        begin_anew(log)
    else:
        skipped_before(log, first)
    try:
        log.files.write()
    except OSError as error:
        if not patient:
            raise
        log.defer(error, None)
    return 0


cdef int skipped_before(Log log, uint64_t first) except -1:
    if first > 1:
        log.removals.add(1, first - 1)                 # these sequences never had a message
    return 0


cdef int open_next(Log log, list opened, str name, bint is_last, bint numbered, bint synced) except -1:
    """Open one more file: add it to `opened`, or rename it if it is not part of the log.

    In a `numbered` log, neither is the newest file without a whole head, if there is a gap before it: the messages of both come again.
    """
    cdef uint64_t first = int(name[:20])
    cdef Segment before
    cdef bint again = False
    cdef Opened o = None
    if opened:
        before = (<Opened>opened[len(opened) - 1]).segment
        again = numbered and first > before.first + before.count
    if not opened or first >= before.first + before.count or gives_way(<Opened>opened[len(opened) - 1], first):
        o = open_segment(log, first, is_last, again, synced)
    if o is None:
        set_aside(log, name)
    else:
        opened.append(o)
    return 0


cdef bint gives_way(Opened o, uint64_t first) except -1:
    """Whether a segment with damage has no message from `first` on, where the next file begins; it ends before `first` then.

    Its damaged bytes may be records of sequences that were lost in a power cut and given again, to messages of the next file.
    """
    cdef Segment s = o.segment
    cdef uint32_t count = <uint32_t>(first - s.first)
    if first <= s.first or o.scan is None or not o.scan.damaged or s.next_live(count) < s.count:
        return False
    s.cut_to(count)
    o.scan.stop_before(first, count)
    return True


cdef Opened open_segment(Log log, uint64_t first, bint is_last, bint again, bint synced):
    """Open one segment; None when the file is not part of the log. `again`: nor is a newest one that was not written as a whole."""
    cdef Opened o = Opened()
    cdef Segment s = open_file(log, first, synced)
    cdef char head[SEALED_HEAD_BYTES]
    cdef uint64_t named = 0
    cdef size_t got
    cdef bint good, torn = False
    o.hold(s)
    memset(head, 0, SEALED_HEAD_BYTES)
    got = log.disk.read_at(log.segments.handle(s), head, SEALED_HEAD_BYTES, 0)
    good = read_head(log, o, head, got, &named)
    if good and named != first:
        return left_out(log, s)
    if not good:
        s.use_salt(0)
        o.take_evidence(read_evidence(log.segments, s))
        if is_last and got < s.begins and o.evidence is None:
            if again:
                return left_out(log, s)
            o.begin_unwritten()
            restart(log, s)
            return o
        good = torn = o.mend(find_head(log, o))
        if not good and is_last and never_written(head, first):
            # Records behind the head reached the disk, but not the whole head: no write of these records was acknowledged.
            if again:
                return left_out(log, s)
            o.begin_unwritten()
            o.take_scan(guessed(log, s))
            restart(log, s)
            o.scan.end_at(s.begins)
            return o
    if good:
        read_messages(log, o)
        if torn and s.live and s.packed is None:
            complete_head(log, s, head)
    else:
        give_up_records(log, o)
    return o


cdef Opened left_out(Log log, Segment s):
    """Take the newest segment out of the list again."""
    log.disk.close_file(s)
    log.segments.items.pop()
    return None


cdef Segment open_file(Log log, uint64_t first, bint synced):
    """Add a sealed segment to the end of the list, and sync its file if it may not be `synced`."""
    cdef Segment s = new_segment(first)
    log.segments.add(s)
    s.resize(log.disk.size(log.segments.handle(s)))
    if not synced:
        sync_found(log, s)
    s.set_synced(s.size)
    s.seal(True)
    return s


cdef bint read_head(Log log, Opened o, char* head, size_t got, uint64_t* named) except -1:
    """Whether the first `got` bytes are the head of a segment, sound or with one flipped bit; then the segment has its salt, form and key."""
    cdef Segment s = o.segment
    cdef bint good = get_segment_head(head, got, named, &s.salt)
    if not good and got >= SEGMENT_HEAD_BYTES:
        good = o.mend(mend_segment_head(head, named, &s.salt))
    if good and named[0] == s.first and is_sealed_head(head):
        s.use_form(SEALED_HEAD_BYTES, s.extra)
        good = open_sealed(log, s, head, got)
    if good and is_packed_head(head) and s.key_number:
        s.use_blocks(open_packed(log.disk, log.segments.handle(s), log.cipher, log.segments.path(s, ".seg")))
        s.use_key(s.key_number, None)
        s.set_synced(s.packed.size)
    elif good and named[0] == s.first and is_packed_head(head) or not good and ends_packed(log.disk, log.segments.handle(s)):
        s.use_blocks(open_packed(log.disk, log.segments.handle(s), None, log.segments.path(s, ".seg")))
        s.set_synced(s.packed.size)
        if not good and s.packed.read_at(log.disk, log.segments.handle(s), head, SEGMENT_HEAD_BYTES, 0) == SEGMENT_HEAD_BYTES:
            good = o.mend(get_segment_head(head, SEGMENT_HEAD_BYTES, named, &s.salt))
    return good


cdef int read_messages(Log log, Opened o) except -1:
    """Read a segment with a known salt from its index file, or from its records."""
    cdef Segment s = o.segment
    if o.mended:
        s.mark_damaged(True)
        log.notes.append(f"the head of segment {s.first} is damaged; its content is known from other records")
    else:
        o.take_index_file(read_index_file(log.segments, log.subjects_table, s))
    if o.index_file is None:
        if o.evidence is None:
            o.take_evidence(read_evidence(log.segments, s))
        o.take_scan(scan(log, s))
        log.notes.extend(o.scan.notes)
        s.mark_damaged(s.damaged or len(o.scan.damaged) > 0 or len(o.scan.notes) > 0)
    if s.packed is not None and s.packed.mended:
        s.mark_damaged(True)
        log.notes.append(f"corrected one flipped bit in a compressed block of segment {s.first}, in memory; the file keeps it until a repair of the store")
    return 0


cdef int give_up_records(Log log, Opened o) except -1:
    """Give up the records of a segment with an unknown salt: none of them can be checked."""
    cdef Segment s = o.segment
    s.mark_damaged(True)
    o.lose_head(guessed(log, s))
    o.scan.nothing_good(s.size)
    log.notes.append(f"the head of segment {s.first} is destroyed; no record of the segment can be verified without it")
    return 0


cdef bint open_sealed(Log log, Segment s, char* head, size_t got) except -1:
    """Take the key of an encrypted segment from its head; False when the second half of the head is damaged."""
    s.use_form(s.begins, SEALED_EXTRA_BYTES)
    if got < SEALED_HEAD_BYTES or not get_sealed_half(head, &s.key_number):
        return False
    s.use_head(PyBytes_FromStringAndSize(head, SEALED_HEAD_BYTES))
    s.use_key(s.key_number, aead_of(log.cipher, head, log.segments.path(s, ".seg")))
    return True


cdef bint find_head(Log log, Opened o) except -1:
    """Find the salt of a segment without a head, in its index file or from its records (core/log/checksum_repair); False: not found."""
    cdef Segment s = o.segment
    cdef bytes data
    cdef int places = 0
    if o.evidence is not None:
        s.use_salt(o.evidence.salt)
        return True
    data = read_all(log, s)
    if s.packed is not None and s.packed.unsure:
        return False                         # the damage of a block may repeat in each of its records
    s.use_salt(find_salt(PyBytes_AS_STRING(data), min(<size_t>SEGMENT_HEAD_BYTES, <size_t>len(data)), len(data), &places))
    return places > 1


# --- putting the segments together ---------------------------------------------------------------

cdef int note_last(Log log, Opened o) except -1:
    cdef Segment s = o.segment
    cdef uint64_t last = s.first + s.count - 1
    if o.index_file is not None and o.index_file.last_seq > last:
        last = o.index_file.last_seq
    if o.scan is not None and o.scan.last_seq > last:
        last = o.scan.last_seq
    if o.evidence is not None:
        last = max(last, o.evidence.last_seq, s.first + o.evidence.count - 1)
        log.span.raise_last(last, o.evidence.last_ts)
    log.span.raise_last(last, s.last_ts)
    if o.scan is not None:
        log.span.raise_last(last, o.scan.last_ts)
    return 0


cdef int apply_removals(Log log, list opened, list orphans) except -1:
    cdef Opened o
    cdef Segment holder
    cdef Ranges one
    cdef Range r
    cdef size_t k
    cdef uint64_t below = 0
    for _, evidence in orphans:
        below = max(below, (<Evidence>evidence).removed_below)
        for r.first, r.count in (<Evidence>evidence).ranges:
            apply_range(log, opened, None, r)
    for o in opened:
        holder = o.segment
        memset(&one, 0, sizeof(Ranges))
        try:
            ranges_said(o, &one)
            for k in range(one.count):
                apply_range(log, opened, holder, one.items[k])
        finally:
            ranges_free(&one)
        below = max(below, holder.removed_below)
        if o.evidence is not None:
            below = max(below, o.evidence.removed_below)
            for low, high in o.evidence.gone:
                remove_from(o, low - holder.first, high - holder.first)
    for o in opened:
        if o.segment.first < below:
            remove_from(o, 0, below - o.segment.first)
    return 0


cdef int apply_range(Log log, list opened, Segment holder, Range r) except -1:
    cdef Py_ssize_t at = log.segments.position(r.first)
    cdef Segment s
    cdef Opened o
    cdef uint64_t end = r.first + r.count
    if at:
        s = (<Opened>opened[at - 1]).segment
        if holder is not None and s.first + s.count <= r.first and s is not holder:
            s.told_by(holder.first)
    while at < len(opened):
        o = <Opened>opened[at]
        s = o.segment
        at += 1
        if s.first >= end:
            break
        if holder is not None and s is not holder:
            s.told_by(holder.first)
        remove_from(o, r.first - s.first if r.first > s.first else 0, end - s.first)
    return 0


cdef int remove_from(Opened o, uint64_t i, uint64_t stop) except -1:
    cdef Segment s = o.segment
    if stop > s.count:
        stop = s.count
    if s.live == 0:
        return 0
    while i < stop:
        if is_live(s, i):
            s.lose(<uint32_t>i)
            s.index_outdated()
            o.touch()
        i += 1
    return 0


# --- counting ---------------------------------------------------------------------------------------

cdef int count(Log log, Opened o) except -1:
    # Subjects, messages and bytes of a segment; called in order of the sequences.
    cdef Segment s = o.segment
    cdef bint indexed = o.index_file is not None
    if s.first == log.files.active.first and s is not log.files.active:
        return 0          # the file was renamed, and the active segment has its name
    if s.live == 0:
        s.set_live_bytes(0)
    elif o.index_file is not None and not o.touched and s.first not in (<Rebuild>log.segments.rebuild).remade:
        merge_rows(log.subjects_table, s, o.index_file.rows)
        o.take_index_file(None)
    else:
        count_entries(log, s)
    log.count_segment(s)
    if not indexed and s is not log.files.active and s.live and s not in log.files.unsynced.sealed:
        log.files.write_index(s)
    if s.live == 0 and s is not log.files.active:
        if s.damaged and lost_in(log, s):
            return 0      # none of its records can be read, but no removal names them: the segment stays
        s.mark_damaged(False)
        log.retire(s)
    log.segments.make_room(s)
    return 0


cdef bint lost_in(Log log, Segment s) except -1:
    for first, _, _ in log.removals.lost:
        if s.first <= first <= s.first + s.count:
            return True
    return False


# --- while the log is open: an index file that is not valid ---------------------------------------

cdef class Rebuild:
    """SegmentList.rebuild: reads the entries of a segment from its records when its index file is not valid."""
    cdef object log          # a weak reference, so that a log dropped without close() is freed at once
    cdef bint opened         # all segments are counted
    cdef set remade          # first sequences of the segments that were rebuilt during the opening: their index files are not used any more
    cdef bint short          # messages of a segment that may be counted already turned out to be missing
    cdef bint counting       # a recount is running: it reads the entries of all segments, and counts no missing message

    def __init__(self, Log log) -> None:
        import weakref
        self.log = weakref.ref(log)
        self.remade = set()

    cdef int count_anew(self, Log log) except -1:
        if not self.counting:
            self.counting = True
            try:
                recount(log)
                self.short = False
            finally:
                self.counting = False
        return 0

    def __call__(self, Segment s) -> None:
        """Fill s.entries from the records, and write a new index file."""
        cdef Log log = self.log()
        cdef Segment fresh = Segment()
        cdef Scan found
        cdef uint32_t i
        fresh.copy_form(s)
        log.segments.number(fresh)
        found = scan(log, fresh)
        if fresh.count < s.count:
            fresh.push_holes(s.count - fresh.count)
        s.take_entries(fresh)
        if self.opened:
            # The segment names the subjects that its new entries name.
            s.swap_subjects(fresh)
            log.subjects_table.leave(fresh)
        else:
            take_subjects(log, s, fresh)
            self.remade.add(s.first)
        if found.damaged or s.damaged:
            say_again(log, s)
        s.take_removes(&fresh.removes)
        for i in range(s.count):
            if is_live(s, i) and s.entries[i].offset == 0:
                log.removals.lost.append((s.first + i, 1, "checksum mismatch"))
                s.mark_damaged(True)
                s.lose(i)
                self.short = True
        # During an opening, removals newer than the index file are set in the bitmap but not counted yet.
        count_bytes(log, s)
        if self.short and self.opened:
            self.count_anew(log)
        if not s.damaged and s.removed_mark <= log.marks.synced_mark:
            write_index_file(log.segments, log.subjects_table, s, log.span.last_seq)


cdef int say_again(Log log, Segment s) except -1:
    """Record the removals of a segment again: its index file, which is not valid any more, may be the only place that has them."""
    cdef list lost = log.removals.lost_within(s.first, s.first + s.count)
    cdef uint64_t end = log.span.last_seq + 1
    cdef uint32_t i = 0, live
    cdef Ranges said
    cdef size_t k
    while i < s.count:                           # an index file exists only if no sequence of the segment was lost
        live = s.next_live(i) if s.live else s.count
        log.removals.say_gone(s.first + i, s.first + live, lost)
        i = live + 1
    memset(&said, 0, sizeof(Ranges))
    try:
        read_ranges(log.segments, s, &said)
        for k in range(said.count):
            if said.items[k].first < end:
                log.removals.add(said.items[k].first, min(said.items[k].count, end - said.items[k].first))
    finally:
        ranges_free(&said)
    if s.removed_below > 1:
        log.removals.add(1, min(s.removed_below, end) - 1)
    return 0


cdef int take_subjects(Log log, Segment s, Segment fresh) except -1:
    """Keep the subjects that the index file named (the subject table counts this segment as their holder), and add those that only
    the records name.
    """
    cdef uint32_t k
    cdef set known = {s.subjects[k] for k in range(s.subject_count)}
    for k in range(fresh.subject_count):
        if fresh.subjects[k] in known:
            log.subjects_table.leave_one(fresh.subjects[k])
        else:
            s.add_subject(fresh.subjects[k])
    fresh.forget_subjects()
    return 0
