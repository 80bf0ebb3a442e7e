"""Subjects: validation, wildcard matching and collision, and the subscription trie with its route cache.

Tokens are separated by '.', `*` matches one token, a last `>` one or more. Knows nothing of connections or
messages: the trie holds whatever objects its owner inserts.

The cache keeps a Route per literal subject from its second use on. Adding or removing a literal pattern drops the cached Route of
that subject. Adding a wildcard pattern makes all cached routes stale. Removing one drops them all, so that no cached route keeps
an object alive that was removed from the trie.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp

from pelton.core.base.buffer cimport hash_bytes
from pelton.core.base.maps cimport BytesMap
from pelton.core.protocol.subject_nodes cimport (
    Node, add_value, discard_below, is_star, is_tail, kid_to_insert, literal_kid, new_node, token_end,
)

cdef extern from *:
    """
    static inline PyObject** pelton_tuple_items(PyObject* t) { return ((PyTupleObject*)t)->ob_item; }
    """
    PyObject** pelton_tuple_items(object t) noexcept

cdef enum:
    TOKENS_MAX = 4096           # of a pattern: bounds the depth of recursion
    LINES_MAX = 65536           # routes kept,
    LINE_ITEMS_MAX = 2097152    # with so many objects in all,
    LINE_SUBJECT_MAX = 512      # of subjects that are not longer
    SEEN_SLOTS = 65536


cdef inline bint same(const char* a, const char* a_stop, const char* b, const char* b_stop) noexcept nogil:
    return a_stop - a == b_stop - b and memcmp(a, b, <size_t>(a_stop - a)) == 0


cdef bint subject_valid(const char* s, size_t n) noexcept nogil:
    cdef size_t i
    cdef size_t start = 0
    cdef char c
    if n == 0:
        return False
    for i in range(n):
        c = s[i]
        if c == c'.':
            if i == start or is_tail(s + start, s + i):
                return False
            start = i + 1
        elif c == c' ' or c == c'\t' or c == c'\r' or c == c'\n' or c == c'\f':
            return False
    return start < n


cdef bint tokens_filled(const char* s, size_t n) noexcept nogil:
    # Whether no token is empty: a subject with an empty one matches nothing, not even `>`.
    cdef const char* end = s + n
    cdef const char* stop
    while True:
        stop = token_end(s, end)
        if stop == s:
            return False
        if stop == end:
            return True
        s = stop + 1


cdef bint subject_has_wildcard(const char* s, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if (s[i] == c'*' or s[i] == c'>') and (i == 0 or s[i - 1] == c'.') and (i + 1 == n or s[i + 1] == c'.'):
            return True
    return False


cdef bint subject_literal(const char* s, size_t n) noexcept nogil:
    return subject_valid(s, n) and not subject_has_wildcard(s, n)


cdef bint subject_matches(const char* s, size_t n, const char* pattern, size_t pn) noexcept nogil:
    cdef const char* s_end = s + n
    cdef const char* p_end = pattern + pn
    cdef const char* s_stop
    cdef const char* p_stop
    while True:
        s_stop = token_end(s, s_end)
        p_stop = token_end(pattern, p_end)
        if is_tail(pattern, p_stop) and p_stop == p_end:
            return True
        if not is_star(pattern, p_stop) and not same(s, s_stop, pattern, p_stop):
            return False
        if s_stop == s_end or p_stop == p_end:
            return s_stop == s_end and p_stop == p_end
        s = s_stop + 1
        pattern = p_stop + 1


cdef bint patterns_collide(const char* a, size_t an, const char* b, size_t bn) noexcept nogil:
    cdef const char* a_end = a + an
    cdef const char* b_end = b + bn
    cdef const char* a_stop
    cdef const char* b_stop
    while True:
        a_stop = token_end(a, a_end)
        b_stop = token_end(b, b_end)
        if is_tail(a, a_stop) or is_tail(b, b_stop):
            return True                         # the other one has at least this token
        if not is_star(a, a_stop) and not is_star(b, b_stop) and not same(a, a_stop, b, b_stop):
            return False
        if a_stop == a_end or b_stop == b_end:
            return a_stop == a_end and b_stop == b_end
        a = a_stop + 1
        b = b_stop + 1


cdef bint pattern_subset(const char* a, size_t an, const char* b, size_t bn) noexcept nogil:
    cdef const char* a_end = a + an
    cdef const char* b_end = b + bn
    cdef const char* a_stop
    cdef const char* b_stop
    while True:
        a_stop = token_end(a, a_end)
        b_stop = token_end(b, b_end)
        if is_tail(b, b_stop):
            return True
        if is_tail(a, a_stop):
            return False
        if not is_star(b, b_stop) and not same(a, a_stop, b, b_stop):
            return False
        if a_stop == a_end or b_stop == b_end:
            return a_stop == a_end and b_stop == b_end
        a = a_stop + 1
        b = b_stop + 1


@cython.final
@cython.freelist(64)
cdef class Route:
    """The objects whose patterns match one literal subject; see the .pxd."""


cdef Route NOTHING = Route.__new__(Route)
NOTHING.held = ()


cdef Route own(Route route):
    # A route fit for the cache: NOTHING is shared, but a line must be its own to be made stale alone.
    if route is NOTHING:
        route = Route.__new__(Route)
        route.held = ()
    return route


cdef Route empty_route(uint64_t generation):
    cdef Route route = own(NOTHING)
    route.generation = generation
    return route


cdef class SubjectTrie:
    """Pattern -> objects. The same pair inserted twice is held twice; objects are compared by identity."""

    def __cinit__(self):
        self.generation = 1
        self.root = new_node(b"")
        self.lines = []
        self.free_lines = []
        self.line_of = BytesMap()
        self.seen = <uint16_t*>calloc(SEEN_SLOTS, sizeof(uint16_t))
        if self.seen == NULL:
            raise MemoryError("no room for a subject trie")

    def __dealloc__(self):
        free(self.seen)
        free(self.found)

    cdef int insert(self, const char* pattern, size_t n, object value) except -1:
        cdef const char* s = pattern
        cdef const char* end = pattern + n
        cdef const char* stop
        cdef Node node = self.root
        cdef size_t i
        cdef size_t tokens = 1
        if not subject_valid(pattern, n):
            raise ValueError(f"not a valid subject: {PyBytes_FromStringAndSize(pattern, <Py_ssize_t>n)!r}")
        for i in range(n):
            tokens += pattern[i] == c'.'
        if tokens > TOKENS_MAX:
            raise ValueError(f"a subject of {tokens} tokens; at most {TOKENS_MAX} are taken")
        while s <= end:
            stop = token_end(s, end)
            node = kid_to_insert(node, s, stop)
            s = stop + 1
        add_value(node, value)
        self.count += 1
        self.inserts += 1
        return self.changed(pattern, n, False)

    cdef bint discard(self, const char* pattern, size_t n, object value) except -1:
        if not discard_below(self.root, pattern, pattern + n, value):
            return False
        self.count -= 1
        self.changed(pattern, n, True)
        return True

    cdef int changed(self, const char* pattern, size_t n, bint removed) except -1:
        # Makes stale what a change of this pattern makes wrong.
        cdef uint64_t* line
        cdef uint64_t h
        cdef size_t i
        self.changes += 1
        if subject_has_wildcard(pattern, n):
            self.generation += 1
            if removed:
                self.drop_cache()
            return 0
        if self.line_of.count == 0:
            return 0
        h = hash_bytes(pattern, n)
        line = self.line_of.find(pattern, n, h)
        if line != NULL:
            i = <size_t>line[0]
            (<Route>self.lines[i]).generation = 0
            self.line_items -= <size_t>(<Route>self.lines[i]).n
            self.line_of.remove(pattern, n, h)
            self.lines[i] = None
            self.free_lines.append(i)
        return 0

    cdef int drop_cache(self) except -1:
        # The caller has moved the generation on: routes that somebody kept are stale, too.
        if self.line_of.count > 0:
            self.line_of.clear()
            self.lines = []
            self.free_lines = []
        self.line_items = 0
        return 0

    cdef Route route(self, const char* s, size_t n):
        cdef uint64_t h = hash_bytes(s, n)
        cdef uint64_t* line = self.line_of.find(s, n, h)
        cdef uint16_t* seen
        cdef uint16_t tag
        cdef uint64_t changes = self.changes
        cdef Route route
        cdef size_t i
        self.lookups += 1
        if line != NULL:
            i = <size_t>line[0]
            route = <Route>PyList_GET_ITEM(self.lines, <Py_ssize_t>i)
            if route.generation == self.generation:
                return route
            route = own(self.build(s, n))
            if self.changes == changes:
                route.generation = self.generation
                self.line_items -= <size_t>(<Route>self.lines[i]).n
                self.lines[i] = route
                self.keep(route)
            return route
        if n > LINE_SUBJECT_MAX:
            return self.build(s, n)
        seen = self.seen + ((h >> 1) & (SEEN_SLOTS - 1))
        tag = <uint16_t>(h >> 48) | 1
        if seen[0] != tag:
            seen[0] = tag
            return self.build(s, n)
        if self.line_of.count >= LINES_MAX:
            self.generation += 1
            self.drop_cache()
        route = own(self.build(s, n))
        if self.changes != changes:             # by a finalizer that ran meanwhile
            return route
        route.generation = self.generation
        if self.free_lines:
            i = self.free_lines.pop()
            self.lines[i] = route
        else:
            i = <size_t>len(self.lines)
            self.lines.append(route)
        self.line_of.put(s, n, h, i)
        self.keep(route)
        return route

    cdef int keep(self, Route route) except -1:
        # Counts a route that is cached now; when those hold too much in all, they go.
        self.line_items += <size_t>route.n
        if self.line_items > LINE_ITEMS_MAX:
            self.generation += 1
            self.drop_cache()
        return 0

    cdef Route match(self, const char* s, size_t n):
        self.lookups += 1
        return self.build(s, n)

    cdef Route match_for(self, const char* s, size_t n, uint64_t generation):
        cdef Route route = own(self.match(s, n))
        route.generation = generation
        return route

    cdef Route build(self, const char* s, size_t n):
        # A route that nobody else has, or NOTHING.
        cdef Route route
        cdef tuple held
        cdef PyObject** found
        cdef size_t found_n, found_cap, i
        self.misses += 1
        self.found_n = 0
        if tokens_filled(s, n):
            self.gather(self.root, s, s + n)
        if self.found_n == 0:
            return NOTHING
        # Making an object may collect garbage, and so run code that uses this trie: the scratch is ours meanwhile.
        found = self.found
        found_n = self.found_n
        found_cap = self.found_cap
        for i in range(found_n):
            Py_INCREF(<object>found[i])
        self.found = NULL
        self.found_cap = 0
        self.found_n = 0
        try:
            held = PyTuple_New(<Py_ssize_t>found_n)
            route = Route.__new__(Route)
        except BaseException:
            for i in range(found_n):
                Py_DECREF(<object>found[i])
            free(found)
            raise
        for i in range(found_n):
            PyTuple_SET_ITEM(held, <Py_ssize_t>i, <object>found[i])     # takes over our reference
        if self.found == NULL:
            self.found = found
            self.found_cap = found_cap
        else:
            free(found)
        route.held = held
        route.items = pelton_tuple_items(held)
        route.n = <int>found_n
        return route

    cdef int gather(self, Node node, const char* s, const char* end) except -1:
        # Appends the objects of all patterns below node that match the tokens s..end. Runs no foreign code, so the
        # objects need no reference of their own until it is through.
        cdef const char* stop
        cdef Node kid
        cdef bint last
        while True:
            stop = token_end(s, end)
            last = stop == end
            if node.tail is not None:
                self.gather_values(node.tail)
            if node.star is not None:
                if last:
                    self.gather_values(node.star)
                else:
                    self.gather(node.star, stop + 1, end)
            kid = literal_kid(node, s, stop)
            if kid is None:
                return 0
            if last:
                return self.gather_values(kid)
            node = kid
            s = stop + 1

    cdef int gather_values(self, Node node) except -1:
        cdef Py_ssize_t n, i
        if node.many is not None:
            self.grow_found(self.found_n + <size_t>len(node.many))
            for value in node.many.values():
                self.found[self.found_n] = <PyObject*>value
                self.found_n += 1
            return 0
        if node.values is None:
            return 0
        n = PyList_GET_SIZE(node.values)
        self.grow_found(self.found_n + <size_t>n)
        for i in range(n):
            self.found[self.found_n] = <PyObject*>PyList_GET_ITEM(node.values, i)
            self.found_n += 1
        return 0

    cdef int grow_found(self, size_t n) except -1:
        cdef size_t cap
        cdef PyObject** found
        if n <= self.found_cap:
            return 0
        cap = self.found_cap * 2 if self.found_cap else 16
        if cap < n:
            cap = n
        found = <PyObject**>realloc(self.found, cap * sizeof(PyObject*))
        if found == NULL:
            raise MemoryError(f"no room for {cap} matches")
        self.found = found
        self.found_cap = cap
        return 0

    def add(self, pattern: str | bytes, value: object) -> None:
        """Insert; ValueError when the pattern is not a valid subject."""
        cdef bytes p = encoded(pattern)
        self.insert(PyBytes_AS_STRING(p), <size_t>PyBytes_GET_SIZE(p), value)

    def drop(self, pattern: str | bytes, value: object) -> bool:
        """Remove one (pattern, value) pair; whether it was there."""
        cdef bytes p = encoded(pattern)
        return self.discard(PyBytes_AS_STRING(p), <size_t>PyBytes_GET_SIZE(p), value)

    def lookup(self, subject: str | bytes) -> list:
        """The objects whose patterns match a literal subject, through the cache."""
        cdef bytes s = encoded(subject)
        return list(self.route(PyBytes_AS_STRING(s), <size_t>PyBytes_GET_SIZE(s)).held)

    def lookup_once(self, subject: str | bytes) -> list:
        """As lookup, past the cache."""
        cdef bytes s = encoded(subject)
        return list(self.match(PyBytes_AS_STRING(s), <size_t>PyBytes_GET_SIZE(s)).held)

    @property
    def cached(self) -> int:
        """Routes in the cache."""
        return self.line_of.count

    def fanout(self) -> tuple:
        """Of the routes in the cache: how many objects the longest has, and all together."""
        cdef Route route
        cdef int longest = 0, total = 0
        for route in self.lines:
            if route is not None:
                longest = max(longest, route.n)
                total += route.n
        return longest, total

    @property
    def nodes(self) -> int:
        """Tokens held, for tests that memory is released."""
        cdef Node node
        waiting = [self.root]
        total = -1
        while waiting:
            node = waiting.pop()
            total += 1
            waiting.extend(kid for kid in (node.star, node.tail) if kid is not None)
            waiting.extend(node.kids or ())
            waiting.extend((node.index or {}).values())
        return total

    def __len__(self) -> int:
        return self.count


cdef bytes encoded(object subject):
    if type(subject) is str:
        return (<str>subject).encode("utf-8", "surrogateescape")
    if type(subject) is bytes:
        return subject
    raise TypeError(f"a subject is a str or bytes, not {type(subject).__name__}")


def valid(subject: str | bytes) -> bool:
    """Whether it is a subject at all: tokens not empty, no blanks, `>` only last. Wildcards are allowed."""
    cdef bytes s = encoded(subject)
    return subject_valid(PyBytes_AS_STRING(s), <size_t>PyBytes_GET_SIZE(s))


def literal(subject: str | bytes) -> bool:
    """Whether it is a valid subject without wildcard tokens."""
    cdef bytes s = encoded(subject)
    return subject_literal(PyBytes_AS_STRING(s), <size_t>PyBytes_GET_SIZE(s))


def matches(subject: str | bytes, pattern: str | bytes) -> bool:
    """Whether the literal subject matches the pattern."""
    cdef bytes s = encoded(subject)
    cdef bytes p = encoded(pattern)
    return subject_matches(PyBytes_AS_STRING(s), <size_t>PyBytes_GET_SIZE(s),
                           PyBytes_AS_STRING(p), <size_t>PyBytes_GET_SIZE(p))


def collide(a: str | bytes, b: str | bytes) -> bool:
    """Whether some literal subject matches both patterns."""
    cdef bytes x = encoded(a)
    cdef bytes y = encoded(b)
    return patterns_collide(PyBytes_AS_STRING(x), <size_t>PyBytes_GET_SIZE(x),
                            PyBytes_AS_STRING(y), <size_t>PyBytes_GET_SIZE(y))


def subset(a: str | bytes, b: str | bytes) -> bool:
    """Whether every subject that matches pattern a matches pattern b as well."""
    cdef bytes x = encoded(a)
    cdef bytes y = encoded(b)
    return pattern_subset(PyBytes_AS_STRING(x), <size_t>PyBytes_GET_SIZE(x),
                          PyBytes_AS_STRING(y), <size_t>PyBytes_GET_SIZE(y))
