"""A segment. segment.pxd explains each field; core/log/index_file has the index files."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport out_free
from pelton.core.base.open_files cimport OpenFile
from pelton.core.log.compressed_segment cimport Packed
from pelton.core.log.record cimport RECORD_EXTRA_BYTES, SEGMENT_HEAD_BYTES, Ranges, ranges_free

cdef extern from *:
    int popcount "__builtin_popcountll"(uint64_t) nogil
    int low_bit "__builtin_ctzll"(uint64_t) nogil
    int high_zeros "__builtin_clzll"(uint64_t) nogil


cdef class Segment(OpenFile):
    """A run of consecutive sequences: index entries, the bitmap of sequences without a live message, and the segment file."""

    def __cinit__(self) -> None:
        self.begins = SEGMENT_HEAD_BYTES
        self.extra = RECORD_EXTRA_BYTES

    def __dealloc__(self) -> None:
        free(self.entries)
        free(self.dead)
        free(self.subjects)
        ranges_free(&self.removes)
        out_free(&self.memory)

    cdef void use_salt(self, uint32_t salt) noexcept:
        self.salt = salt

    cdef void use_form(self, uint32_t begins, uint32_t extra) noexcept:
        self.begins = begins
        self.extra = extra

    cdef int use_key(self, uint32_t number, object aead) except -1:
        self.key_number = number
        self.aead = aead
        return 0

    cdef int use_head(self, bytes head) except -1:
        self.head = head
        return 0

    cdef int use_blocks(self, Packed packed) except -1:
        self.packed = packed
        return 0

    cdef int copy_form(self, Segment other) except -1:
        self.first = other.first
        self.salt = other.salt
        self.packed = other.packed
        self.begins = other.begins
        self.extra = other.extra
        self.key_number = other.key_number
        self.aead = other.aead
        self.size = other.size
        self.sealed = True
        return 0

    cdef int take_form(self, Segment fresh) except -1:
        self.salt = fresh.salt
        self.begins = fresh.begins
        self.head = fresh.head
        self.extra = fresh.extra
        return 0

    cdef void seal(self, bint sealed) noexcept:
        self.sealed = sealed

    cdef void number(self, uint32_t serial) noexcept:
        self.serial = serial

    # --- its bytes -----------------------------------------------------------------------------------

    cdef void grow(self, uint64_t n) noexcept:
        self.size += n

    cdef void resize(self, uint64_t size) noexcept:
        self.size = size

    cdef void set_written(self, uint64_t size) noexcept:
        self.size = self.written_size = size

    cdef void set_synced(self, uint64_t size) noexcept:
        self.size = self.written_size = self.synced_size = size

    cdef void wrote_all(self) noexcept:
        self.written_size = self.size

    cdef void synced_all(self) noexcept:
        self.synced_size = self.written_size

    cdef void doubt_sync(self) noexcept:
        self.synced_size = 0

    cdef void begin_sync(self) noexcept:
        self.sync_target = self.written_size
        self.hold(True)

    cdef void end_sync(self, bint good) noexcept:
        if good and self.sync_target > self.synced_size:
            self.synced_size = self.sync_target
        self.sync_target = 0
        self.hold(False)

    # --- its messages --------------------------------------------------------------------------------

    cdef int drop(self, uint32_t i, uint32_t n, uint64_t mark) except -1:
        if self.dead != NULL:                # runs once per removal: avoids a call
            self.dead[i >> 6] |= <uint64_t>1 << (i & 63)
        else:
            self.set_dead(i)
        self.live -= 1
        self.live_bytes -= n
        self.index_old = True
        self.removed_mark = mark
        return 0

    cdef void removed_later(self) noexcept:
        self.removed_mark += 1

    cdef int lose(self, uint32_t i) except -1:
        self.set_dead(i)
        self.live -= 1
        return 0

    cdef void clear_live(self) noexcept:
        self.live = 0
        self.live_bytes = 0

    cdef void found(self, uint64_t ts_ns) noexcept:
        self.live += 1
        self.last_ts = ts_ns

    cdef void set_live_bytes(self, uint64_t n) noexcept:
        self.live_bytes = n

    cdef void note_headers(self, uint64_t headed) noexcept:
        self.plain = headed == 0

    cdef void mark_damaged(self, bint damaged) noexcept:
        self.damaged = damaged

    cdef int cut_to(self, uint32_t count) except -1:
        cdef uint32_t i
        for i in range(count, self.count):
            if is_live(self, i):
                self.live -= 1
            else:
                self.dead[i >> 6] &= ~(<uint64_t>1 << (i & 63))
        self.count = count
        return 0

    cdef void move_entry(self, uint32_t i, uint32_t offset) noexcept:
        self.entries[i].offset = offset

    cdef void take_entries(self, Segment fresh) noexcept:
        self.entries = fresh.entries
        self.cap = fresh.cap
        fresh.entries = NULL
        fresh.cap = 0

    cdef void swap_subjects(self, Segment fresh) noexcept:
        self.subjects, fresh.subjects = fresh.subjects, self.subjects
        self.subject_count, fresh.subject_count = fresh.subject_count, self.subject_count
        self.subject_cap, fresh.subject_cap = fresh.subject_cap, self.subject_cap

    cdef void keep_subjects(self, uint32_t n) noexcept:
        self.subject_count = n

    cdef void forget_subjects(self) noexcept:
        free(self.subjects)
        self.subjects = NULL
        self.subject_count = self.subject_cap = 0

    # --- removals and the index file -----------------------------------------------------------------

    cdef void take_removes(self, Ranges* ranges) noexcept:
        free(self.removes.items)
        self.removes = ranges[0]
        memset(ranges, 0, sizeof(Ranges))

    cdef void raise_removed_below(self, uint64_t seq) noexcept:
        if seq > self.removed_below:
            self.removed_below = seq

    cdef void told_by(self, uint64_t first) noexcept:
        if self.relog_low == 0 or first < self.relog_low:
            self.relog_low = first
        if first > self.relog_high:
            self.relog_high = first

    cdef void told_by_none(self) noexcept:
        self.relog_low = self.relog_high = 0

    cdef void retire(self, uint64_t mark) noexcept:
        self.retire_mark = mark

    cdef void index_written(self) noexcept:
        self.has_index = True
        self.index_old = False
        free(self.removes.items)
        memset(&self.removes, 0, sizeof(Ranges))

    cdef void index_lost(self) noexcept:
        self.has_index = False

    cdef void index_outdated(self) noexcept:
        self.index_old = True

    cdef int take_index(self, uint32_t count, uint32_t live, uint64_t live_bytes, uint64_t last_ts, bint plain, uint64_t removed_below) except -1:
        self.count = count
        self.live = live
        self.live_bytes = live_bytes
        self.last_ts = last_ts
        self.plain = plain
        self.removed_below = removed_below
        self.has_index = True
        return 0

    cdef int take_dead(self, const char* bits, uint32_t words) except -1:
        self.dead = <uint64_t*>calloc(words, 8)
        if self.dead == NULL:
            raise MemoryError
        self.dead_words = words
        memcpy(self.dead, bits, words * 8)
        return 0

    cdef void compressing_helps(self, bint helps) noexcept:
        self.unpackable = not helps

    cdef void compacting_was_futile(self, uint64_t oldest) noexcept:
        self.futile_first = oldest
        self.futile_bytes = max(self.live_bytes, 1)

    # --- arrays --------------------------------------------------------------------------------------

    cdef int reserve(self, uint32_t more) except -1:
        cdef uint64_t cap = self.cap if self.cap else 64
        cdef void* grown
        cdef uint32_t words
        if <uint64_t>self.count + more <= self.cap:
            return 0
        while cap < <uint64_t>self.count + more:
            cap *= 2
        grown = realloc(self.entries, cap * sizeof(Entry))
        if grown == NULL:
            raise MemoryError
        self.entries = <Entry*>grown
        if self.dead != NULL:
            words = <uint32_t>((cap + 63) >> 6)
            grown = realloc(self.dead, words * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError
            self.dead = <uint64_t*>grown
            memset(self.dead + self.dead_words, 0, (words - self.dead_words) * sizeof(uint64_t))
            self.dead_words = words
        self.cap = <uint32_t>cap
        return 0

    cdef int push_holes(self, uint32_t n) except -1:
        cdef uint32_t i
        self.reserve(n)
        for i in range(self.count, self.count + n):
            self.set_dead(i)
            push(self, 0, 0, 0)
        return 0

    cdef int set_dead(self, uint32_t i) except -1:
        cdef uint32_t words = ((self.cap if self.cap > self.count else self.count) + 63) >> 6
        if self.dead == NULL:
            self.dead = <uint64_t*>calloc(words if words else 1, sizeof(uint64_t))
            if self.dead == NULL:
                raise MemoryError
            self.dead_words = words
        self.dead[i >> 6] |= <uint64_t>1 << (i & 63)
        return 0

    cdef int add_subject(self, uint32_t subject) except -1:
        cdef void* grown
        cdef uint32_t cap
        if self.subject_count == self.subject_cap:
            cap = self.subject_cap * 2 if self.subject_cap else 4
            grown = realloc(self.subjects, cap * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError
            self.subjects = <uint32_t*>grown
            self.subject_cap = cap
        self.subjects[self.subject_count] = subject
        self.subject_count += 1
        return 0

    cdef void trim(self) noexcept:
        cdef void* p
        cdef uint32_t words = (self.count + 63) >> 6
        if self.entries != NULL and self.count and self.cap > self.count:
            p = realloc(self.entries, self.count * sizeof(Entry))
            if p != NULL:
                self.entries = <Entry*>p
                self.cap = self.count
        if self.dead != NULL and words and self.dead_words > words:
            p = realloc(self.dead, words * sizeof(uint64_t))
            if p != NULL:
                self.dead = <uint64_t*>p
                self.dead_words = words
        if self.subject_count and self.subject_cap > self.subject_count:
            p = realloc(self.subjects, self.subject_count * sizeof(uint32_t))
            if p != NULL:
                self.subjects = <uint32_t*>p
                self.subject_cap = self.subject_count

    cdef void drop_entries(self) noexcept:
        free(self.entries)
        self.entries = NULL
        self.cap = 0

    cdef void give_entries(self, Entry* entries) noexcept:
        self.entries = entries
        self.cap = self.count

    cdef uint32_t next_live(self, uint32_t i) noexcept:
        cdef uint32_t word
        cdef uint64_t bits
        if i >= self.count or self.live == 0:
            return self.count
        if self.dead == NULL:
            return i
        word = i >> 6
        bits = ~self.dead[word] & (<uint64_t>0xFFFFFFFFFFFFFFFFu << (i & 63))
        while True:
            if bits:
                i = (word << 6) + low_bit(bits)
                return i if i < self.count else self.count
            word += 1
            if <uint64_t>word << 6 >= self.count:
                return self.count
            bits = ~self.dead[word]

    cdef int64_t prev_live(self, int64_t i) noexcept:
        cdef int64_t word
        cdef uint64_t bits
        if i >= <int64_t>self.count:
            i = <int64_t>self.count - 1
        if i < 0 or self.live == 0:
            return -1
        if self.dead == NULL:
            return i
        word = i >> 6
        bits = ~self.dead[word] & (<uint64_t>0xFFFFFFFFFFFFFFFFu >> (63 - (i & 63)))
        while True:
            if bits:
                return (word << 6) + 63 - high_zeros(bits)
            word -= 1
            if word < 0:
                return -1
            bits = ~self.dead[word]

    cdef uint32_t live_below(self, uint32_t i) noexcept:
        cdef uint32_t word, gone = 0
        if i >= self.count:
            return self.live
        if self.dead == NULL:
            return i
        for word in range(i >> 6):
            gone += popcount(self.dead[word])
        if i & 63:
            gone += popcount(self.dead[i >> 6] & ((<uint64_t>1 << (i & 63)) - 1))
        return i - gone

    cdef bint wants(self, const uint8_t* wanted, uint32_t wanted_len) noexcept:
        cdef uint32_t k, id
        for k in range(self.subject_count):
            id = self.subjects[k]
            if id < wanted_len and wanted[id]:
                return True
        return False


cdef Segment new_segment(uint64_t first):
    cdef Segment s = Segment()
    s.first = first
    return s
