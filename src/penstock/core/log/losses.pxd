"""What of a log is lost. See losses.pyx."""
from penstock.core.log.log cimport Log
from penstock.core.log.record cimport Ranges
from penstock.core.log.scan cimport Opened

cdef list find_orphans(Log log, list names, list opened)         # (first, Evidence) of segments whose index file is there and whose file is not
cdef int ranges_said(Opened o, Ranges* out) except -1            # what its REMOVE records say
cdef int tell_lost(Log log, list opened, list orphans) except -1       # fills log.lost
