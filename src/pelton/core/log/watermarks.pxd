"""The written and synced watermarks of a log. See watermarks.pyx."""
from libc.stdint cimport uint64_t


cdef class Watermarks:
    cdef readonly uint64_t written_seq       # every record up to here is in the file
    cdef readonly uint64_t synced_seq        # every record up to here is on the disk
    cdef bint known                          # False: an opening could not tell what is on the disk; synced_seq is 0 then
    cdef uint64_t write_mark                 # number of writes
    cdef uint64_t sync_mark                  # writes that the running sync covers
    cdef uint64_t synced_mark                # writes that are synced
    cdef bint sync_used                      # the owner has asked for a sync at least once
    cdef bint sync_running

    cdef void start(self, uint64_t last_seq) noexcept           # everything up to last_seq is written and synced (a log after opening, or in memory)
    cdef int doubt(self, object synced_seq) except -1           # after opening: what is above synced_seq may not be on the disk; None: not known
    cdef void bytes_written(self) noexcept                      # one more write has put bytes into the file
    cdef void written(self, uint64_t last_seq) noexcept         # all records up to last_seq are in the file
    cdef void synced(self) noexcept                             # everything written is synced
    cdef uint64_t begin_sync(self) noexcept                     # a sync of everything written begins; returns the sequence that it covers
    cdef void end_sync(self) noexcept                           # the sync has ended, with or without success
    cdef void sync_reached(self, uint64_t upto) noexcept        # the sync has succeeded
    cdef void rewritten(self, uint64_t last_seq) noexcept       # everything was rewritten and synced (core/log/disk_recovery)
    cdef bint use_sync(self, bint used) noexcept                # set sync_used; returns its old value
    cdef int check(self, uint64_t last_seq) except -1
