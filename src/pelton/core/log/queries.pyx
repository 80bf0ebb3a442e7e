"""Queries of the control plane about a log: by pattern, by subject, holes. The index answers them, not the files.

A pattern gives the ids of its subjects (core/log/subject_index). The count and the first and last sequence of each subject answer most
queries at once. Otherwise the query searches between these sequences, in the history of the subject or in the segments.

Knows nothing of the protocol.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset
from pelton.core.base.buffer cimport Out, out_free, out_put
from pelton.core.log.log cimport Log
from pelton.core.log.segment cimport Segment
from pelton.core.log.subject_index cimport SubjectIndex
from pelton.core.log.subject_table cimport LAST_STALE, History, Subject, SubjectState
from pelton.core.protocol.overlaps cimport Patterns
from pelton.core.protocol.subjects cimport subject_has_wildcard

cdef enum:
    FEW = 16                     # up to this many subjects are searched in their histories, and patterns in the index, one by one
    REPEATED_MAX = 65536         # matches of a list of patterns that an earlier pattern of the list had, too
    SORT_IDS = 512               # subjects of a page that are sorted in one step
    SPARSE = 16                  # with fewer than one wanted message in 16, searching each is cheaper than reading all entries


cdef class Wanted:
    """The subjects of a log that match a pattern and have live messages."""

    def __cinit__(self):
        memset(&self.ids, 0, sizeof(Out))

    def __dealloc__(self) -> None:
        out_free(&self.ids)

    cdef uint32_t id(self, size_t k) noexcept:
        return (<uint32_t*>self.ids.data)[k]

    cdef Subject* subject(self, size_t k) noexcept:
        return &self.log.subjects_table.table[(<uint32_t*>self.ids.data)[k]]

    cdef const uint8_t* at(self) except NULL:
        cdef uint8_t* flags
        cdef size_t k
        if self.flags is None:
            self.flags = PyBytes_FromStringAndSize(NULL, max(self.log.subjects_table.count, 1))
            flags = <uint8_t*>PyBytes_AS_STRING(self.flags)
            memset(flags, self.every, PyBytes_GET_SIZE(self.flags))
            for k in range(self.n):
                flags[self.id(k)] = 1
        return <const uint8_t*>PyBytes_AS_STRING(self.flags)

    cdef uint32_t count(self) noexcept:
        return self.log.subjects_table.count

    cdef uint64_t messages(self) noexcept:
        cdef uint64_t total = 0
        cdef size_t k
        if self.every:
            return self.log.msgs
        for k in range(self.n):
            total += self.subject(k).state.msgs
        return total


cdef int find(Wanted w, str pattern) except -1:
    # Appends the ids of the subjects that match, including subjects without live messages.
    cdef bytes text = pattern.encode("utf-8", "surrogateescape")
    cdef const char* p = PyBytes_AS_STRING(text)
    cdef size_t n = PyBytes_GET_SIZE(text)
    cdef int64_t only
    cdef uint32_t id
    if subject_has_wildcard(p, n):
        (<SubjectIndex>names_of(w.log)).match(p, n, &w.ids)
        return 0
    only = w.log.find_subject(p, <uint32_t>n)
    if only >= 0:
        id = <uint32_t>only
        out_put(&w.ids, <const char*>&id, sizeof(uint32_t))
    return 0


cdef object names_of(Log log):
    if log.subjects_table.names is None:
        log.subjects_table.keep_index(SubjectIndex(log.subjects_table))
    return log.subjects_table.names


cdef int keep_live(Wanted w) except -1:
    cdef uint32_t* ids = <uint32_t*>w.ids.data
    cdef size_t k, found = w.ids.len // sizeof(uint32_t)
    w.n = 0
    for k in range(found):
        if w.log.subjects_table.table[ids[k]].state.msgs:
            ids[w.n] = ids[k]
            w.n += 1
    w.ids.len = w.n * sizeof(uint32_t)                 # drops the ids without live messages
    return 0


cdef Wanted wanted_of(Log log, str pattern, bint listed):
    # `listed`: list the ids also for the pattern `>`.
    cdef Wanted w = Wanted()
    cdef uint32_t id
    w.log = log
    w.every = pattern == ">"
    if w.every and listed:
        w.every = False
        for id in range(log.subjects_table.count):
            out_put(&w.ids, <const char*>&id, sizeof(uint32_t))
    elif not w.every:
        find(w, pattern)
    keep_live(w)
    if w.n and w.n == log.subjects_table.live and not listed:
        w.every = True
    return w


cdef object name_of(Log log, uint32_t id):
    cdef Subject* s = &log.subjects_table.table[id]
    return s.state.name[:s.state.name_len].decode("utf-8", "surrogateescape")


# --- subjects --------------------------------------------------------------------------------------------------------------

def subjects(Log log, pattern: str = ">") -> dict[str, int]:
    """Subject -> live messages, for subjects that match."""
    cdef Wanted w = wanted_of(log, pattern, True)
    cdef size_t k
    return {name_of(log, w.id(k)): w.subject(k).state.msgs for k in range(w.n)}


def subject_state(Log log, subject: str) -> tuple[int, int, int]:
    """(live messages, first sequence, last sequence) of one subject; zeros when it has none."""
    cdef bytes name = subject.encode("utf-8", "surrogateescape")
    cdef int64_t id = log.find_subject(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    cdef SubjectState* state = log.subject(<uint32_t>id) if id >= 0 else NULL
    if state == NULL:
        return (0, 0, 0)
    return (state.msgs, state.first, state.last)


cdef class SubjectsPage:
    """A page of the subjects that match, ordered by name: runs of ids are sorted one by one, then merged step by step."""

    def __cinit__(self):
        memset(&self.runs, 0, sizeof(Out))
        memset(&self.heap, 0, sizeof(Out))

    def __dealloc__(self) -> None:
        out_free(&self.runs)
        out_free(&self.heap)

    def __init__(self, Log log, pattern: str, offset: int, limit: int) -> None:
        self.w = wanted_of(log, pattern, True)
        self.index = names_of(log)
        self.table = log.subjects_table
        self.count = self.table.count
        self.total = self.w.n
        self.before = min(max(offset, 0), self.total)
        self.left = min(max(limit, 0), self.total - self.before)

    def sort(self) -> bool:
        """Sort one more run; whether more are to be sorted."""
        cdef uint32_t scratch[SORT_IDS]
        cdef uint32_t* ids = <uint32_t*>self.w.ids.data
        cdef Run run
        if not self.left or self.sorted >= self.total or not self.sound():
            return False
        run.at = self.sorted
        run.end = self.sorted = min(self.sorted + SORT_IDS, self.total)
        self.index.sort(ids + run.at, run.end - run.at, scratch)
        if run.at and self.index.compare(ids[run.at - 1], ids[run.at]) <= 0:
            (<Run*>(self.runs.data + self.runs.len) - 1).end = run.end          # the run before it continues
        else:
            out_put(&self.runs, <const char*>&run, sizeof(Run))
        if self.sorted == self.total:
            self.pile()
        return self.sorted < self.total

    def take(self, most: int) -> dict[str, int] | None:
        """Subject -> live messages for the next subjects of the page, after looking at `most`; None: that was all."""
        cdef dict found = {}
        cdef uint32_t id
        cdef int64_t looked = most
        if not self.left or not self.sound():
            return None
        while looked > 0 and self.left:
            looked -= 1
            id = self.pop()
            if self.before:
                self.before -= 1
                continue
            self.left -= 1
            if self.table.table[id].state.msgs:
                found[name_of(self.w.log, id)] = self.table.table[id].state.msgs
        return found

    cdef bint sound(self) noexcept:
        """Whether the ids are still those of the log: a page ends early when the log has begun anew."""
        if self.w.log.subjects_table is not self.table or self.table.count < self.count:
            self.left = 0
        return self.left > 0

    cdef int pile(self) except -1:
        """Make a heap of the runs."""
        cdef uint32_t run, n = <uint32_t>(self.runs.len // sizeof(Run))
        for run in range(n):
            out_put(&self.heap, <const char*>&run, sizeof(uint32_t))
        for run in range(n // 2, 0, -1):
            self.sink(run - 1)
        return 0

    cdef uint32_t pop(self) noexcept:
        """Take the subject with the lowest name."""
        cdef uint32_t* heap = <uint32_t*>self.heap.data
        cdef Run* run = <Run*>self.runs.data + heap[0]
        cdef uint32_t id = self.w.id(run.at)
        run.at += 1
        if run.at == run.end:
            self.heap.len -= sizeof(uint32_t)
            heap[0] = heap[self.heap.len // sizeof(uint32_t)]
        self.sink(0)
        return id

    cdef void sink(self, size_t at) noexcept:
        cdef uint32_t* heap = <uint32_t*>self.heap.data
        cdef size_t n = self.heap.len // sizeof(uint32_t), child
        while 2 * at + 1 < n:
            child = 2 * at + 1
            if child + 1 < n and self.lower(heap[child + 1], heap[child]):
                child += 1
            if not self.lower(heap[child], heap[at]):
                break
            heap[at], heap[child] = heap[child], heap[at]
            at = child

    cdef bint lower(self, uint32_t one, uint32_t other) noexcept:
        cdef Run* runs = <Run*>self.runs.data
        return self.index.compare(self.w.id(runs[one].at), self.w.id(runs[other].at)) < 0


def subjects_page(Log log, pattern: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
    """How many subjects match, and `limit` of them from `offset` on, ordered by name."""
    page = SubjectsPage(log, pattern, offset, limit)
    while page.sort():
        pass
    return page.total, page.take(page.total) or {}


cdef bint want_matching(Wanted w, list patterns, uint8_t* seen, int64_t most) except -1:
    # Adds the subjects that match one of the patterns, and marks them; False: there are more than `most`.
    cdef Patterns together = Patterns()
    cdef SubjectState* state
    cdef uint32_t id
    cdef bytes text
    for pattern in patterns:
        text = (<str>pattern).encode("utf-8", "surrogateescape")
        together.insert(PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), 0)
    for id in range(w.log.subjects_table.count):
        state = &w.log.subjects_table.table[id].state
        if state.msgs and together.matches(state.name, state.name_len):
            seen[id] = 1
            out_put(&w.ids, <const char*>&id, sizeof(uint32_t))
            w.n += 1
            if 0 <= most < <int64_t>w.n:
                return False
    return True


cdef Wanted wanted_of_all(Log log, list patterns, int64_t most):
    # The subjects that match one of the patterns, each once; None: there are more than `most` (-1: any number), or too much repeats.
    cdef Wanted w = Wanted()
    cdef str pattern
    cdef bytes marks = bytes(log.subjects_table.count)
    cdef uint8_t* seen = <uint8_t*>PyBytes_AS_STRING(marks)
    cdef uint32_t* ids
    cdef size_t k, n, repeated = 0
    w.log = log
    if ">" in patterns:
        return None if 0 <= most < <int64_t>log.subjects_table.live else wanted_of(log, ">", True)
    cdef list unique = list(dict.fromkeys(patterns))
    cdef list wild = [pattern for pattern in unique if "*" in pattern or ">" in pattern]
    if len(wild) > FEW:
        # each subject is compared once with all of them, not all subjects with each
        unique = [pattern for pattern in unique if not ("*" in pattern or ">" in pattern)]
        if not want_matching(w, wild, seen, most):
            return None
    for pattern in unique:
        find(w, pattern)
        ids = <uint32_t*>w.ids.data
        n = w.ids.len // sizeof(uint32_t)
        for k in range(w.n, n):
            if seen[ids[k]]:
                repeated += 1
            elif log.subjects_table.table[ids[k]].state.msgs:
                seen[ids[k]] = 1
                ids[w.n] = ids[k]
                w.n += 1
        w.ids.len = w.n * sizeof(uint32_t)
        if 0 <= most < <int64_t>w.n or repeated > REPEATED_MAX:
            return None
    return w


def last_of_each(Log log, patterns: list[str], upto: int, most: int) -> list[int] | None:
    """For each subject that matches a pattern, the last live sequence <= upto, ascending; None: there are more than `most`.

    None also when the patterns have very many matches in common: all other clients wait for the answer.
    """
    cdef Wanted w = wanted_of_all(log, patterns, most if upto >= log.span.last_seq else -1)
    cdef list found = []
    cdef uint64_t top = min(max(upto, 0), log.span.last_seq), seq
    cdef size_t k, straddles = 0
    if w is None:
        return None
    for k in range(w.n):
        straddles += w.subject(k).state.first <= top < w.subject(k).state.last
    if straddles > FEW:
        log.subjects_table.history_of(w.id(0))         # builds the histories if queries have cost enough by now
        if not log.subjects_table.tracking:
            return last_by_walk(w, top, straddles, most)
    for k in range(w.n):
        if w.subject(k).state.first > top:             # `first` may be a lower bound
            continue
        seq = log.subjects_table.last_upto(w.id(k), top)
        if seq:
            found.append(seq)
            if len(found) > most:
                return None
    found.sort()
    return found


cdef list last_by_walk(Wanted w, uint64_t top, size_t straddles, size_t most):
    # last_of_each() for subjects without histories that have messages on both sides of `upto`: goes backwards through the index
    # until each subject was seen.
    cdef list found = []
    cdef uint8_t* flags
    cdef uint64_t seq = top
    cdef uint32_t id, size
    cdef Subject* s
    cdef size_t k
    w.some_flags = PyBytes_FromStringAndSize(NULL, w.count())
    flags = <uint8_t*>PyBytes_AS_STRING(w.some_flags)
    memset(flags, 0, w.count())
    for k in range(w.n):
        s = w.subject(k)
        if s.state.first <= top < s.state.last:
            flags[w.id(k)] = 1
        elif s.state.last <= top:
            found.append(w.log.subject(w.id(k)).last)
    while straddles and seq and len(found) <= most:
        seq = w.log.segments.prev_wanted(seq, flags, w.count())
        if seq == 0:
            break
        w.log.peek(seq, &id, &size)
        flags[id] = 0
        straddles -= 1
        found.append(seq)
        seq -= 1
    w.log.subjects_table.looked_at(top - seq)
    if len(found) > most:
        return None
    found.sort()
    return found


# --- one message -----------------------------------------------------------------------------------------------------------

def next_of(Log log, pattern: str, start: int) -> object:
    """The oldest message with sequence >= start whose subject matches, or None."""
    cdef Wanted w = wanted_of(log, pattern, False)
    cdef uint64_t seq = max(start, 1)
    while True:
        if seq > log.span.last_seq:
            return None
        seq = next_wanted(w, seq)
        if seq == 0:
            return None
        found = log.get(seq)
        if found is not None:
            return found
        seq += 1


cdef uint64_t next_wanted(Wanted w, uint64_t seq) except? 18446744073709551615:
    # The lowest live sequence >= seq of a wanted subject; 0: none.
    cdef uint64_t best = 0, low = 0, high = 0, found
    cdef Subject* s
    cdef size_t k
    if w.every:
        return w.log.next_live(seq)
    if w.n > FEW:
        for k in range(w.n):
            s = w.subject(k)
            if s.state.msgs and s.state.last >= seq:
                if low == 0 or s.state.first < low:
                    low = s.state.first
                if s.state.last > high:
                    high = s.state.last
        return w.log.next_wanted(max(seq, low), high, w.at(), w.count()) if high else 0
    for k in range(w.n):
        s = w.subject(k)
        if s.state.msgs and s.state.last >= seq and (best == 0 or s.state.first < best):
            found = w.log.subjects_table.next_from(w.id(k), seq)
            if found and (best == 0 or found < best):
                best = found
    return best


cdef uint64_t walk(Wanted w, uint64_t seq) except? 18446744073709551615:
    # Like next_wanted, for a caller that goes on from message to message.
    cdef uint64_t found
    if w.every or (w.n <= FEW and w.log.subjects_table.tracking):
        return next_wanted(w, seq)
    found = w.log.next_wanted(seq, w.log.span.last_seq, w.at(), w.count())
    if w.n <= FEW:
        w.log.subjects_table.looked_at((found if found else w.log.span.last_seq) - seq)
    return found


def next_seq(Log log, pattern: str, start: int) -> int:
    """The lowest live sequence >= start whose subject matches; 0: none."""
    return next_wanted(wanted_of(log, pattern, False), max(start, 1))


def last_seq_of(Log log, pattern: str) -> int:
    """The highest live sequence whose subject matches; 0: none."""
    return prev_wanted(wanted_of(log, pattern, False), log.span.last_seq)


def last_of(Log log, pattern: str, upto: int | None = None) -> object:
    """The newest message (with sequence <= upto) whose subject matches, or None."""
    cdef Wanted w = wanted_of(log, pattern, False)
    cdef uint64_t seq = log.span.last_seq if upto is None else min(max(upto, 0), log.span.last_seq)
    while True:
        seq = prev_wanted(w, seq) if seq else 0
        if seq == 0:
            return None
        found = log.get(seq)
        if found is not None:
            return found
        seq -= 1


cdef uint64_t prev_wanted(Wanted w, uint64_t seq) except? 18446744073709551615:
    # The highest live sequence <= seq of a wanted subject; 0: none.
    cdef uint64_t best = 0, found
    cdef Subject* s
    cdef size_t k
    if w.every:
        return w.log.segments.prev_live(seq)
    if seq >= w.log.span.last_seq:
        return newest(w)
    for k in range(w.n):
        s = w.subject(k)
        if s.state.msgs == 0 or s.state.first > seq:
            continue
        if w.n > FEW:
            found = min(seq, s.state.last)
        else:
            found = w.log.subjects_table.last_upto(w.id(k), seq) if s.state.last > best else 0
        best = max(best, found)
    return w.log.segments.prev_wanted(best, w.at(), w.count()) if w.n > FEW and best else best


cdef uint64_t newest(Wanted w) except? 18446744073709551615:
    # The highest sequence of all wanted subjects. An upper bound is made exact only if it would be the highest.
    cdef Subject* s
    cdef uint64_t best = 0
    cdef size_t k
    for k in range(w.n):
        s = w.subject(k)
        if s.state.msgs and s.state.last > best:
            if s.stale & LAST_STALE:
                w.log.subject(w.id(k))
                if s.state.last <= best:
                    continue
            best = s.state.last
    return best


# --- many ------------------------------------------------------------------------------------------------------------------

def count_from(Log log, seq: int, pattern: str = ">") -> int:
    """The number of live messages with sequence >= seq whose subject matches."""
    return wanted_from(wanted_of(log, pattern, False), max(seq, 0))


cdef uint64_t wanted_from(Wanted w, uint64_t seq) except? 18446744073709551615:
    # A subject with all messages on one side of seq is counted from its state. The other subjects are counted in the segments,
    # on the side of seq that has fewer sequences.
    cdef uint64_t total = 0, inside = 0, low = 0, high = 0
    cdef Subject* s
    cdef size_t k
    if w.every:
        return w.log.live_from(seq)
    if seq <= w.log.span.first_seq:
        return w.messages()
    for k in range(w.n):
        s = w.subject(k)
        if s.state.last < seq:
            continue
        total += s.state.msgs
        if s.state.first < seq:
            inside += s.state.msgs
            if low == 0 or s.state.first < low:
                low = s.state.first
            high = max(high, s.state.last)
    if inside == 0:
        return total
    if w.log.subjects_table.tracking and inside * SPARSE < high - low:
        return total - inside + inside_from(w, seq)
    # only the subjects with messages on both sides have flags here: the others are counted already
    if high - seq < seq - low:
        return total - inside + w.log.segments.count_wanted(seq, high, straddling(w, seq), w.count())
    return total - w.log.segments.count_wanted(low, seq - 1, straddling(w, seq), w.count())


cdef uint64_t inside_from(Wanted w, uint64_t seq) except? 18446744073709551615:
    # Counts live messages from seq on in the histories, for the subjects that have messages below seq, too.
    cdef uint64_t total = 0
    cdef Subject* s
    cdef History* h
    cdef size_t k
    cdef uint32_t at
    for k in range(w.n):
        s = w.subject(k)
        if s.state.first >= seq or s.state.last < seq:
            continue
        h = s.history
        if h == NULL:
            total += w.log.subjects_table.last_upto(w.id(k), w.log.span.last_seq) >= seq        # the only message of the subject
            continue
        at = h.end
        while at > h.at and h.seqs[at - 1] >= seq:
            at -= 1
            total += w.log.subjects_table.alive(h.seqs[at])
    return total


cdef const uint8_t* straddling(Wanted w, uint64_t seq) except NULL:
    cdef uint8_t* flags
    cdef Subject* s
    cdef size_t k
    w.some_flags = PyBytes_FromStringAndSize(NULL, w.count())
    flags = <uint8_t*>PyBytes_AS_STRING(w.some_flags)
    memset(flags, 0, w.count())
    for k in range(w.n):
        s = w.subject(k)
        flags[w.id(k)] = s.state.first < seq <= s.state.last
    return flags


def deleted(Log log, start: int = 0, most: int = -1) -> list[tuple[int, int]]:
    """Holes between first_seq and last_seq, as (first, count), ascending: at most `most` from a sequence on (-1: all)."""
    cdef list holes = []
    cdef Segment s
    cdef uint64_t at = max(start, log.span.first_seq)
    cdef uint32_t i, k
    for s in log.segments.items:
        if s.first + s.count <= at:
            continue
        i = <uint32_t>(at - s.first) if at > s.first else 0
        while i < s.count:
            k = s.next_live(i)
            if k < s.count:
                if s.first + k > at:
                    holes.append((at, s.first + k - at))
                    if len(holes) == most:
                        return holes
                at = s.first + k + 1
                # A run of live messages; the fast way when none of the segment is removed.
                if s.dead == NULL:
                    at = s.first + s.count
                    break
            i = k + 1
    if at <= log.span.last_seq:
        holes.append((at, log.span.last_seq + 1 - at))
    return holes


def purge_subjects(Log log, pattern: str, below: int | None = None, keep: int = 0) -> int:
    """Remove messages whose subject matches, below a sequence and/or all but the newest `keep`; how many."""
    cdef Wanted w = wanted_of(log, pattern, False)
    cdef uint64_t stop = log.span.last_seq if below is None else min(max(below, 1) - 1, log.span.last_seq)
    cdef uint64_t seq = log.span.first_seq
    cdef uint64_t budget, total, n = 0
    if keep < 0:
        raise ValueError(f"keep is 0 or more, not {keep}")
    if log.msgs == 0:
        return 0
    total = w.messages()
    if total <= <uint64_t>keep:
        return 0
    budget = total - <uint64_t>keep
    if not w.every and total * SPARSE < log.msgs:
        if log.subjects_table.tracking:
            return purge_known(w, stop, budget)
        if w.n == 1 or (w.n <= FEW and keep == 0):
            return purge_each(w, stop, budget)
    seq = next_wanted(w, log.span.first_seq)
    while budget and 0 < seq <= stop:
        log.remove(seq)
        n += 1
        budget -= 1
        seq = log.next_wanted(seq + 1, stop, w.at(), w.count())
    return n


cdef uint64_t purge_known(Wanted w, uint64_t stop, uint64_t budget) except? 18446744073709551615:
    # Finds the messages in the histories and removes them in ascending order, so that each segment is loaded once.
    cdef list found = []
    cdef Subject* s
    cdef History* h
    cdef size_t k
    cdef uint32_t at
    cdef uint64_t seq, n = 0
    for k in range(w.n):
        s = w.subject(k)
        h = s.history
        if h == NULL:
            found.append(w.log.subjects_table.state(w.id(k)).first)
            continue
        for at in range(h.at, h.end):
            if h.seqs[at] <= stop:
                found.append(h.seqs[at])
    found.sort()
    for seq in found:
        if n == budget or seq > stop:
            break
        n += w.log.remove(seq)
    return n


cdef uint64_t purge_each(Wanted w, uint64_t stop, uint64_t budget) except? 18446744073709551615:
    # Goes from message to message of each subject; the entries between them are not read.
    cdef SubjectState* state
    cdef uint64_t n = 0
    cdef size_t k
    for k in range(w.n):
        state = w.log.subject(w.id(k))
        while state != NULL and state.first <= stop and n < budget:
            w.log.remove(state.first)
            n += 1
            state = w.log.subject(w.id(k))
    return n
