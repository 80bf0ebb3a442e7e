"""Disk recovery: the functions that other modules of the log use. See disk_recovery.pyx."""
from pelton.core.base.disk cimport Disk
from pelton.core.log.log cimport Log
from pelton.core.log.segment cimport Segment

cdef int write_beside(Disk disk, str path, bytes data) except -1        # writes and syncs <path>.tmp; returns its handle
cdef int take_handle(Log log, Segment s, int handle) except -1
