"""Recovery: opening a log from its files. See recovery.pyx."""
from pelton.core.log.log cimport Log


cdef class LogOpening:
    cdef readonly Log log
    cdef object steps            # the generator of the remaining steps; None: the log is open
    cdef int segments_found      # segment files in the folder at the beginning
