"""The nodes of a subscription trie: a token, what ends at it, and what comes after it.

Knows nothing of matching or caching: core/protocol/subjects walks the nodes.
"""
from libc.string cimport memchr


cdef class Node:
    """A token of the trie: what ends here, and what comes after it."""
    cdef bytes token
    cdef list values               # the objects of the pattern that ends here, while they are few
    cdef dict many                 # key of the object -> object, once they are many (then values is None)
    cdef list kids                 # literal next tokens while they are few
    cdef dict index                # token -> Node once they are many (then kids is None)
    cdef Node star                 # next token `*`
    cdef Node tail                 # next token `>`


cdef inline const char* token_end(const char* s, const char* end) noexcept nogil:
    cdef const char* dot = <const char*>memchr(s, c'.', <size_t>(end - s))
    return end if dot == NULL else dot


cdef inline bint is_star(const char* s, const char* stop) noexcept nogil:
    return stop - s == 1 and s[0] == c'*'


cdef inline bint is_tail(const char* s, const char* stop) noexcept nogil:
    return stop - s == 1 and s[0] == c'>'


cdef Node new_node(bytes token)
cdef Node literal_kid(Node node, const char* s, const char* stop)      # the child of a literal token, or None
cdef Node kid_to_insert(Node node, const char* s, const char* stop)    # the child of any token, made when it is not there
cdef int add_value(Node node, object value) except -1
cdef bint discard_below(Node node, const char* s, const char* end, object value) except -1     # whether it was there; bare nodes go
