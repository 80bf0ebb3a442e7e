"""A segment in memory: a run of consecutive sequences with its index entries.

An entry says where the record of a sequence is; a bitmap says which sequences have no live message. core/log/segment_list has all
segments of a log, and drops and reads back the entries of sealed ones.

Knows nothing of subject names, recovery or removal policy.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.base.open_files cimport OpenFile
from pelton.core.log.compressed_segment cimport Packed
from pelton.core.log.record cimport Ranges

cdef enum:
    HAS_HEADERS = 0x80000000
    SIZE_MASK = 0x7FFFFFFF


cdef struct Entry:
    uint32_t offset      # of the record in the segment; 0: nothing stored (skipped or lost)
    uint32_t subject     # id
    uint32_t size        # subject + headers + payload bytes; top bit: has headers


cdef class Segment(OpenFile):
    cdef readonly uint64_t first          # sequence of entry 0; names the file
    cdef readonly uint32_t count          # sequences covered: first .. first + count - 1
    cdef uint32_t cap
    cdef Entry* entries                   # NULL when dropped
    cdef uint64_t* dead                   # one bit per sequence: no live message; NULL while all are live
    cdef uint32_t dead_words
    cdef readonly uint32_t live
    cdef readonly uint64_t live_bytes     # record bytes of the live messages
    cdef readonly uint64_t size           # bytes of the segment, unwritten tail included
    cdef uint64_t written_size            # bytes that are written to the file
    cdef uint64_t synced_size             # bytes that are synced
    cdef uint64_t sync_target             # bytes that the running sync covers
    cdef uint32_t salt
    cdef uint32_t begins                  # size of the head in bytes: offset of the first record
    cdef uint32_t extra                   # bytes of a message record besides subject, headers and payload
    cdef uint32_t key_number              # number of the data key that encrypts the file; 0: the file is not encrypted
    cdef bytes head                       # the head of an encrypted file; else None
    cdef object aead                      # the cipher of its records; None: records are not encrypted one by one
    cdef readonly Packed packed           # the blocks of a compressed file; None: the file is not compressed
    cdef bint unpackable                  # compression did not make the file smaller
    cdef uint64_t futile_first            # the oldest segment (first sequence) when compaction did not make the file smaller ...
    cdef uint64_t futile_bytes            # ... and live_bytes of this segment at that time; 0: compaction was not tried
    cdef readonly bint sealed
    cdef bint has_index                   # a valid index file exists
    cdef bint damaged                     # some bytes are not records: no index file and no compaction, so that each opening reports the damage
    cdef bint plain                       # no message has headers; False: some have, or not known
    cdef bint index_old                   # messages were removed since the index file was written
    cdef uint64_t removed_mark            # the write mark (Watermarks) that must be synced for the newest removal to be durable
    cdef uint64_t last_ts                 # timestamp of its last message
    cdef uint32_t* subjects               # ids of its subjects, by local number
    cdef uint32_t subject_count
    cdef uint32_t subject_cap
    cdef uint64_t relog_low               # lowest and highest first sequence of the segments whose REMOVE records name
    cdef uint64_t relog_high              # sequences of this segment; 0: only its own records do
    cdef Ranges removes                   # the ranges in its own REMOVE records (kept in memory until an index file has them)
    cdef uint64_t removed_below           # the highest floor in its own REMOVE records
    cdef uint64_t used                    # tick of the last use, for least-recently-used
    cdef uint32_t serial                  # identifies its read windows; changes when the file is rewritten
    cdef Out memory                       # the records of a memory log
    cdef uint64_t retire_mark             # retired: the file is unlinked when writes up to this mark are durable (0: not decided yet)

    # form of the file
    cdef void use_salt(self, uint32_t salt) noexcept
    cdef void use_form(self, uint32_t begins, uint32_t extra) noexcept      # bytes of the head; bytes of a record besides its contents
    cdef int use_key(self, uint32_t number, object aead) except -1          # 0 and None: records are not encrypted
    cdef int use_head(self, bytes head) except -1                           # the head of an encrypted file
    cdef int use_blocks(self, Packed packed) except -1                      # None: the file is not compressed
    cdef int copy_form(self, Segment other) except -1           # take the form of a sealed segment, to read its records again
    cdef int take_form(self, Segment fresh) except -1           # the file was rewritten in the form of `fresh`
    cdef void seal(self, bint sealed) noexcept
    cdef void number(self, uint32_t serial) noexcept
    # bytes
    cdef void grow(self, uint64_t n) noexcept                   # n more bytes of records
    cdef void resize(self, uint64_t size) noexcept
    cdef void set_written(self, uint64_t size) noexcept         # the segment has `size` bytes, all written
    cdef void set_synced(self, uint64_t size) noexcept          # the segment has `size` bytes, all written and synced
    cdef void wrote_all(self) noexcept
    cdef void synced_all(self) noexcept                         # all written bytes are synced
    cdef void doubt_sync(self) noexcept                         # no byte is known to be synced
    cdef void begin_sync(self) noexcept
    cdef void end_sync(self, bint good) noexcept
    # messages
    cdef int drop(self, uint32_t i, uint32_t n, uint64_t mark) except -1    # message i of n bytes is removed; the write `mark` records it
    cdef void removed_later(self) noexcept                      # the write after removed_mark records the newest removal
    cdef int lose(self, uint32_t i) except -1                   # message i is not live; live_bytes does not change
    cdef void clear_live(self) noexcept                         # no message is live; the caller sets the bitmap
    cdef void found(self, uint64_t ts_ns) noexcept              # a live message was read from the records
    cdef void set_live_bytes(self, uint64_t n) noexcept
    cdef void note_headers(self, uint64_t headed) noexcept      # number of messages with headers
    cdef void mark_damaged(self, bint damaged) noexcept
    cdef int cut_to(self, uint32_t count) except -1             # keep the first `count` entries
    cdef void move_entry(self, uint32_t i, uint32_t offset) noexcept
    cdef void take_entries(self, Segment fresh) noexcept
    cdef void swap_subjects(self, Segment fresh) noexcept
    cdef void keep_subjects(self, uint32_t n) noexcept          # the first n
    cdef void forget_subjects(self) noexcept
    # removals
    cdef void take_removes(self, Ranges* ranges) noexcept       # moves the ranges of its REMOVE records here; `ranges` is empty afterwards
    cdef void raise_removed_below(self, uint64_t seq) noexcept
    cdef void told_by(self, uint64_t first) noexcept            # REMOVE records of the segment with this first sequence name sequences of this one
    cdef void told_by_none(self) noexcept
    cdef void retire(self, uint64_t mark) noexcept              # the file is unlinked when the write `mark` is durable
    # index file
    cdef void index_written(self) noexcept
    cdef void index_lost(self) noexcept
    cdef void index_outdated(self) noexcept
    cdef int take_index(self, uint32_t count, uint32_t live, uint64_t live_bytes, uint64_t last_ts, bint plain, uint64_t removed_below) except -1
    cdef int take_dead(self, const char* bits, uint32_t words) except -1
    # results of compression and compaction
    cdef void compressing_helps(self, bint helps) noexcept
    cdef void compacting_was_futile(self, uint64_t oldest) noexcept
    cdef int reserve(self, uint32_t more) except -1             # room for entries, so that push() cannot fail
    cdef int push_holes(self, uint32_t n) except -1             # n sequences with nothing stored
    cdef int set_dead(self, uint32_t i) except -1
    cdef int add_subject(self, uint32_t subject) except -1
    cdef void trim(self) noexcept                               # arrays to their exact size
    cdef void drop_entries(self) noexcept
    cdef void give_entries(self, Entry* entries) noexcept       # `count` entries, allocated by the caller
    cdef uint32_t next_live(self, uint32_t i) noexcept          # index of the next live entry >= i; count when none
    cdef int64_t prev_live(self, int64_t i) noexcept            # index of the last live entry <= i; -1 when none
    cdef uint32_t live_below(self, uint32_t i) noexcept         # live entries with index < i
    cdef bint wants(self, const uint8_t* wanted, uint32_t wanted_len) noexcept


cdef inline bint is_live(Segment s, uint64_t i) noexcept:
    return s.dead == NULL or not (s.dead[i >> 6] >> (i & 63)) & 1


cdef inline void appended(Segment s, uint32_t length, uint32_t n, uint64_t ts_ns) noexcept:
    # Count a message whose entry was pushed: its record has `length` bytes, and n of them count as live.
    s.last_ts = ts_ns
    s.size += length
    s.live += 1
    s.live_bytes += n


cdef inline void used_at(Segment s, uint64_t tick) noexcept:
    s.used = tick


cdef Segment new_segment(uint64_t first)


cdef inline void push(Segment s, uint32_t offset, uint32_t subject, uint32_t size) noexcept:
    cdef Entry* e = &s.entries[s.count]
    e.offset = offset
    e.subject = subject
    e.size = size
    s.count += 1
