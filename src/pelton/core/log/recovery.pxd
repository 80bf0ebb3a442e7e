"""Recovery: opening a log from its files. See recovery.pyx."""
from pelton.core.log.log cimport Log


cdef class LogOpening:
    cdef readonly Log log
    cdef object steps            # the generator of the remaining steps; None: the log is open
    cdef set unsure              # the first sequences of the doubtful segments; None: there are none; empty: all are doubtful
    cdef object synced_seq       # what is on the disk according to the file `unsure` of an earlier process; None: not known
    cdef int segments_found      # segment files in the folder at the beginning
