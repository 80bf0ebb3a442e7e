"""Maintenance of a log: purge, erase, compaction, compression, close.

Compaction rewrites a sealed segment of which less than half is live. The new file has the same name and sequences, a new salt, no
removed messages, and the REMOVE ranges that name sequences of older segments in the log. The log writes the new file beside the old
one, syncs it and renames it over the old file, so that one whole version exists at any time.

Compression, if the owner wants it, rewrites a sealed segment in the same way (core/log/compressed_segment draws the file). Offsets and
salt stay the same, and so does the index. If the owner wants compression, a compacted segment is compressed at the same time.

Knows nothing of the protocol.
"""
import errno
from contextlib import suppress

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve
from pelton.core.log.compressed_segment cimport PACKED_BLOCK_BYTES, Packed, open_packed, pack
from pelton.core.log.disk_recovery cimport take_handle, write_beside
from pelton.core.log.encryption cimport plain_image, seal_records
from pelton.core.log.disk_condition cimport CLOSED, FAILED, FULL, TAKES
from pelton.core.log.index_file cimport doubt_index_file, read_ranges, write_index_file
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport (
    ERASED, MEMBER, MORE, RECORD_HEAD_BYTES, SEALED_EXTRA_BYTES, SEALED_HEAD_BYTES, TAGGED, Head, Ranges,
    is_sealed_head, put_ranges, ranges_add, ranges_free, ranges_sort, seal_record,
)
from pelton.core.log.segment cimport HAS_HEADERS, SIZE_MASK, Entry, Segment, is_live, new_segment
from pelton.core.log.segment_head cimport put_head

from pelton.core.log.recovery_writes import do_late
from pelton.core.log.disk_recovery import mend
from pelton.core.log.lost import INCOMPLETE

cdef enum:
    COMPACT_MIN_BYTES = 1024         # a smaller segment is not rewritten
    COMPRESS_MAX_BYTES = 67108864    # a larger segment (with a large group) is not compressed: it would take too long in one call
    GIVE_BACK = 8192                 # ids of removed segments that each call of maintain() looks at
    STATE_AT = 5                     # offset of Head.state
    EMPTY_MAX_BYTES = 1048576        # a larger active segment without live messages is replaced by a new one


# --- purge and erase -----------------------------------------------------------------------------

cdef uint64_t end_of_group(Log log, uint64_t end) except 0:
    """The end of a purge below `end`: it includes the rest of a group that was not whole and that it cuts in two.

    Recovery would find no hole in the group any more, because the purge names the hole, and would take the rest for messages.
    """
    for first, count, why in sorted(log.removals.lost):
        if why == INCOMPLETE and first <= end < first + count:
            end = first + count
    return end


def purge(Log log, below: int | None = None) -> int:
    """Remove every message, or every message below a sequence; return how many. The log records one range."""
    cdef uint64_t end = log.span.last_seq + 1 if below is None else min(max(below, 1), log.span.last_seq + 1)
    cdef uint64_t before = log.msgs, stop
    cdef Segment s
    cdef uint32_t i
    if log.state.condition == CLOSED:
        log.files.refuse()
    if not log.memory and (log.removals.lost or (log.msgs and end > log.span.first_seq)):
        # The purge covers lost sequences, too: `lost` does not report them any more.
        begin = min(log.files.removed_below(), log.span.first_seq)
        if end > begin:
            stop = end_of_group(log, end)
            log.removals.add(begin, stop - begin)
            log.removals.purged(stop)
    if log.msgs == 0 or end <= log.span.first_seq:
        return 0
    if end > log.span.last_seq:
        purge_all(log)
        if not log.memory and log.state.condition < FAILED and log.files.active.size > EMPTY_MAX_BYTES:
            try:
                log.files.roll(log.span.last_seq + 1)
            except OSError:
                return before         # the write at the end of the turn raises the error, and maintain() tries again
        return before
    if end > log.files.active.first and log.msgs - log.files.active.live > log.subjects_table.count:
        purge_older(log, end)
        return before - log.msgs
    for s in list(log.segments.items):
        if s.first >= end:
            break
        if s.live == 0:
            continue
        log.segments.need(s)
        i = s.next_live(0)
        while i < s.count and s.first + i < end:
            log.drop(s, i)
            i = s.next_live(i + 1)
    return before - log.msgs


