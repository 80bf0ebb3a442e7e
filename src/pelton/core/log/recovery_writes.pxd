"""What the opening of a log writes; a write that the disk refuses is deferred. See recovery_writes.pyx."""
from libc.stdint cimport uint64_t
from pelton.core.log.log cimport Log
from pelton.core.log.segment cimport Segment

cdef int sync_names(Log log) except -1                     # sync the names of the folder and of its files
cdef int sync_found(Log log, Segment s) except -1          # sync a segment that was there; when the disk refuses, it goes into `unsynced`
cdef int set_aside(Log log, str name) except -1            # rename a file that is not part of the log
cdef int start_found(Log log, uint64_t first) except -1    # begin the newest segment, empty
cdef bytes keep_aside(Log log, Segment s, uint64_t at)     # cut a segment at `at`; returns the bytes behind it
cdef int restart(Log log, Segment s) except -1             # give a segment without a head a new head
cdef int complete_head(Log log, Segment s, const char* head) except -1     # write what a power cut left out of a head, now that it is known
cdef int write_found(Log log, list doubted, object synced_seq, str stale) except -1    # at the end: write what was repaired; `doubted`: segments whose
                                                           # sync failed, here or in an earlier process, which had synced synced_seq (None: not known)
