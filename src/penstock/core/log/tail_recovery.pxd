"""The end of the newest segment, when a log is opened. See tail_recovery.pyx."""
from penstock.core.log.log cimport Log
from penstock.core.log.scan cimport Opened


cdef int mend_tail(Log log, Opened o, bint numbered) except -1     # afterwards log.active takes appends, behind everything that was given
cdef int begin_anew(Log log) except -1           # what begins a segment before which something is missing that is not a skip
cdef int settle(Log log, Opened o) except -1     # a sealed segment: its file is closed until somebody reads
