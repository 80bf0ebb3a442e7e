"""How many bytes the logs of an account hold, and how many they may: counted where messages are appended and removed.

Each log belongs to one Quota (an account's, for one kind of storage), and that to the server's. Knows nothing of accounts or API.
"""
from libc.stdint cimport int64_t, uint64_t


cdef class Quota:
    cdef readonly int64_t used             # accounted bytes of its logs
    cdef public int64_t limit              # a message that would take `used` above is refused; NO_LIMIT: none
    cdef readonly Quota whole              # the server's, which all accounts share; None: this is it


cdef inline void use(Quota q, int64_t n) noexcept:
    q.used += n
    if q.whole is not None:
        q.whole.used += n


cdef inline bint full(Quota q, uint64_t n) noexcept:
    # Whether n bytes more may not be. The server's own limit is passed once, by the message that reaches it.
    return q.used + <int64_t>n > q.limit or (q.whole is not None and q.whole.used > q.whole.limit)
