"""Subjects: validation, wildcard matching and collision, and the subscription trie with its route cache.

Tokens are separated by '.', `*` matches one token, a last `>` one or more. Knows nothing of connections or
messages: the trie holds whatever objects its owner inserts.
"""
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t


cdef bint subject_valid(const char* s, size_t n) noexcept nogil      # non-empty tokens, no blank/control bytes, `>` only last; wildcards allowed
cdef bint subject_literal(const char* s, size_t n) noexcept nogil    # valid and without wildcard tokens
cdef bint subject_has_wildcard(const char* s, size_t n) noexcept nogil    # some whole token is `*` or `>`
cdef bint subject_matches(const char* s, size_t n, const char* pattern, size_t pn) noexcept nogil    # literal s against a pattern


cdef class Route:
    """The objects whose patterns match one literal subject; immutable once built, safe to iterate while the trie changes."""
    cdef PyObject** items          # owned references (inline storage for the first few)
    cdef int n
    cdef PyObject* inline_items[8]
    cdef uint64_t generation       # of the trie when built; 0 = known stale


cdef class SubjectTrie:
    """Pattern -> objects, with a cache of routes for literal subjects that are used more than once."""
    cdef readonly uint64_t generation       # changes when any wildcard pattern does (cached routes go stale lazily)
    cdef readonly size_t count              # (pattern, object) pairs held
    cdef object root
    cdef object cache
    cdef int insert(self, const char* pattern, size_t n, object value) except -1
    cdef bint discard(self, const char* pattern, size_t n, object value) except -1     # True when it was there
    cdef Route route(self, const char* s, size_t n)        # cached if the subject was seen before; never None
    cdef Route match(self, const char* s, size_t n)        # uncached: for subjects that are never used twice (reply inboxes)