cdef int purge_all(Log log) except -1:
    cdef Segment s
    cdef uint32_t i
    log.subjects_table.reset()
    for s in list(log.segments.items):
        if s is not log.files.active:
            s.clear_live()
            log.retire(s)
    s = log.files.active
    for i in range(s.count):
        s.set_dead(i)
    s.clear_live()
    log.count_anew()
    if log.state.condition == FULL:
        forget_unwritten(log, s)
    return 0


cdef int purge_older(Log log, uint64_t end) except -1:
    # Retires all segments before the active one without reading their entries, then computes the counts again.
    cdef Segment s, active = log.files.active
    cdef Entry* e
    cdef uint32_t i
    log.subjects_table.reset()
    for s in list(log.segments.items):
        if s is not active:
            s.clear_live()
            s.index_outdated()
            log.retire(s)
    i = active.next_live(0)
    while i < active.count:
        e = &active.entries[i]
        if active.first + i < end:
            active.drop(i, (e.size & SIZE_MASK) + log.size_extra + (log.header_extra if e.size & HAS_HEADERS else 0), active.removed_mark)
        else:
            log.subjects_table.appended(e.subject, active.first + i)
        i = active.next_live(i + 1)
    return log.count_anew()


cdef int forget_unwritten(Log log, Segment s) except -1:
    # The disk is full and all messages are removed: drops the unwritten messages, and what a failed write left in the file, to make
    # room for the removal. A skip record keeps that their sequences were given.
    cdef size_t keep = log.tail.written if log.tail.base + log.tail.written else s.begins    # keeps the head if nothing was written yet
    if log.tail.out.len <= keep:
        return 0
    log.tail.cut_to(keep)
    s.resize(log.tail.base + keep)
    with suppress(FileNotFoundError):            # the disk has refused to make the file
        log.disk.truncate(log.segments.handle(s), log.tail.base + log.tail.written)
    return log.tail.skip(s, 0, log.span.last_seq, False)


def delete(Log log, seq: int, erase: bool = False) -> bool:
    """Remove one message; with erase, also overwrite its bytes with zeros, durably, before this returns. False: no live message."""
    cdef Segment s
    if log.state.condition == CLOSED:
        log.files.refuse()
    if seq < 1 or seq > log.span.last_seq:
        return False
    if not erase:
        return bool(log.remove(seq))
    s = log.segments.find(seq)
    if s is not None:
        log.segments.need(s)
    if s is None or not is_live(s, seq - s.first):
        return False
    # Order: the removal is synced, then the bytes are overwritten, then the index drops the message (and may retire the segment).
    while s.packed is not None and log.cipher is not None and s.key_number != log.cipher.number:
        compact(log, s, True)                # overwrite_packed() would keep the old form of the segment
    # From here on the message is removed, also after an error of the disk.
    log.segments.need(s)
    try:
        if not log.memory:
            log.removals.add(seq, 1)
            log.files.sync()
        log.segments.need(s)
        overwrite(log, s, <uint32_t>(seq - s.first))
    finally:
        log.segments.need(s)
        log.drop(s, <uint32_t>(seq - s.first))
    return True


cdef int overwrite(Log log, Segment s, uint32_t i) except -1:
    cdef uint32_t offset = s.entries[i].offset
    cdef uint32_t length = (s.entries[i].size & SIZE_MASK) + s.extra
    cdef const char* p = log.record_at(s, i)
    cdef Head head
    cdef bytes data
    cdef char* q
    cdef size_t body
    if p == NULL:
        # The record is damaged and the place of its parts is not known: overwrite everything behind the head.
        body = RECORD_HEAD_BYTES
        data = bytes(length)
        q = PyBytes_AS_STRING(data)
    else:
        data = PyBytes_FromStringAndSize(p, length)
        q = PyBytes_AS_STRING(data)
        memcpy(&head, q, RECORD_HEAD_BYTES)
        head.state |= ERASED
        if head.state & TAGGED:
            head.subject_len = 0             # the subject must not be plain, and the nonce must not encrypt twice
            head.hlen = 0
        body = RECORD_HEAD_BYTES + head.subject_len
        memcpy(q, &head, RECORD_HEAD_BYTES)
        memset(q + body, 0, length - body)
        seal_record(q, length, s.salt)
    if log.memory:
        memcpy(s.memory.data + offset, q, length)
        return 0
    if s is log.files.active and offset >= log.tail.base:
        memcpy(log.tail.out.data + (offset - log.tail.base), q, length)
    log.pages.forget(s.serial)
    if s.packed is not None:
        return overwrite_packed(log, s, q, length, offset)
    if log.files.unsynced.names:
        log.files.sync_folder()                    # otherwise a power cut may bring back an earlier file of this segment
    log.disk.write_at(log.segments.handle(s), q, length, offset)
    log.disk.sync(log.segments.handle(s))
    return 0


