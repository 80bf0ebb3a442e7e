"""Segments: a run of consecutive sequences with its index entries, and the ordered list of them.

Knows nothing of subjects' names, of recovery or of removal policy. An entry says where the record of a sequence is; the
bitmap says which are gone. Entry arrays of sealed segments are dropped and read back from the index file (core/log/index_file).
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.base.disk cimport Disk
from penstock.core.log.compressed_segment cimport Packed
from penstock.core.log.record cimport Ranges

cdef enum:
    HAS_HEADERS = 0x80000000
    SIZE_MASK = 0x7FFFFFFF


cdef struct Entry:
    uint32_t offset      # of the record in the segment; 0: nothing stored (skipped or lost)
    uint32_t subject     # id
    uint32_t size        # subject + headers + payload bytes; top bit: has headers


cdef class Segment:
    cdef readonly uint64_t first          # sequence of entry 0; names the file
    cdef readonly uint32_t count          # sequences covered: first .. first + count - 1
    cdef uint32_t cap
    cdef Entry* entries                   # NULL when dropped
    cdef uint64_t* dead                   # one bit per sequence, NULL while all live
    cdef uint32_t dead_words
    cdef readonly uint32_t live
    cdef readonly uint64_t live_bytes     # record bytes of the live messages
    cdef readonly uint64_t size           # bytes of the segment, unwritten tail included
    cdef uint64_t written_size            # of which in the file
    cdef uint64_t synced_size             # of which on the disk
    cdef uint64_t sync_target             # what a running sync will have reached
    cdef uint32_t salt
    cdef uint32_t begins                  # offset of its first record: bytes of its head
    cdef uint32_t extra                   # bytes of a message's record besides subject, headers and payload
    cdef uint32_t key_number              # of the data key that its file is encrypted with; 0: it is not
    cdef bytes head                       # of an encrypted file as it was made; else None
    cdef object aead                      # the cipher of its records; None: they are not encrypted one by one
    cdef int handle                       # -1: not open
    cdef readonly Packed packed           # its file is compressed; None: it is not
    cdef bint unpackable                  # compressing it was of no use
    cdef uint64_t futile_first            # so was compacting it, when this was the oldest segment ...
    cdef uint64_t futile_bytes            # ... and so many of its bytes were live; 0: it was not tried
    cdef readonly bint sealed
    cdef bint has_index                   # an index file that belongs to it is on the disk
    cdef bint damaged                     # some of its bytes are no records: no index file, no compaction, so that each opening tells
    cdef bint plain                       # none of its messages has headers; False: not known, or some have
    cdef bint index_old                   # removals since the index file was written
    cdef uint64_t removed_mark            # the newest removal is on the disk when what was written up to this mark is
    cdef uint64_t last_ts                 # timestamp of its last message
    cdef uint32_t* subjects               # ids of the subjects in it, by local number
    cdef uint32_t subject_count
    cdef uint32_t subject_cap
    cdef uint64_t relog_low               # the segments (by first sequence) whose REMOVE records name sequences
    cdef uint64_t relog_high              # of this one; 0: none besides its own
    cdef Ranges removes                   # the ranges its own REMOVE records hold (kept until an index file has them)
    cdef uint64_t removed_below           # ... and the highest sequence below which they say that all is removed
    cdef uint64_t used                    # for least-recently-used
    cdef uint32_t serial                  # names its pages; changes when the file is rewritten
    cdef Out memory                       # the records of a memory log
    cdef uint64_t retire_mark             # retired: unlinked when what was written up to this mark is safe (0: not looked at yet)

    # what it is
    cdef void use_salt(self, uint32_t salt) noexcept
    cdef void use_form(self, uint32_t begins, uint32_t extra) noexcept      # bytes of its head; of a record besides its contents
    cdef int use_key(self, uint32_t number, object aead) except -1          # 0 and None: its records are not encrypted
    cdef int use_head(self, bytes head) except -1                           # of an encrypted file
    cdef int use_blocks(self, Packed packed) except -1                      # None: its file is not compressed
    cdef int copy_form(self, Segment other) except -1           # of a sealed segment whose records are read once more
    cdef int take_form(self, Segment fresh) except -1           # its file was made anew in the form of `fresh`
    cdef void seal(self, bint sealed) noexcept
    # its bytes
    cdef void grow(self, uint64_t n) noexcept                   # so many more bytes of records
    cdef void resize(self, uint64_t size) noexcept
    cdef void set_written(self, uint64_t size) noexcept         # so many bytes, all in the file
    cdef void set_synced(self, uint64_t size) noexcept          # ... and on the disk
    cdef void wrote_all(self) noexcept
    cdef void synced_all(self) noexcept                         # all written bytes are on the disk
    cdef void doubt_sync(self) noexcept                         # nothing of it is known to be on the disk
    cdef void begin_sync(self) noexcept
    cdef void end_sync(self, bint good) noexcept
    # its messages
    cdef int drop(self, uint32_t i, uint32_t n, uint64_t mark) except -1    # one of n bytes was removed: on the disk with that write
    cdef void removed_later(self) noexcept                      # its newest removal is recorded by the write after that one
    cdef int lose(self, uint32_t i) except -1                   # a message is not live; its bytes are not counted
    cdef void clear_live(self) noexcept                         # no message is live; the bitmap is the caller's
    cdef void found(self, uint64_t ts_ns) noexcept              # a live message was read from its records
    cdef void set_live_bytes(self, uint64_t n) noexcept
    cdef void note_headers(self, uint64_t headed) noexcept      # so many of its messages have headers
    cdef void mark_damaged(self, bint damaged) noexcept
    cdef int cut_to(self, uint32_t count) except -1             # the entries behind were never there
    cdef void move_entry(self, uint32_t i, uint32_t offset) noexcept
    cdef void take_entries(self, Segment fresh) noexcept
    cdef void swap_subjects(self, Segment fresh) noexcept
    cdef void keep_subjects(self, uint32_t n) noexcept          # the first n
    cdef void forget_subjects(self) noexcept
    # removals
    cdef void take_removes(self, Ranges* ranges) noexcept       # its REMOVE records hold those; the source is empty then
    cdef void raise_removed_below(self, uint64_t seq) noexcept
    cdef void told_by(self, uint64_t first) noexcept            # REMOVE records of the segment that begins there name sequences of this one
    cdef void told_by_none(self) noexcept
    cdef void retire(self, uint64_t mark) noexcept              # unlinked when that write is safe
    # its index file
    cdef void index_written(self) noexcept
    cdef void index_lost(self) noexcept
    cdef void index_outdated(self) noexcept
    cdef int take_index(self, uint32_t count, uint32_t live, uint64_t live_bytes, uint64_t last_ts, bint plain, uint64_t removed_below) except -1
    cdef int take_dead(self, const char* bits, uint32_t words) except -1
    # what was tried
    cdef void compressing_helps(self, bint helps) noexcept
    cdef void compacting_was_futile(self, uint64_t oldest) noexcept
    cdef int reserve(self, uint32_t more) except -1             # room for entries, so that push can't fail
    cdef int push_holes(self, uint32_t n) except -1             # n sequences with nothing stored
    cdef int set_dead(self, uint32_t i) except -1
    cdef int add_subject(self, uint32_t subject) except -1
    cdef void trim(self) noexcept                               # arrays to their exact size
    cdef void drop_entries(self) noexcept
    cdef uint32_t next_live(self, uint32_t i) noexcept          # index of the next live entry >= i; count when none
    cdef int64_t prev_live(self, int64_t i) noexcept            # index of the last live entry <= i; -1 when none
    cdef uint32_t live_below(self, uint32_t i) noexcept         # live entries with index < i
    cdef bint wants(self, const uint8_t* wanted, uint32_t wanted_len) noexcept


cdef inline bint is_live(Segment s, uint64_t i) noexcept:
    return s.dead == NULL or not (s.dead[i >> 6] >> (i & 63)) & 1


cdef inline void appended(Segment s, uint32_t length, uint32_t n, uint64_t ts_ns) noexcept:
    # A message whose entry was pushed: `length` bytes of records, of which n count.
    s.last_ts = ts_ns
    s.size += length
    s.live += 1
    s.live_bytes += n


cdef Segment new_segment(uint64_t first)


cdef inline void push(Segment s, uint32_t offset, uint32_t subject, uint32_t size) noexcept:
    cdef Entry* e = &s.entries[s.count]
    e.offset = offset
    e.subject = subject
    e.size = size
    s.count += 1


cdef class SegmentList:
    cdef readonly list items              # ascending; the last one is active
    cdef Segment active
    cdef Disk disk
    cdef str folder
    cdef object cipher                    # data keys of the stream; None: it has none
    cdef object rebuild                   # called with a segment whose entries can't be read back from its index file
    cdef uint64_t tick
    cdef size_t loaded_bytes              # entry arrays of sealed segments in memory
    cdef public size_t loaded_limit       # ... and how much they may be
    cdef size_t loads
    cdef int open_handles
    cdef Py_ssize_t hint
    cdef uint32_t serials

    cdef int rebuild_with(self, object rebuild) except -1      # what is called with a segment whose entries can't be read back
    cdef void number(self, Segment s) noexcept                 # its pages get a new name
    cdef void take_handle(self, Segment s, int handle) noexcept     # its file was opened
    cdef void count_entries(self, Segment s) noexcept          # those of a sealed segment are in memory
    cdef void forget_entries(self, Segment s) noexcept
    cdef void activate(self, Segment s) noexcept               # it takes the appends
    cdef str path(self, Segment s, str suffix)
    cdef int add(self, Segment s) except -1
    cdef int discard(self, Segment s) except -1
    cdef Py_ssize_t position(self, uint64_t seq) noexcept       # of the first segment that ends at or after seq; len(items) if none
    cdef Segment find(self, uint64_t seq)                       # the segment that covers seq, or None
    cdef int need(self, Segment s) except -1                    # its entries are in memory after this, until the next call
    cdef int load(self, Segment s) except -1
    cdef int make_room(self, Segment keep) except -1
    cdef int handle(self, Segment s) except -1                  # its open file
    cdef int64_t read_at(self, Segment s, char* p, size_t n, uint64_t offset) except -1     # bytes of the segment, compressed or not
    cdef int spare_handles(self) except -1
    cdef int close_handle(self, Segment s) except -1
    cdef uint64_t next_live(self, uint64_t seq) noexcept
    cdef uint64_t prev_live(self, uint64_t seq) noexcept
    cdef uint64_t next_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t n) except? 18446744073709551615
    cdef uint64_t prev_wanted(self, uint64_t seq, const uint8_t* wanted, uint32_t n) except? 18446744073709551615
    cdef uint64_t count_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t n) except? 18446744073709551615
    cdef uint64_t next_headed(self, uint64_t seq) except? 18446744073709551615     # the lowest live sequence >= seq that has headers, 0 if none
    cdef bint holds(self, Segment s, uint32_t subject) noexcept
    cdef uint64_t next_of(self, uint64_t seq, uint32_t subject, uint64_t* cost) except? 18446744073709551615
    cdef uint64_t prev_of(self, uint64_t seq, uint32_t subject, uint64_t* cost) except? 18446744073709551615
