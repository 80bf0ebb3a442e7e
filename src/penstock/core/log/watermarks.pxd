"""How far a log is written and synced. See watermarks.pyx."""
from libc.stdint cimport uint64_t


cdef class Watermarks:
    cdef readonly uint64_t written_seq       # every record up to here is in the file
    cdef readonly uint64_t synced_seq        # every record up to here is on the disk
    cdef uint64_t write_mark                 # counts writes
    cdef uint64_t sync_mark                  # writes that a running sync will cover
    cdef uint64_t synced_mark                # writes that are on the disk
    cdef bint sync_used                      # the owner asked for durability at least once
    cdef bint sync_running

    cdef void start(self, uint64_t last_seq) noexcept           # all of a log that was opened, or is in memory
    cdef void bytes_written(self) noexcept                      # one more write() has put bytes into the file
    cdef void written(self, uint64_t last_seq) noexcept         # all records up to here are in the file
    cdef void synced(self) noexcept                             # all that is written is on the disk
    cdef uint64_t begin_sync(self) noexcept                     # a sync of all that is written runs; up to which sequence
    cdef void end_sync(self) noexcept                           # it runs no more, whatever became of it
    cdef void sync_reached(self, uint64_t upto) noexcept        # ... and it has succeeded
    cdef void rewritten(self, uint64_t last_seq) noexcept       # all was written anew and is on the disk (core/log/disk_recovery)
    cdef bint use_sync(self, bint used) noexcept                # whether the owner asked for durability; what was said before
    cdef int check(self, uint64_t last_seq) except -1
