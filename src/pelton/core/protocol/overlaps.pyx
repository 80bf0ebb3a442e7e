"""Finding the patterns of a set that overlap another pattern, without comparing each pair.

The set is a trie whose nodes are in one array; the children of all nodes share one hash table. A query walks the tokens of its
pattern: a literal token continues at the same token and at `*`, a `*` at all tokens, and a `>` matches if there is anything below.
A query with many `*` over many different tokens may visit every node: `steps` counts the visited tokens, and with a bound the query
raises TooManyStepsError. Patterns are not validated, as in `collide` and `subset` of core/protocol/subjects. Knows nothing of streams.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from pelton.core.base.buffer cimport hash_bytes
from pelton.core.protocol.subject_nodes cimport is_star, is_tail, token_end
from pelton.core.protocol.subjects cimport patterns_collide

cdef enum:
    ROOT = 1
    FIRST_CAP = 8               # there may be several sets for each user
    GONE = 1                    # in the table; the root is never there
    NOBODY = -1                 # `apart`: every number counts


class TooManyStepsError(Exception):
    """A query has visited as many tokens as the bound allows."""


cdef class Patterns:
    """Patterns, each with a number."""

    def __init__(self, most_steps: int = 0) -> None:
        """`most_steps`: bound of the visited tokens of all queries together; 0: none."""
        self.most = most_steps

    def __cinit__(self, most_steps: int = 0):
        self.tokens_cap = self.cells_cap = FIRST_CAP
        self.table_cap = 4 * FIRST_CAP
        self.tokens = <Token*>calloc(self.tokens_cap, sizeof(Token))
        self.cells = <Cell*>calloc(self.cells_cap, sizeof(Cell))
        self.table = <uint32_t*>calloc(self.table_cap, sizeof(uint32_t))
        if self.tokens == NULL or self.cells == NULL or self.table == NULL:
            raise MemoryError("no room for a set of patterns")
        self.tokens_n = 2
        self.cells_n = 1

    def __dealloc__(self):
        cdef uint32_t k
        if self.tokens != NULL:
            for k in range(self.tokens_n):
                free(self.tokens[k].text)
        free(self.tokens)
        free(self.cells)
        free(self.table)

    # --- the nodes -----------------------------------------------------------------------------------------------------

    cdef uint32_t slot(self, uint32_t parent, const char* s, uint32_t size) noexcept:
        # Where the child is in the table, or where it would go.
        cdef uint32_t mask = self.table_cap - 1
        cdef uint32_t at = <uint32_t>(hash_bytes(s, size) ^ (<uint64_t>parent * 0x9E3779B97F4A7C15ULL >> 16)) & mask
        cdef uint32_t id, gone = GONE
        while True:
            id = self.table[at]
            if id == 0:
                return at if gone == GONE else gone
            if id == GONE:
                if gone == GONE:
                    gone = at
            elif (self.tokens[id].parent == parent and self.tokens[id].size == size
                    and memcmp(self.tokens[id].text, s, size) == 0):
                return at
            at = (at + 1) & mask

    cdef uint32_t child(self, uint32_t at, const char* s, const char* stop) noexcept:
        # The child of a literal token; 0: none.
        cdef uint32_t id = self.table[self.slot(at, s, <uint32_t>(stop - s))]
        return 0 if id == GONE else id

    cdef uint32_t make(self, uint32_t parent, const char* s, const char* stop) except 0:
        cdef uint32_t id = self.free_token, place, cap
        cdef void* grown
        cdef Token* token
        cdef char* text = <char*>malloc(<size_t>(stop - s) + 1)
        if text == NULL:
            raise MemoryError
        if id:
            self.free_token = self.tokens[id].behind
        else:
            if self.tokens_n == self.tokens_cap:
                cap = 2 * self.tokens_cap
                grown = realloc(self.tokens, cap * sizeof(Token))
                if grown == NULL:
                    free(text)
                    raise MemoryError
                self.tokens = <Token*>grown
                self.tokens_cap = cap
            id = self.tokens_n
            self.tokens_n += 1
        token = &self.tokens[id]
        memset(token, 0, sizeof(Token))
        memcpy(text, s, <size_t>(stop - s))
        token.text = text
        token.size = <uint32_t>(stop - s)
        token.parent = parent
        if is_star(s, stop):
            self.tokens[parent].star = id
            return id
        if is_tail(s, stop):
            self.tokens[parent].tail = id
            return id
        token.behind = self.tokens[parent].kid
        if token.behind:
            self.tokens[token.behind].before = id
        self.tokens[parent].kid = id
        place = self.slot(parent, s, token.size)
        self.table_used += self.table[place] == 0
        self.table[place] = id
        if 2 * self.table_used >= self.table_cap:
            self.rehash()
        return id

    cdef int rehash(self) except -1:
        # Twice the room when that is needed; those that are gone leave.
        cdef uint32_t* old = self.table
        cdef uint32_t old_cap = self.table_cap, live = 0, k, id
        cdef uint32_t cap = old_cap
        for k in range(old_cap):
            live += old[k] != 0 and old[k] != GONE
        if 4 * live >= old_cap:
            cap = 2 * old_cap
        self.table = <uint32_t*>calloc(cap, sizeof(uint32_t))
        if self.table == NULL:
            self.table = old
            raise MemoryError
        self.table_cap = cap
        self.table_used = live
        for k in range(old_cap):
            id = old[k]
            if id != 0 and id != GONE:
                self.table[self.slot(self.tokens[id].parent, self.tokens[id].text, self.tokens[id].size)] = id
        free(old)
        return 0

    cdef int prune(self, uint32_t at) except -1:
        # Frees nodes without a pattern and without children, from here upwards.
        cdef Token* token
        cdef Token* parent
        cdef uint32_t up
        while at != ROOT:
            token = &self.tokens[at]
            if token.cell or token.kid or token.star or token.tail:
                return 0
            up = token.parent
            parent = &self.tokens[up]
            if parent.star == at:
                parent.star = 0
            elif parent.tail == at:
                parent.tail = 0
            else:
                self.table[self.slot(up, token.text, token.size)] = GONE
                if token.before:
                    self.tokens[token.before].behind = token.behind
                else:
                    parent.kid = token.behind
                if token.behind:
                    self.tokens[token.behind].before = token.before
            free(token.text)
            token.text = NULL
            token.behind = self.free_token
            self.free_token = at
            at = up
        return 0

    cdef int insert(self, const char* s, size_t n, uint32_t number) except -1:
        cdef const char* end = s + n
        cdef const char* stop
        cdef uint32_t at = ROOT, next, cell, cap
        cdef void* grown
        while s <= end:
            stop = token_end(s, end)
            if is_star(s, stop):
                next = self.tokens[at].star
            elif is_tail(s, stop):
                next = self.tokens[at].tail
            else:
                next = self.child(at, s, stop)
            at = next if next else self.make(at, s, stop)
            s = stop + 1
        cell = self.free_cell
        if cell:
            self.free_cell = self.cells[cell].next
        else:
            if self.cells_n == self.cells_cap:
                cap = 2 * self.cells_cap
                grown = realloc(self.cells, cap * sizeof(Cell))
                if grown == NULL:
                    raise MemoryError
                self.cells = <Cell*>grown
                self.cells_cap = cap
            cell = self.cells_n
            self.cells_n += 1
        self.cells[cell].number = number
        self.cells[cell].next = self.tokens[at].cell
        self.tokens[at].cell = cell
        self.count += 1
        return 0

    # --- questions -----------------------------------------------------------------------------------------------------
    # Each gives 1 as soon as the answer is yes; with `found` it goes on, and puts there the numbers of all that answer.
    # Recursion only where a token can go two ways, so it is as deep as the shorter of pattern and trie.

    cdef int step(self) except -1:
        self.steps += 1
        if self.most and self.steps > self.most:
            raise TooManyStepsError(f"more than {self.most} steps")
        return 0

    cdef int ending(self, uint32_t at, int64_t apart, set found) except -1:
        cdef uint32_t cell = self.tokens[at].cell
        while cell:
            if <int64_t>self.cells[cell].number != apart:
                if found is None:
                    return 1
                found.add(self.cells[cell].number)
            cell = self.cells[cell].next
        return 0

    cdef int below(self, uint32_t at, int64_t apart, set found) except -1:
        # Whether anything ends below this node: a walk without recursion.
        cdef uint32_t here = at, next
        while True:
            next = self.tokens[here].star
            if not next:
                next = self.tokens[here].tail
            if not next:
                next = self.tokens[here].kid
            while not next:                     # up, to the next neighbour
                if here == at:
                    return 0
                next = self.after(here)
                here = self.tokens[here].parent
            here = next
            self.step()
            if self.ending(here, apart, found):
                return 1

    cdef uint32_t after(self, uint32_t id) noexcept:
        # The next sibling in the order star, tail, literals.
        cdef Token* parent = &self.tokens[self.tokens[id].parent]
        if parent.star == id:
            return parent.tail if parent.tail else parent.kid
        if parent.tail == id:
            return parent.kid
        return self.tokens[id].behind

    cdef int meet(self, uint32_t at, const char* s, const char* end, int64_t apart, set found) except -1:
        # Whether a pattern below this node and the rest s..end match a subject both.
        cdef const char* stop
        cdef uint32_t next
        while True:
            self.step()
            stop = token_end(s, end)
            if is_tail(s, stop):
                return self.below(at, apart, found)
            if self.tokens[at].tail:            # it takes at least the token that is here
                next = self.tokens[at].tail
                if self.ending(next, apart, found) or self.below(next, apart, found):
                    return 1
            if is_star(s, stop):
                next = self.tokens[at].kid
                while next:
                    if self.ending(next, apart, found) if stop == end else self.meet(next, stop + 1, end, apart, found):
                        return 1
                    self.step()
                    next = self.tokens[next].behind
            else:
                next = self.child(at, s, stop)
                if next:
                    if self.ending(next, apart, found) if stop == end else self.meet(next, stop + 1, end, apart, found):
                        return 1
            at = self.tokens[at].star
            if not at:
                return 0
            if stop == end:
                return self.ending(at, apart, found)
            s = stop + 1

    cdef int over(self, uint32_t at, const char* s, const char* end, int64_t apart, set found) except -1:
        # Whether a pattern below this node matches all that the rest s..end matches.
        cdef const char* stop
        cdef uint32_t next
        while True:
            self.step()
            stop = token_end(s, end)
            if self.tokens[at].tail:
                next = self.tokens[at].tail
                if self.ending(next, apart, found) or self.below(next, apart, found):
                    return 1
            if is_tail(s, stop):
                return 0
            if not is_star(s, stop):
                next = self.child(at, s, stop)
                if next and not self.tokens[at].star and stop != end:
                    at = next
                    s = stop + 1
                    continue
                if next:
                    if (self.ending(next, apart, found) if stop == end
                            else self.over(next, stop + 1, end, apart, found)):
                        return 1
            at = self.tokens[at].star
            if not at:
                return 0
            if stop == end:
                return self.ending(at, apart, found)
            s = stop + 1

    cdef int matched(self, uint32_t at, const char* s, const char* end, set found) except -1:
        # Whether a pattern below this node matches the rest s..end of a literal subject.
        cdef const char* stop
        cdef uint32_t next
        while True:
            self.steps += 1
            if self.tokens[at].tail and self.ending(self.tokens[at].tail, NOBODY, found):
                return 1
            stop = token_end(s, end)
            next = self.child(at, s, stop)
            if next and not self.tokens[at].star and stop != end:
                at = next
                s = stop + 1
                continue
            if next:
                if (self.ending(next, NOBODY, found) if stop == end
                        else self.matched(next, stop + 1, end, found)):
                    return 1
            at = self.tokens[at].star
            if not at:
                return 0
            if stop == end:
                return self.ending(at, NOBODY, found)
            s = stop + 1

    cdef bint matches(self, const char* s, size_t n) except -1:
        return self.matched(ROOT, s, s + n, None) == 1

    cdef int gather_matches(self, const char* s, size_t n, set found) except -1:
        return self.matched(ROOT, s, s + n, found)

    cdef int gather_covers(self, const char* s, size_t n, set found) except -1:
        return self.over(ROOT, s, s + n, NOBODY, found)

    cdef bint covered(self, const char* s, size_t n) except -1:
        return self.over(ROOT, s, s + n, NOBODY, None) == 1

    cdef int met(self, const char* s, size_t n, uint64_t most_steps, set found) except -1:
        cdef uint64_t before = self.most
        self.most = self.steps + most_steps
        try:
            return self.meet(ROOT, s, s + n, NOBODY, found)
        except TooManyStepsError:
            return TOO_MANY
        finally:
            self.most = before

    def bound(self, most_steps: int) -> None:
        """Bound the visited tokens of all later queries together; 0: no bound."""
        self.most = self.steps + <uint64_t>most_steps if most_steps else 0

    # --- for Python ----------------------------------------------------------------------------------------------------

    def add(self, pattern: str, number: int) -> None:
        """Add a pattern with a number."""
        cdef bytes p = pattern.encode("utf-8", "surrogateescape")
        self.insert(PyBytes_AS_STRING(p), <size_t>PyBytes_GET_SIZE(p), number)

    def drop(self, pattern: str, number: int) -> bool:
        """Remove one (pattern, number) pair; whether it was there."""
        cdef bytes p = pattern.encode("utf-8", "surrogateescape")
        cdef const char* s = PyBytes_AS_STRING(p)
        cdef const char* end = s + PyBytes_GET_SIZE(p)
        cdef const char* stop
        cdef uint32_t at = ROOT, wanted = number, cell, before = 0
        while s <= end:
            stop = token_end(s, end)
            if is_star(s, stop):
                at = self.tokens[at].star
            elif is_tail(s, stop):
                at = self.tokens[at].tail
            else:
                at = self.child(at, s, stop)
            if not at:
                return False
            s = stop + 1
        cell = self.tokens[at].cell
        while cell and self.cells[cell].number != wanted:
            before, cell = cell, self.cells[cell].next
        if not cell:
            return False
        if before:
            self.cells[before].next = self.cells[cell].next
        else:
            self.tokens[at].cell = self.cells[cell].next
        self.cells[cell].next = self.free_cell
        self.free_cell = cell
        self.count -= 1
        self.prune(at)
        return True

    def collides(self, pattern: str, apart: int = NOBODY) -> bool:
        """Whether a subject matches this pattern and one here of another number than `apart`."""
        cdef bytes p = pattern.encode("utf-8", "surrogateescape")
        return self.meet(ROOT, PyBytes_AS_STRING(p), PyBytes_AS_STRING(p) + PyBytes_GET_SIZE(p), apart, None) == 1

    def colliding(self, pattern: str) -> set:
        """The numbers of all patterns that some subject matches as well as this one."""
        cdef bytes p = pattern.encode("utf-8", "surrogateescape")
        cdef set found = set()
        self.meet(ROOT, PyBytes_AS_STRING(p), PyBytes_AS_STRING(p) + PyBytes_GET_SIZE(p), NOBODY, found)
        return found

    def covers(self, pattern: str, apart: int = NOBODY) -> bool:
        """Whether one pattern here, of another number than `apart`, matches all that this one matches."""
        cdef bytes p = pattern.encode("utf-8", "surrogateescape")
        return self.over(ROOT, PyBytes_AS_STRING(p), PyBytes_AS_STRING(p) + PyBytes_GET_SIZE(p), apart, None) == 1

    def first_covering(self, pattern: str) -> int:
        """The lowest number of the patterns here that match all that this one matches; -1: there is none."""
        cdef bytes p = pattern.encode("utf-8", "surrogateescape")
        cdef set found = set()
        self.gather_covers(PyBytes_AS_STRING(p), <size_t>PyBytes_GET_SIZE(p), found)
        return min(found, default=-1)

    @property
    def nodes(self) -> int:
        """Tokens held, for tests that memory is released."""
        cdef uint32_t k
        return sum(self.tokens[k].text != NULL for k in range(2, self.tokens_n))


def first_collision(subjects: list, upto: int, most_steps: int = 0) -> tuple | None:
    """The first pair of places (one, later) whose patterns some subject matches both, `one` below `upto`; None: there is
    none. TooManyStepsError.
    """
    cdef Patterns behind = Patterns(most_steps)
    cdef Py_ssize_t k, first = -1
    cdef bytes p, other
    cdef list texts = [subject.encode("utf-8", "surrogateescape") for subject in subjects]
    for k in range(len(texts) - 1, -1, -1):
        p = texts[k]
        if k < upto and behind.meet(
                ROOT, PyBytes_AS_STRING(p), PyBytes_AS_STRING(p) + PyBytes_GET_SIZE(p), NOBODY, None):
            first = k
        behind.insert(PyBytes_AS_STRING(p), <size_t>PyBytes_GET_SIZE(p), <uint32_t>k)
    if first < 0:
        return None
    p = texts[first]
    for k in range(first + 1, len(texts)):
        other = texts[k]
        if patterns_collide(PyBytes_AS_STRING(p), PyBytes_GET_SIZE(p), PyBytes_AS_STRING(other), PyBytes_GET_SIZE(other)):
            return first, k
    raise AssertionError("the set of patterns and the look at each pair disagree")


def any_covered(subjects: list, most_steps: int = 0) -> bool:
    """Whether one pattern matches all that another one of the list matches. TooManyStepsError."""
    cdef Patterns all_of_them = Patterns(most_steps)
    cdef Py_ssize_t k
    for k, subject in enumerate(subjects):
        all_of_them.add(subject, k)
    for k, subject in enumerate(subjects):
        if all_of_them.covers(subject, k):
            return True
    return False
