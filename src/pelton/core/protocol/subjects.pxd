"""Subjects: validation, wildcard matching and collision, and the subscription trie with its route cache.

Tokens are separated by '.', `*` matches one token, a last `>` one or more. Knows nothing of connections or
messages: the trie holds whatever objects its owner inserts.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from pelton.core.base.maps cimport BytesMap
from pelton.core.protocol.subject_nodes cimport Node


cdef bint subject_valid(const char* s, size_t n) noexcept nogil      # non-empty tokens, no space, tab, CR, LF, FF, `>` only last; wildcards allowed
cdef bint subject_literal(const char* s, size_t n) noexcept nogil    # valid and without wildcard tokens
cdef bint subject_has_wildcard(const char* s, size_t n) noexcept nogil    # some whole token is `*` or `>`
cdef bint tokens_filled(const char* s, size_t n) noexcept nogil     # no token is empty: a subject that could match something
cdef bint patterns_collide(const char* a, size_t an, const char* b, size_t bn) noexcept nogil     # some literal subject matches both
cdef bint pattern_subset(const char* a, size_t an, const char* b, size_t bn) noexcept nogil       # all that matches a matches b
cdef bint subject_matches(const char* s, size_t n, const char* pattern, size_t pn) noexcept nogil    # valid literal s against a valid pattern
cdef bint patterns_collide(const char* a, size_t an, const char* b, size_t bn) noexcept nogil    # some literal subject matches both
cdef bint pattern_subset(const char* a, size_t an, const char* b, size_t bn) noexcept nogil      # all that match a match b


cdef class Route:
    """The objects whose patterns match one literal subject; immutable once built, safe to iterate while the trie changes.

    A caller may keep a Route and use it again as long as its generation equals that of the trie.
    """
    cdef PyObject** items          # n objects, owned by `held`
    cdef int n
    cdef uint64_t generation       # of the trie when built; 0 = not to be kept (never cached, or stale)
    cdef tuple held


cdef Route empty_route(uint64_t generation)        # a Route without objects


cdef class SubjectTrie:
    """Pattern -> objects, with a cache of routes for literal subjects that are used more than once."""
    cdef readonly uint64_t generation       # changes when any wildcard pattern does (cached routes go stale lazily)
    cdef readonly size_t count              # (pattern, object) pairs held
    cdef Node root
    cdef list lines                         # cached routes; None where a line is free
    cdef list free_lines                    # indexes of such lines
    cdef size_t line_items                  # objects in the cached routes
    cdef BytesMap line_of                   # subject -> index in lines
    cdef uint16_t* seen                     # bits of the hashes of subjects used once, direct-mapped
    cdef uint64_t changes                   # counts insert and discard
    cdef readonly uint64_t inserts, lookups, misses     # patterns ever put in; routes asked for; those that had to be looked for
    cdef PyObject** found                   # scratch of match
    cdef size_t found_cap
    cdef size_t found_n
    cdef int insert(self, const char* pattern, size_t n, object value) except -1     # ValueError when the pattern is not valid
    cdef bint discard(self, const char* pattern, size_t n, object value) except -1     # True when it was there
    cdef Route route(self, const char* s, size_t n)        # cached if the subject was seen before; never None
    cdef Route match(self, const char* s, size_t n)        # uncached: for subjects that are never used twice (reply inboxes)
    cdef Route match_for(self, const char* s, size_t n, uint64_t generation)     # as match; a caller with an own count of changes keeps it with that count
    cdef int gather(self, Node node, const char* s, const char* end) except -1
    cdef int gather_values(self, Node node) except -1
    cdef int keep(self, Route route) except -1
    cdef int grow_found(self, size_t n) except -1
    cdef Route build(self, const char* s, size_t n)
    cdef int changed(self, const char* pattern, size_t n, bint removed) except -1
    cdef int drop_cache(self) except -1
