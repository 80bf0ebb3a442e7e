"""Tail recovery: repairing the end of the newest segment when a log is opened. See tail_recovery.pyx."""
from libc.stdint cimport uint64_t
from pelton.core.log.log cimport Log
from pelton.core.log.scan cimport Opened


cdef int mend_tail(Log log, Opened o, bint numbered) except -1     # afterwards log.active takes appends; no sequence is used twice
cdef int begin_anew(Log log) except -1           # an empty skip record: a gap before the active segment is not a torn skip
cdef int settle(Log log, Opened o) except -1     # seal a segment and close its file until the next read
# The highest sequence that a record in the damaged bytes at the end of a segment may have had; 0: its end is not damaged. `whole` gets
# the sequence of the last message that was surely complete.
cdef uint64_t last_at_end(Log log, Opened o, uint64_t* whole) except? 0
