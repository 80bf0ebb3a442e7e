"""A set of patterns that is asked which of them meet another one: a trie in one array, without a Python object per token."""
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef enum:
    TOO_MANY = 2


cdef struct Token:
    char* text                 # its own copy; NULL while the node is free
    uint32_t size
    uint32_t parent
    uint32_t kid               # the first of the next tokens that are no wildcards; 0: none
    uint32_t before            # neighbours in the parent's list of those
    uint32_t behind            # ... and the next free node, while this one is free
    uint32_t star              # next token `*`
    uint32_t tail              # next token `>`
    uint32_t cell              # the first number of the patterns that end here; 0: none


cdef struct Cell:
    uint32_t number
    uint32_t next


cdef class Patterns:
    """Patterns, each with a number; the same one may be there with several."""
    cdef Token* tokens         # [0] is nobody, [1] the root
    cdef uint32_t tokens_n, tokens_cap, free_token
    cdef Cell* cells           # [0] is nobody
    cdef uint32_t cells_n, cells_cap, free_cell
    cdef uint32_t* table       # parent and text -> token; 0: never used, GONE: no more
    cdef uint32_t table_cap, table_used
    cdef readonly uint64_t steps           # tokens looked at by all questions so far
    cdef uint64_t most                     # of them, before a question ends with TooManyStepsError; 0: no bound
    cdef readonly size_t count             # (pattern, number) pairs

    cdef int insert(self, const char* s, size_t n, uint32_t number) except -1
    cdef bint matches(self, const char* s, size_t n) except -1     # some pattern matches this literal subject
    cdef bint covered(self, const char* s, size_t n) except -1     # some pattern matches all that this one matches
    # Whether some subject matches both; with `found`, the numbers of all such patterns; TOO_MANY when the answer takes more steps.
    cdef int met(self, const char* s, size_t n, uint64_t most_steps, set found) except -1
    # The numbers of all patterns that match the literal subject, or all that the pattern matches.
    cdef int gather_matches(self, const char* s, size_t n, set found) except -1
    cdef int gather_covers(self, const char* s, size_t n, set found) except -1
    cdef int matched(self, uint32_t at, const char* s, const char* end, set found) except -1
    cdef uint32_t slot(self, uint32_t parent, const char* s, uint32_t size) noexcept
    cdef uint32_t child(self, uint32_t at, const char* s, const char* stop) noexcept
    cdef uint32_t after(self, uint32_t id) noexcept
    cdef uint32_t make(self, uint32_t parent, const char* s, const char* stop) except 0
    cdef int prune(self, uint32_t at) except -1
    cdef int rehash(self) except -1
    cdef int step(self) except -1
    cdef int meet(self, uint32_t at, const char* s, const char* end, int64_t apart, set found) except -1
    cdef int below(self, uint32_t at, int64_t apart, set found) except -1
    cdef int ending(self, uint32_t at, int64_t apart, set found) except -1
    cdef int over(self, uint32_t at, const char* s, const char* end, int64_t apart, set found) except -1
