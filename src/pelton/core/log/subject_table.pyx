"""The subjects of one log.

The table updates the live count of a subject at every append and removal. It makes `first` and `last` exact only when a caller
asks: after the first message of a subject is removed, the table looks in the index for the next one. That is cheap with few
subjects, or with one message per subject, but a long scan with, for example, a million subjects of two messages each. So the
table counts the entries it looks at. When they exceed four times the live messages, it starts to keep histories: the live
sequences of each subject with more than one message (8 bytes per live message, plus 24 per subject), built in one pass over
the index.

Memory use follows the number of subjects in the log. The index of each segment names the id of every subject that has, or had, a
message in the segment; `holders` counts those segments. When the last of them is removed, or rewritten without the subject, the table
forgets the subject, and the id is free for another name. One segment may hold a hundred thousand subjects, so this work is done in
small steps: four subjects for each new one, and some thousands in each call of maintain(). Free ids are used again run by run,
so that the sorted runs of a SubjectIndex stay sorted for long; low ids first, so that runs at the end become empty and are dropped.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset
from pelton.core.base.buffer cimport Out, hash_bytes, out_free, out_put
from pelton.core.log.segment cimport Segment, is_live
from pelton.core.log.segment_list cimport SegmentList

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void*) nogil

cdef enum:
    DEBT_FREE = 65536
    PLACES_MIN = 8
    LEAVING_KEEP_BYTES = 65536       # a longer list of ids frees its memory when it is done


RUN_IDS = 16384


cdef class SubjectWatcher:
    """An object that keeps state by subject id. The table calls gone() before it reuses an id."""

    cdef int gone(self, uint32_t id) except -1:
        return 0


cdef class SubjectTable:
    """Subject -> id -> live count, first, last."""

    def __cinit__(self):
        memset(&self.leaving, 0, sizeof(Out))
        self.places = <Place*>calloc(PLACES_MIN, sizeof(Place))
        if self.places == NULL:
            raise MemoryError
        self.mask = PLACES_MIN - 1

    def __init__(self, SegmentList segments) -> None:
        self.segments = segments
        self.watchers = []
        self.debt_free = DEBT_FREE
        self.run_ids = RUN_IDS
        self.filling = -1

    def __dealloc__(self) -> None:
        cdef uint32_t id
        for id in range(self.count):
            self.forget(&self.table[id])
            free(<void*>self.table[id].state.name)
        free(self.table)
        free(self.places)
        free(self.runs)
        out_free(&self.leaving)

    # --- names -----------------------------------------------------------------------------------

    cdef int64_t find(self, const char* name, uint32_t n) noexcept:
        return self.find_hashed(name, n, hash_bytes(name, n))

    cdef int64_t find_hashed(self, const char* name, uint32_t n, uint64_t h) noexcept:
        cdef uint32_t tag = <uint32_t>(h >> 1), i = tag & self.mask
        cdef Subject* s
        while self.places[i].id:
            if self.places[i].tag == tag:
                s = &self.table[self.places[i].id - 1]
                if s.state.name_len == n and memcmp(s.state.name, name, n) == 0:
                    return <int64_t>self.places[i].id - 1
            i = (i + 1) & self.mask
        return -1

    cdef uint32_t intern(self, const char* name, uint32_t n) except? 4294967295:
        return self.intern_hashed(name, n, hash_bytes(name, n))

    cdef uint32_t intern_hashed(self, const char* name, uint32_t n, uint64_t h) except? 4294967295:
        cdef int64_t known = self.find_hashed(name, n, h)
        cdef uint32_t id
        cdef char* text
        cdef Subject* s
        if known >= 0:
            return <uint32_t>known
        if (self.count - self.spare + 1) * <uint64_t>4 > (<uint64_t>self.mask + 1) * 3:
            self.resize((<uint64_t>self.mask + 1) * 2)
        text = <char*>malloc(n if n else 1)
        if text == NULL:
            raise MemoryError
        memcpy(text, name, n)
        try:
            id = self.new_id()
        except MemoryError:
            free(text)
            raise
        s = &self.table[id]
        memset(s, 0, sizeof(Subject))
        s.state.name = text
        s.state.name_len = n
        self.take_place(<uint32_t>(h >> 1), id)
        return id

    cdef void look_at(self, uint64_t h) noexcept:
        prefetch(&self.places[<uint32_t>(h >> 1) & self.mask])

    cdef int64_t look_closer(self, uint64_t h) noexcept:
        cdef Place* place = &self.places[<uint32_t>(h >> 1) & self.mask]
        if place.id == 0 or place.tag != <uint32_t>(h >> 1):
            return -1
        prefetch(&self.table[place.id - 1])
        return <int64_t>place.id - 1

    cdef void take_place(self, uint32_t tag, uint32_t id) noexcept:
        cdef uint32_t i = tag & self.mask
        while self.places[i].id:
            i = (i + 1) & self.mask
        self.places[i].tag = tag
        self.places[i].id = id + 1

    cdef void leave_place(self, uint32_t tag, uint32_t id) noexcept:
        cdef uint32_t hole = tag & self.mask, i
        while self.places[hole].id != id + 1:
            hole = (hole + 1) & self.mask
        i = (hole + 1) & self.mask
        while self.places[i].id:
            # A place may move back into the hole unless its home lies behind the hole (in ring order).
            if ((i - self.places[i].tag) & self.mask) >= ((i - hole) & self.mask):
                self.places[hole] = self.places[i]
                hole = i
            i = (i + 1) & self.mask
        self.places[hole].id = 0

    cdef int resize(self, uint64_t size) except -1:
        cdef Place* old = self.places
        cdef uint32_t before = self.mask
        cdef uint64_t i
        if size > 0x80000000u:
            raise MemoryError("a log of more subjects than there are ids")
        self.places = <Place*>calloc(size, sizeof(Place))
        if self.places == NULL:
            self.places = old
            raise MemoryError
        self.mask = <uint32_t>(size - 1)
        for i in range(<uint64_t>before + 1):
            if old[i].id:
                self.take_place(old[i].tag, old[i].id - 1)
        free(old)
        return 0

    # --- ids -------------------------------------------------------------------------------------

    cdef uint32_t new_id(self) except? 4294967295:
        cdef void* grown
        cdef uint32_t cap
        cdef uint32_t id = self.new_spare() if self.spare else 0xFFFFFFFFu
        if id != 0xFFFFFFFFu:
            return id
        if self.count == self.cap:
            cap = self.cap * 2 if self.cap else 4
            grown = realloc(self.table, cap * sizeof(Subject))
            if grown == NULL:
                raise MemoryError
            self.table = <Subject*>grown
            self.cap = cap
        if self.count // self.run_ids >= self.runs_cap:
            cap = self.runs_cap * 2 if self.runs_cap else 1
            grown = realloc(self.runs, cap * sizeof(Run))
            if grown == NULL:
                raise MemoryError
            self.runs = <Run*>grown
            memset(self.runs + self.runs_cap, 0, (cap - self.runs_cap) * sizeof(Run))
            self.runs_cap = cap
        self.count += 1
        return self.count - 1

    cdef uint32_t new_spare(self) noexcept:
        # A spare id of the run that is being filled. When that has none: of the lowest run that is not sorted, or of which a quarter
        # is spare. 0xFFFFFFFF: there is none.
        cdef Run* run
        cdef uint32_t k, id
        if self.filling < 0 or self.runs[self.filling].head == 0:
            if not self.look:
                return 0xFFFFFFFFu
            self.look = False
            self.filling = -1
            for k in range((self.count + self.run_ids - 1) // self.run_ids):
                run = &self.runs[k]
                if run.head and (run.mixed or k * self.run_ids >= self.ordered or run.spare * <uint64_t>4 >= self.run_ids):
                    if self.filling >= 0:
                        self.look = True
                        break
                    self.filling = k
            if self.filling < 0:
                return 0xFFFFFFFFu
        run = &self.runs[self.filling]
        id = run.head - 1
        run.head = self.table[id].local
        run.spare -= 1
        run.mixed = True
        self.spare -= 1
        free(<void*>self.table[id].state.name)
        return id

    cdef int join(self, Segment s, uint32_t id) except -1:
        s.add_subject(id)
        self.table[id].holders += 1
        return 0

    cdef int seen_in(self, Segment s, uint32_t id) except -1:
        self.join(s, id)
        self.table[id].seen = s.serial
        return 0

    cdef void note_seen(self, Segment s) noexcept:
        cdef uint32_t k
        for k in range(s.subject_count):
            self.table[s.subjects[k]].seen = s.serial

    cdef void set_local(self, uint32_t id, uint32_t number) noexcept:
        self.table[id].local = number

    cdef void counted(self, uint32_t id, uint32_t live, uint64_t first, uint64_t last) noexcept:
        cdef Subject* s = &self.table[id]
        if live == 0:
            return
        if s.state.msgs == 0:
            s.state.first = first
            self.live += 1
        s.state.last = last
        s.state.msgs += live
        self.total += live

    cdef void looked_at(self, uint64_t entries) noexcept:
        self.debt += entries

    cdef int keep_index(self, object names) except -1:
        self.names = names
        return 0

    cdef void run_added(self) noexcept:
        self.runs[self.ordered // self.run_ids].mixed = True
        self.ordered += self.run_ids

    cdef void run_sorted(self, uint32_t run) noexcept:
        self.runs[run].mixed = False

    cdef int leave(self, Segment s) except -1:
        if s.subject_count:
            out_put(&self.leaving, <const char*>s.subjects, s.subject_count * sizeof(uint32_t))
        s.forget_subjects()
        return 0

    cdef int leave_one(self, uint32_t id) except -1:
        return out_put(&self.leaving, <const char*>&id, sizeof(uint32_t))

    cdef int give_back(self, uint32_t budget) except -1:
        cdef uint32_t id
        while budget and self.leaving.off < self.leaving.len:
            budget -= 1
            id = (<uint32_t*>(self.leaving.data + self.leaving.off))[0]
            self.leaving.off += sizeof(uint32_t)
            self.table[id].holders -= 1
            self.unused(id)
        if self.leaving.off == self.leaving.len:
            self.leaving.off = self.leaving.len = 0
            if self.leaving.cap > LEAVING_KEEP_BYTES:
                out_free(&self.leaving)
        self.cut()
        return 0

    cdef int keep(self, uint32_t id) except -1:
        cdef uint32_t before = self.kept
        self.kept = id + 1
        if before and before != self.kept:
            self.unused(before - 1)
        return 0

    cdef int unused(self, uint32_t id) except -1:
        if self.table[id].holders == 0 and self.table[id].state.msgs == 0 and id + 1 != self.kept:
            self.forget_subject(id)
        return 0

    cdef int forget_subject(self, uint32_t id) except -1:
        cdef SubjectWatcher watcher
        cdef Subject* s = &self.table[id]
        cdef Run* run = &self.runs[id // self.run_ids]
        for watcher in self.watchers:
            watcher.gone(id)
        self.leave_place(<uint32_t>(hash_bytes(s.state.name, s.state.name_len) >> 1), id)
        if id >= self.ordered or run.mixed:
            free(<void*>s.state.name)        # in a sorted run the name stays: the order depends on it
            s.state.name = NULL
            s.state.name_len = 0
        s.local = run.head
        run.head = id + 1
        run.spare += 1
        self.spare += 1
        if run.spare == self.run_ids:
            self.forget_run(id // self.run_ids)
        self.look = True
        if self.mask >= PLACES_MIN and (self.count - self.spare) * <uint64_t>8 < self.mask:
            try:
                self.resize((<uint64_t>self.mask + 1) // 2)
            except MemoryError:
                return 0                     # out of memory: the larger table is still correct
        return 0

    cdef int forget_run(self, uint32_t run) noexcept:
        cdef uint32_t id
        for id in range(run * self.run_ids, (run + 1) * self.run_ids):
            free(<void*>self.table[id].state.name)
            self.table[id].state.name = NULL
            self.table[id].state.name_len = 0
        self.runs[run].mixed = True
        return 0

    cdef int cut(self) noexcept:
        # Drops the runs at the end that have no subject.
        cdef uint32_t run, n, before = self.count
        cdef void* p
        while self.count:
            run = (self.count - 1) // self.run_ids
            n = self.count - run * self.run_ids
            if self.runs[run].spare < n:
                break
            memset(&self.runs[run], 0, sizeof(Run))
            self.count -= n
            self.spare -= n
            if self.filling == run:
                self.filling = -1
        self.ordered = min(self.ordered, self.count)
        if self.count < before and self.count < self.cap // 2:
            p = realloc(self.table, max(self.count, <uint32_t>4) * sizeof(Subject))
            if p != NULL:
                self.table = <Subject*>p
                self.cap = max(self.count, <uint32_t>4)
        return 0

    # --- messages --------------------------------------------------------------------------------

    cdef int appended(self, uint32_t id, uint64_t seq) except -1:
        cdef Subject* s = &self.table[id]
        if s.state.msgs == 0:
            s.state.first = seq
            s.stale = 0
            self.live += 1
        elif self.tracking:
            self.remember(s, seq)
        s.state.last = seq
        s.stale &= ~LAST_STALE
        s.state.msgs += 1
        self.total += 1
        return 0

    cdef void removed(self, uint32_t id, uint64_t seq) noexcept:
        cdef Subject* s = &self.table[id]
        s.state.msgs -= 1
        self.total -= 1
        if s.state.msgs == 0:
            self.live -= 1
            s.stale = 0
            self.forget(s)
            return
        if seq == s.state.first:
            s.state.first = seq + 1
            s.stale |= FIRST_STALE
        if seq == s.state.last:
            s.state.last = seq - 1
            s.stale |= LAST_STALE
        if s.state.msgs == 1 and s.stale != (FIRST_STALE | LAST_STALE):
            if s.stale & FIRST_STALE:
                s.state.first = s.state.last
            elif s.stale & LAST_STALE:
                s.state.last = s.state.first
            elif s.state.first != s.state.last:
                return
            s.stale = 0
            self.forget(s)

    cdef void stop_tracking(self) noexcept:
        self.tracking = False

    cdef void reset(self) noexcept:
        cdef uint32_t id
        for id in range(self.count):
            self.table[id].state.msgs = 0
            self.table[id].stale = 0
            self.forget(&self.table[id])
        self.live = 0
        self.total = 0

    cdef SubjectState* state(self, uint32_t id) except? NULL:
        cdef Subject* s
        if id >= self.count or self.table[id].state.msgs == 0:
            return NULL
        s = &self.table[id]
        if s.stale:
            self.repair(s, id)
        return &s.state

    cdef int repair(self, Subject* s, uint32_t id) except -1:
        cdef uint64_t found
        if not self.tracking and self.debt > self.debt_free + 4 * self.total:
            self.track()
        if self.tracking and s.history != NULL:
            self.repair_by_history(s)
            return 0
        if s.stale & FIRST_STALE:
            found = self.segments.next_of(s.state.first, id, &self.debt)
            if found == 0:
                raise AssertionError("a subject's live messages are not in the index")
            s.state.first = found
        if s.stale & LAST_STALE:
            found = self.segments.prev_of(s.state.last, id, &self.debt)
            if found == 0:
                raise AssertionError("a subject's live messages are not in the index")
            s.state.last = found
        s.stale = 0
        return 0

    cdef uint64_t next_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615:
        cdef SubjectState* state = self.state(id)
        cdef History* h
        cdef uint32_t low, high, mid
        if state == NULL or seq > state.last:
            return 0
        if seq <= state.first:
            return state.first
        if seq == state.last:
            return seq
        h = self.history_of(id)
        if h == NULL:
            return self.segments.next_of(seq, id, &self.debt)
        low = h.at
        high = h.end
        while low < high:
            mid = (low + high) >> 1
            if h.seqs[mid] < seq:
                low = mid + 1
            else:
                high = mid
        while not self.alive(h.seqs[low]):
            low += 1
        return h.seqs[low]

    cdef uint64_t last_upto(self, uint32_t id, uint64_t seq) except? 18446744073709551615:
        cdef SubjectState* state = self.state(id)
        cdef History* h
        cdef uint32_t low, high, mid
        if state == NULL or seq < state.first:
            return 0
        if seq >= state.last:
            return state.last
        if seq == state.first:
            return seq
        h = self.history_of(id)
        if h == NULL:
            return self.segments.prev_of(seq, id, &self.debt)
        low = h.at
        high = h.end
        while low < high:
            mid = (low + high) >> 1
            if h.seqs[mid] <= seq:
                low = mid + 1
            else:
                high = mid
        while not self.alive(h.seqs[low - 1]):
            low -= 1
        return h.seqs[low - 1]

    cdef uint64_t live_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615:
        cdef SubjectState* state = self.state(id)
        cdef uint64_t n = 0
        cdef History* h
        cdef uint32_t low, high, mid, k
        if state == NULL or seq > state.last:
            return 0
        if seq <= state.first:
            return state.msgs
        h = self.history_of(id)
        if h == NULL:
            seq = self.next_from(id, seq)
            while seq:
                n += 1
                seq = self.next_from(id, seq + 1)
            return n
        low = h.at
        high = h.end
        while low < high:
            mid = (low + high) >> 1
            if h.seqs[mid] < seq:
                low = mid + 1
            else:
                high = mid
        for k in range(low, h.end):
            n += self.alive(h.seqs[k])
        return n

    cdef History* history_of(self, uint32_t id) except? NULL:
        # NULL: the table keeps no histories.
        if not self.tracking and self.debt > self.debt_free + 4 * self.total:
            self.track()
        return self.table[id].history if self.tracking else NULL

    cdef bint alive(self, uint64_t seq) except -1:
        cdef Segment segment = self.segments.find(seq)
        return segment is not None and is_live(segment, seq - segment.first)

    cdef int repair_by_history(self, Subject* s) except -1:
        cdef History* h = s.history
        cdef uint32_t k, n
        while h.at < h.end and not self.alive(h.seqs[h.at]):
            h.at += 1
        while h.at < h.end and not self.alive(h.seqs[h.end - 1]):
            h.end -= 1
        if h.at == h.end:
            raise AssertionError("a subject's live messages are not in its history")
        s.state.first = h.seqs[h.at]
        s.state.last = h.seqs[h.end - 1]
        s.stale = 0
        if h.end - h.at > 16 + 2 * s.state.msgs:
            n = 0
            for k in range(h.at, h.end):
                if self.alive(h.seqs[k]):
                    h.seqs[n] = h.seqs[k]
                    n += 1
            h.at = 0
            h.end = n
        return 0

    cdef int track(self) except -1:
        # One pass over all live entries; afterwards append and repair update the histories.
        cdef Segment segment
        cdef Subject* s
        cdef uint32_t i, id
        try:
            for segment in list(self.segments.items):
                if segment.live == 0:
                    continue
                self.segments.need(segment)
                i = segment.next_live(0)
                while i < segment.count:
                    id = segment.entries[i].subject
                    s = &self.table[id]
                    if s.state.msgs > 1:
                        self.push(s, segment.first + i)
                    i = segment.next_live(i + 1)
        except BaseException:
            for id in range(self.count):
                self.forget(&self.table[id])
            raise
        self.tracking = True
        return 0

    cdef int remember(self, Subject* s, uint64_t seq) except -1:
        # Called before `seq` is counted. A subject without a history has one live message, its last.
        if s.history == NULL:
            self.push(s, s.state.last)
        return self.push(s, seq)

    cdef int push(self, Subject* s, uint64_t seq) except -1:
        cdef History* h = s.history
        cdef uint32_t cap
        cdef void* grown
        if h == NULL:
            h = <History*>calloc(1, sizeof(History))
            if h == NULL:
                raise MemoryError
            s.history = h
        if h.end == h.cap:
            if h.at > (h.cap >> 1):
                memmove(h.seqs, h.seqs + h.at, (h.end - h.at) * sizeof(uint64_t))
                h.end -= h.at
                h.at = 0
            else:
                cap = h.cap * 2 if h.cap else 4
                grown = realloc(h.seqs, cap * sizeof(uint64_t))
                if grown == NULL:
                    raise MemoryError
                h.seqs = <uint64_t*>grown
                h.cap = cap
        h.seqs[h.end] = seq
        h.end += 1
        return 0

    cdef void forget(self, Subject* s) noexcept:
        if s.history != NULL:
            free(s.history.seqs)
            free(s.history)
            s.history = NULL
