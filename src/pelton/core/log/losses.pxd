"""Finding the lost sequences of a log. See losses.pyx."""
from pelton.core.log.log cimport Log
from pelton.core.log.record cimport Ranges
from pelton.core.log.scan cimport Opened

cdef list find_orphans(Log log, list names, list opened)         # (first, Evidence) of the segments whose index file exists without a segment file
cdef int ranges_said(Opened o, Ranges* out) except -1            # adds the ranges in the REMOVE records of a segment
cdef int tell_lost(Log log, list opened, list orphans) except -1       # fills log.lost
