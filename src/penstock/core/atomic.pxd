"""Messages that are stored whole or not at all: checked drafts become consecutive records that recovery keeps or cuts together."""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.log cimport Log


cdef int hold(Log log, uint64_t size, uint32_t count) except -1    # room for all of them in one segment; nothing is written until let_go()
# Mark what was appended from first_seq on as one group, finished or not; writes go on.
cdef int let_go(Log log, uint64_t first_seq, bint whole) except -1
