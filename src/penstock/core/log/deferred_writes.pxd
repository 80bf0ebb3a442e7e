"""What an opening could not write: how it says so."""
from libc.stdint cimport uint64_t
from penstock.core.log.log cimport Log
from penstock.core.log.segment cimport Segment

cdef int sync_names(Log log) except -1                     # of the folder and in it
cdef int sync_found(Log log, Segment s) except -1          # a segment that was there; when the disk refuses it goes into `unsynced`
cdef int set_aside(Log log, str name) except -1            # a file that is no part of the log
cdef int start_found(Log log, uint64_t first) except -1    # the newest segment, with nothing in it
cdef bytes keep_aside(Log log, Segment s, uint64_t at)     # cuts a segment off; the bytes behind
cdef int restart(Log log, Segment s) except -1             # a segment without a head has one
cdef int write_found(Log log, list doubted, str stale) except -1       # at the end: what was mended; `doubted`: whose sync failed
