"""Tail recovery: repairing the end of the newest segment when a log is opened. See tail_recovery.pyx."""
from penstock.core.log.log cimport Log
from penstock.core.log.scan cimport Opened


cdef int mend_tail(Log log, Opened o, bint numbered) except -1     # afterwards log.active takes appends; no sequence is used twice
cdef int begin_anew(Log log) except -1           # an empty skip record: a gap before the active segment is not a torn skip
cdef int settle(Log log, Opened o) except -1     # seal a segment and close its file until the next read
