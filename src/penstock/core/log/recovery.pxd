"""Opening a log; see recovery.pyx."""
from penstock.core.log.log cimport Log


cdef class LogOpening:
    cdef readonly Log log
    cdef object steps            # what is left to do; None: the log is open
    cdef int segments_found      # when it was begun
