"""An index by name: finds the subjects of a log that match a pattern without comparing each of them.

The subject table gives out ids in the order in which subjects are first seen, and reuses the ids of forgotten subjects. This index
divides the ids into runs. A query sorts full runs by name, and sorts a run again after names in it have changed; only a few runs per
query, so that no query takes long. Ids that are in no sorted run are compared one by one.

In a sorted run, subjects that begin with the same tokens are neighbours. So a subject that does not match tells where the next
candidate is: behind its branch, or at the token that the pattern wants. With a million subjects, `a.*.c` needs a few comparisons for
each second token; a pattern of one branch, such as `a.b.>`, needs one search and then reads only subjects that match.
"""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve
from pelton.core.log.subject_table cimport Subject, SubjectTable
from pelton.core.protocol.subjects cimport subject_matches

cdef enum:
    RUNS_EACH = 4            # runs that one query sorts at most: some milliseconds each
    # results of `step`
    MATCH = 0
    NEXT = 1                 # no match; the next subject may match
    SEEK = 2                 # no match before `key`
    DONE = 3                 # no further match


cdef class SubjectIndex:
    """The ids of a SubjectTable, in runs that are sorted by name."""

    def __init__(self, SubjectTable table) -> None:
        self.table = table
        self.run = table.run_ids
        self.scratch = <uint32_t*>malloc(self.run * sizeof(uint32_t))
        if self.scratch == NULL:
            raise MemoryError

    def __cinit__(self):
        memset(&self.key, 0, sizeof(Out))

    def __dealloc__(self) -> None:
        free(self.order)
        free(self.scratch)
        out_free(&self.key)

    cdef int match(self, const char* pattern, size_t n, Out* found) except -1:
        cdef Pattern taken
        cdef uint32_t first = 0
        self.advance()
        if take_apart(&taken, pattern, n):
            while first < self.table.ordered:
                if self.table.runs[first // self.run].mixed:
                    self.compare_each(first, first + self.run, pattern, n, found)
                else:
                    self.scan(&taken, self.order + first, found)
                first += self.run
        return self.compare_each(first, self.table.count, pattern, n, found)

    cdef int compare_each(self, uint32_t first, uint32_t end, const char* pattern, size_t n, Out* found) except -1:
        cdef uint32_t id
        cdef Subject* s
        for id in range(first, end):
            s = &self.table.table[id]
            if s.state.msgs and subject_matches(s.state.name, s.state.name_len, pattern, n):
                out_put(found, <const char*>&id, sizeof(uint32_t))
        return 0

    cdef int compare(self, uint32_t one, uint32_t other) noexcept:
        cdef uint32_t n = self.table.table[one].state.name_len, m = self.table.table[other].state.name_len
        cdef int c = memcmp(self.table.table[one].state.name, self.table.table[other].state.name, n if n < m else m) if n and m else 0
        return c if c else (n > m) - (n < m)

    cdef int compare_key(self, uint32_t id) noexcept:
        cdef size_t n = self.table.table[id].state.name_len, m = self.key.len
        cdef int c = memcmp(self.table.table[id].state.name, self.key.data, n if n < m else m) if n and m else 0
        return c if c else (n > m) - (n < m)

    # --- the order -----------------------------------------------------------------------------------------------------

    cdef int advance(self) except -1:
        cdef SubjectTable table = self.table
        cdef uint32_t k, id, cap, budget = RUNS_EACH
        cdef void* grown
        while budget and table.count - table.ordered >= self.run:
            if table.ordered + self.run > self.cap:
                cap = 2 * self.cap if self.cap else self.run
                grown = realloc(self.order, <size_t>cap * sizeof(uint32_t))
                if grown == NULL:
                    raise MemoryError
                self.order = <uint32_t*>grown
                self.cap = cap
            for id in range(self.run):
                self.order[table.ordered + id] = table.ordered + id
            table.run_added()
            budget -= 1
        budget = RUNS_EACH
        for k in range(table.ordered // self.run):
            if budget and table.runs[k].mixed and k != table.filling:
                self.sort(self.order + k * self.run, self.run, self.scratch)
                table.run_sorted(k)
                budget -= 1
        return 0

    cdef int sort(self, uint32_t* ids, size_t n, uint32_t* scratch) noexcept:
        # Merge sort from pairs up; neighbours that are in order already are not moved.
        cdef size_t width = 1, low, mid, high, i, j, k
        while width < n:
            low = 0
            while low + width < n:
                mid = low + width
                high = mid + width if mid + width < n else n
                if self.compare(ids[mid - 1], ids[mid]) > 0:
                    memcpy(scratch, ids + low, (mid - low) * sizeof(uint32_t))
                    i = 0
                    j = mid
                    k = low
                    while i < mid - low and j < high:
                        if self.compare(scratch[i], ids[j]) <= 0:
                            ids[k] = scratch[i]
                            i += 1
                        else:
                            ids[k] = ids[j]
                            j += 1
                        k += 1
                    memcpy(ids + k, scratch + i, (mid - low - i) * sizeof(uint32_t))
                low = high
            width *= 2
        return 0

    # --- searching one run -----------------------------------------------------------------------------------------------

    cdef int scan(self, Pattern* pattern, const uint32_t* run, Out* found) except -1:
        cdef size_t at
        cdef int what
        cdef Subject* s
        self.key.len = 0
        out_put(&self.key, pattern.text, pattern.prefix)
        at = self.seek(run, 0)
        while at < self.run:
            s = &self.table.table[run[at]]
            if s.state.name_len == 0:                   # ids without a subject come first
                at += 1
                continue
            what = self.step(pattern, s.state.name, s.state.name_len)
            if what == MATCH:
                out_put(found, <const char*>&run[at], sizeof(uint32_t))
            elif what == SEEK:
                at = self.seek(run, at + 1)
                continue
            elif what == DONE:
                return 0
            at += 1
        return 0

    cdef size_t seek(self, const uint32_t* run, size_t at) noexcept:
        # The first place from `at` on whose name is not below the key: in growing steps, then by bisection.
        cdef size_t step = 1, low = at, high, mid
        if at >= self.run or self.compare_key(run[at]) >= 0:
            return at
        while at + step < self.run and self.compare_key(run[at + step]) < 0:
            low = at + step
            step *= 2
        high = at + step if at + step < self.run else self.run
        low += 1
        while low < high:
            mid = (low + high) >> 1
            if self.compare_key(run[mid]) < 0:
                low = mid + 1
            else:
                high = mid
        return low

    cdef int step(self, Pattern* pattern, const char* s, size_t n) except -1:
        # `at`: start of the token of s that is compared with token k of the pattern; n + 1: s has no more tokens.
        cdef size_t at = 0, end, wanted
        cdef uint32_t k
        cdef int c
        cdef const char* literal
        cdef const char* dot
        for k in range(pattern.tokens):
            if at > n:
                return NEXT
            literal = pattern.text + pattern.start[k]
            wanted = pattern.length[k]
            if wanted == 1 and literal[0] == c'>' and k == pattern.tokens - 1:
                return MATCH
            dot = <const char*>memchr(s + at, c'.', n - at)
            end = n if dot == NULL else <size_t>(dot - s)
            if not (wanted == 1 and literal[0] == c'*') and (end - at != wanted or memcmp(s + at, literal, wanted) != 0):
                self.key.len = 0
                out_put(&self.key, s, at)
                out_put(&self.key, literal, wanted)
                c = memcmp(s + at, literal, wanted if wanted < n - at else n - at)
                if c < 0 or (c == 0 and n - at < wanted):
                    return SEEK                         # the wanted token comes later in this branch
                if k < pattern.tokens - 1:
                    out_put(&self.key, ".", 1)
                    c = memcmp(s + at, literal, wanted if wanted < n - at else n - at)
                    if c == 0 and n - at > wanted and <unsigned char>s[at + wanted] < c'.':
                        return SEEK                     # between `token` and `token.`
                return self.behind(at)
            at = end + 1
        if at > n:
            return MATCH
        # longer than the pattern, like all subjects with the same beginning
        self.key.len = 0
        out_put(&self.key, s, at)
        return self.behind(at)

    cdef int behind(self, size_t at) noexcept:
        # Sets the key behind all subjects that begin with its first `at` bytes, the last of which is a dot.
        if at == 0:
            return DONE
        self.key.len = at
        self.key.data[at - 1] = c'/'
        return SEEK


cdef bint take_apart(Pattern* pattern, const char* text, size_t n) noexcept:
    # Splits a pattern into tokens; False: it has too many.
    cdef const char* dot
    cdef size_t at = 0, end
    cdef bint plain = True
    pattern.text = text
    pattern.n = n
    pattern.tokens = 0
    pattern.prefix = 0
    while at <= n:
        if pattern.tokens == TOKENS_MAX:
            return False
        dot = <const char*>memchr(text + at, c'.', n - at)
        end = n if dot == NULL else <size_t>(dot - text)
        pattern.start[pattern.tokens] = <uint32_t>at
        pattern.length[pattern.tokens] = <uint32_t>(end - at)
        pattern.tokens += 1
        if end - at == 1 and (text[at] == c'*' or text[at] == c'>'):
            plain = False
        if plain:
            pattern.prefix = end + 1 if end < n else n
        at = end + 1
    return True
