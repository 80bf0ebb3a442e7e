"""How a log takes appends again after its disk has failed: what other modules of the log use of it."""
from penstock.core.base.disk cimport Disk
from penstock.core.log.log cimport Log
from penstock.core.log.segment cimport Segment

cdef int write_beside(Disk disk, str path, bytes data) except -1        # writes and syncs <path>.tmp; its handle
cdef int take_handle(Log log, Segment s, int handle) except -1