cdef int overwrite_packed(Log log, Segment s, const char* q, size_t length, uint64_t offset) except -1:
    # Writes a new file without the bytes, then overwrites their blocks in the old file, which has no name any more.
    cdef bytes data = all_of(log, s)
    cdef Packed was = s.packed
    cdef uint32_t k = <uint32_t>(offset // PACKED_BLOCK_BYTES)
    cdef uint32_t end = <uint32_t>((offset + length - 1) // PACKED_BLOCK_BYTES) + 1
    cdef int old
    memcpy(PyBytes_AS_STRING(data) + offset, q, length)
    old = log.disk.open(log.segments.path(s, ".seg"), False)
    try:
        write_segment(log, s, data, True, None)
        log.files.sync_folder()                    # from now on no power cut can bring back the old file
        zeros = bytes(was.starts[end] - was.starts[k])
        log.disk.write_at(old, PyBytes_AS_STRING(zeros), len(zeros), was.starts[k])
        log.disk.sync(old)
    finally:
        log.disk.close(old)
    return 0


cdef bytes all_of(Log log, Segment s):
    cdef bytes data = PyBytes_FromStringAndSize(NULL, s.size)
    if log.segments.read_at(s, PyBytes_AS_STRING(data), s.size, 0) != <int64_t>s.size:
        raise OSError(errno.EIO, "a segment is shorter than it was", log.segments.path(s, ".seg"))
    return data


cdef bint write_segment(Log log, Segment s, bytes data, bint compress, Segment fresh) except -1:
    # Replaces the file of a sealed segment by a new one with these bytes, synced; returns whether it is compressed. The messages in
    # `data` are plain; the file is encrypted if the head says so. `fresh`: the head is new, and this is its form. The caller syncs the
    # folder: until then a power cut leaves the old or the new file, each of them whole. After an OSError the old file is in place.
    cdef str path = log.segments.path(s, ".seg")
    cdef bytes packed
    cdef Packed blocks = None
    cdef int handle
    cdef object cipher = log.cipher if is_sealed_head(PyBytes_AS_STRING(data)) else None
    cdef object aead = s.aead if fresh is None else fresh.aead
    if compress:
        packed = pack(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), cipher)
        compress = PyBytes_GET_SIZE(packed) < PyBytes_GET_SIZE(data) - PyBytes_GET_SIZE(data) // 16 or (cipher is not None and aead is None)
        s.compressing_helps(compress)
    if cipher is not None and not compress:
        data = sealed_image(aead, data, s.salt if fresh is None else fresh.salt)
    handle = write_beside(log.disk, path, packed if compress else data)
    try:
        if compress:
            blocks = open_packed(log.disk, handle, cipher, path)
        log.disk.rename(path + ".tmp", path)
    except OSError:
        with suppress(OSError):
            log.disk.close(handle)
        with suppress(OSError):
            log.disk.unlink(path + ".tmp")
        raise
    take_handle(log, s, handle)
    log.pages.forget(s.serial)               # read windows hold ciphertext, but compressed blocks give plain bytes
    s.use_blocks(blocks)
    s.use_key(0 if cipher is None else cipher.number, None if compress else aead)
    s.synced_all()
    log.files.unsynced.name_made()
    return compress


cdef bytes sealed_image(object aead, bytes data, uint32_t salt):
    cdef Out out
    cdef const char* p = PyBytes_AS_STRING(data)
    memset(&out, 0, sizeof(Out))
    try:
        out_put(&out, p, SEALED_HEAD_BYTES)
        seal_records(aead, p + SEALED_HEAD_BYTES, PyBytes_GET_SIZE(data) - SEALED_HEAD_BYTES, salt, &out)
        return PyBytes_FromStringAndSize(out.data, out.len)
    finally:
        out_free(&out)


# --- compaction ----------------------------------------------------------------------------------

cdef inline bint mostly_removed(Segment s):
    return s.size >= COMPACT_MIN_BYTES and (s.live_bytes + 6 * <uint64_t>s.live) * 2 < s.size


def maintain(Log log) -> bool:
    """Do at most one piece of maintenance: compact, encrypt or compress a segment, or a deferred write; whether there was one.

    OSError when the disk refuses; the log goes on as before.
    """
    cdef Segment s, worst
    cdef uint32_t wanted
    if log.subjects_table.leaving.len:
        log.give_back(GIVE_BACK)
    if log.memory:
        return False
    if log.state.condition != TAKES:
        return log.state.condition == FULL and log.disk.spent and make_room(log)
    for s in log.segments.items:
        # The index file waited for a removal to be synced.
        if not s.has_index and s.removed_mark and s.removed_mark <= log.marks.synced_mark and s.live and s.sealed and s.synced_size == s.written_size:
            log.files.write_index(s)
    wanted = 0 if log.cipher is None else log.cipher.number
    if is_empty(log.files.active):
        log.files.roll(log.span.last_seq + 1)
        return True
    if log.deferred.late:
        return do_late(log)
    worst = least_live(log)
    if worst is not None:
        return compact(log, worst, False)
    for s in log.segments.items:
        if s.key_number != wanted and s is not log.files.active and s.live and not (s.damaged or s.sync_target):
            return compact(log, s, True)
    if log.compress:
        for s in log.segments.items:
            if s is not log.files.active and s.live and s.packed is None and s.key_number == wanted and not (s.damaged or s.unpackable or s.sync_target):
                return compress(log, s)
    return False


cdef bint make_room(Log log) except -1:
    # The disk is full: compacts a segment in what is left of the reserve. The active one is sealed for that.
    cdef Segment active = log.files.active, s = least_live(log)
    if is_empty(active) or (s is None and mostly_removed(active) and not active.damaged and not still_futile(log, active)):
        log.files.roll(log.span.last_seq + 1)
        return True
    return s is not None and compact(log, s, False)


cdef inline bint is_empty(Segment active):
    return active.live == 0 and active.count and active.size > EMPTY_MAX_BYTES


cdef Segment least_live(Log log):
    # The segment that compaction makes smallest, or None.
    cdef Segment s, worst = None
    for s in log.segments.items:
        if s is log.files.active or s.live == 0 or s.damaged or s.sync_target:
            continue
        if mostly_removed(s) and (worst is None or s.live_bytes < worst.live_bytes):
            if not still_futile(log, s):
                worst = s
    return worst


def unconverted(Log log) -> int:
    """The number of segment files that do not have the encryption of new ones (key number, or none). OSError.

    A file without a segment counts, too: the disk has refused to unlink it, and the next opening reads it.
    """
    cdef Segment s
    cdef uint32_t wanted = 0 if log.cipher is None else log.cipher.number
    cdef int n = 0
    if log.memory:
        return 0
    for s in log.segments.items:
        n += s.key_number != wanted
    if n == 0:
        known = {log.segments.path(s, ".seg") for s in log.segments.items}
        for name in log.disk.list_dir(log.folder):
            n += name.endswith(".seg") and f"{log.folder}/{name}" not in known
    return n


cdef bint compress(Log log, Segment s) except -1:
    """Rewrite a sealed segment compressed; index and index file stay valid."""
    cdef bytes data
    log.files.write()
    if s not in log.segments.items or not COMPACT_MIN_BYTES <= s.size <= COMPRESS_MAX_BYTES:
        s.compressing_helps(False)
        return False
    if log.files.unsynced.names:
        log.files.sync_folder()                    # otherwise a power cut may leave a compressed segment as the newest one
    data = all_of(log, s)
    if s.aead is not None:
        data = plain_image(s.aead, log.cipher, data, s.salt)
    if data is not None and pack_helps(data):
        compressed = write_segment(log, s, data, True, None)
        log.files.sync_folder()
        return compressed
    s.compressing_helps(False)
    return False


cdef bint pack_helps(bytes data):
    """Whether compression makes the first blocks smaller."""
    cdef size_t n = min(<size_t>PyBytes_GET_SIZE(data), <size_t>4 * PACKED_BLOCK_BYTES)
    return len(pack(PyBytes_AS_STRING(data), n, None)) < n - n // 16


cdef bint compact(Log log, Segment s, bint convert) except -1:
    cdef Out out
    cdef Ranges kept
    cdef bytes places = PyBytes_FromStringAndSize(NULL, s.count * sizeof(uint32_t))
    cdef uint32_t* offsets = <uint32_t*>PyBytes_AS_STRING(places)
    cdef Segment fresh = new_segment(s.first)
    cdef size_t before = s.size
    cdef bint sync_used = log.marks.sync_used
    cdef uint32_t live
    memset(&out, 0, sizeof(Out))
    memset(&kept, 0, sizeof(Ranges))
    memset(offsets, 0, s.count * sizeof(uint32_t))
    try:
        # Compaction drops messages for good, so the messages that removed them (by a limit or a rollup) must be synced first.
        log.files.sync()
        log.marks.use_sync(sync_used)
        if s not in log.segments.items or not ranges_kept(log, s, &kept):
            return False
        fresh.use_salt(s.salt * 2654435761u + 40503u)
        put_head(log.cipher, fresh, &out)
        live = s.live
        copy_live(log, s, &out, offsets, fresh)
        if s.live != live or s.damaged:
            return True                          # a message was lost or is removed: `kept` does not name it
        put_ranges(&out, kept.items, kept.count, s.first + s.count - 1, s.removed_below, fresh.salt)
        if out.len >= before and not convert:
            s.compacting_was_futile((<Segment>log.segments.items[0]).first)
            return False
        write_segment(log, s, PyBytes_FromStringAndSize(out.data, out.len), log.compress, fresh)
        take_over(log, s, fresh, out.len, offsets)
        s.take_removes(&kept)
        log.files.sync_folder()
    finally:
        out_free(&out)
        ranges_free(&kept)
    write_index_file(log.segments, log.subjects_table, s, log.span.last_seq)
    return True


def first_of(Segment s) -> int:
    """Sort key: segments by their first sequence."""
    return s.first


cdef bint still_futile(Log log, Segment s) except -1:
    # Whether compaction would fail again: the file was large because of REMOVE ranges for older segments, and little has changed.
    return s.futile_bytes and s.futile_first == (<Segment>log.segments.items[0]).first and s.live_bytes > s.futile_bytes // 8 * 7


cdef bint ranges_kept(Log log, Segment s, Ranges* kept) except -1:
    # Collects the REMOVE ranges to keep: those that name sequences of older segments in the log, removals of its own sequences, and,
    # while a lost sequence keeps the floor down, those between it and the oldest segment.
    cdef Ranges held
    cdef Segment older
    cdef size_t k, low, high, middle
    cdef uint64_t end, below = log.files.removed_below()
    cdef list others = sorted([older for older in log.segments.items + log.files.retired.items if older.first < s.first], key=first_of)
    memset(&held, 0, sizeof(Ranges))
    try:
        if s.has_index:
            if not read_ranges(log.segments, s, &held):
                # The index file is not valid: write a new one first.
                s.index_lost()
                log.segments.forget_entries(s)
                log.segments.need(s)
                return False
        else:
            for k in range(s.removes.count):
                ranges_add(&held, s.removes.items[k].first, s.removes.items[k].count)
        for k in range(held.count):
            end = held.items[k].first + held.items[k].count
            low, high = 0, len(others)           # find the first segment that ends behind the start of the range
            while low < high:
                middle = (low + high) // 2
                older = <Segment>others[middle]
                if older.first + older.count <= held.items[k].first:
                    low = middle + 1
                else:
                    high = middle
            if low < <size_t>len(others) and (<Segment>others[low]).first < end:
                ranges_add(kept, held.items[k].first, held.items[k].count)
            elif low and held.items[k].first < s.first:
                # The range lies in the gap of a removed segment: the whole gap is removed, except for sequences in `lost`.
                older = <Segment>others[low - 1]
                end = (<Segment>others[low]).first if low < <size_t>len(others) else s.first
                if log.removals.lost:
                    ranges_add(kept, held.items[k].first, min(end - held.items[k].first, held.items[k].count))
                else:
                    ranges_add(kept, older.first + older.count, end - older.first - older.count)
            elif not low and held.items[k].first < s.first and end > below:
                # The range lies below the oldest segment and above a lost sequence: no floor covers it.
                ranges_add(kept, held.items[k].first, held.items[k].count)
        # Name its own removed sequences: a gap that no record names would count as damage.
        k = 0
        while k < s.count:
            low = s.next_live(<uint32_t>k)
            ranges_add(kept, s.first + k, low - k)
            k = low + 1
        ranges_sort(kept)
    finally:
        ranges_free(&held)
    return True


cdef int copy_live(Log log, Segment s, Out* out, uint32_t* offsets, Segment fresh) except -1:
    cdef uint32_t i, length, n
    cdef const char* p
    cdef char* to
    cdef Head head
    log.segments.need(s)
    i = s.next_live(0)
    while i < s.count:
        p = log.record_at(s, i)
        if p == NULL:
            log.drop_unreadable(s, i)
        else:
            n = RECORD_HEAD_BYTES + (s.entries[i].size & SIZE_MASK)
            length = n - RECORD_HEAD_BYTES + fresh.extra
            offsets[i] = <uint32_t>out.len
            out_put(out, p, n)
            to = out_reserve(out, length - n) - n
            memset(to + n, 0, length - n)
            memcpy(&head, to, RECORD_HEAD_BYTES)
            head.length = length
            # the group has long been whole, and its last message may be removed
            head.state = head.state & ~(MORE | MEMBER | TAGGED) | (TAGGED if fresh.extra == SEALED_EXTRA_BYTES else 0)
            memcpy(to, &head, RECORD_HEAD_BYTES)
            out.len += length - n
            seal_record(to, length, fresh.salt)
        i = s.next_live(i + 1)
    return 0


cdef int take_over(Log log, Segment s, Segment fresh, uint64_t size, const uint32_t* offsets) except -1:
    # The new file is in place: adapts the index to it.
    cdef uint32_t i, n = 0
    cdef uint32_t* subjects = s.subjects
    cdef Py_ssize_t at = log.segments.position(s.first + s.count)
    log.pages.forget(s.serial)
    log.segments.number(s)
    s.take_form(fresh)
    s.set_synced(size)
    s.index_lost()
    if at == len(log.segments.items) or (<Segment>log.segments.items[at]).first == s.first + s.count:
        s.told_by_none()                     # its own records name its removed sequences now; a gap behind it still needs the others
    for i in range(s.subject_count):
        log.subjects_table.set_local(subjects[i], 0)
    for i in range(s.count):
        s.move_entry(i, offsets[i])
        if offsets[i]:
            log.subjects_table.set_local(s.entries[i].subject, 1)
    for i in range(s.subject_count):
        if log.subjects_table.table[subjects[i]].local:
            subjects[n] = subjects[i]
            n += 1
        else:
            log.subjects_table.leave_one(subjects[i])
    s.keep_subjects(n)
    return 0


# --- the end -------------------------------------------------------------------------------------

def close(Log log) -> None:
    """Write, sync and update the index files; afterwards the log takes no appends. Reads go on."""
    cdef Segment s
    if log.state.condition == CLOSED:
        return
    try:
        if log.state.condition == FAILED and not log.marks.sync_running:
            while not mend(log):
                pass
        if not log.memory and log.state.condition < FAILED:
            log.files.write()
            log.files.sync_files()
            for s in list(log.segments.items):
                if s.damaged:
                    doubt_index_file(log.segments, s)        # each opening scans the damaged segment
                elif s is log.files.active or s.index_old or not s.has_index:
                    write_index_file(log.segments, log.subjects_table, s, log.span.last_seq)
    finally:
        log.files.end()


def destroy(Log log) -> None:
    """Close the log without writing, drop all messages and remove the folder."""
    cdef Segment s
    log.files.end()
    purge_all(log)
    log.pages.forget(0)
    log.files.forget_files()
    if not log.memory:
        log.disk.remove_tree(log.folder)
