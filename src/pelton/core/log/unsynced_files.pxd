"""What a log still has to sync: bytes of segments, names of files. See unsynced_files.pyx."""
from pelton.core.base.disk cimport Disk
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList


cdef class UnsyncedFiles:
    cdef Disk disk
    cdef str folder
    cdef SegmentList segments
    cdef readonly list sealed                # sealed segments with bytes that are not synced
    cdef list syncing                        # segments whose handles a sync thread has
    cdef list fresh                          # segments whose file was made since the last sync of names
    cdef readonly bint names                 # a file has a name that is not synced
    cdef bint folder_name                    # ... and the name of the folder may not be synced either

    cdef int add(self, Segment s) except -1                     # a sealed segment has bytes that are not synced
    cdef int drop(self, Segment s) except -1                    # its bytes are on the disk, or do not matter any more
    cdef int drop_all(self) except -1
    cdef int made(self, Segment s) except -1                    # the segment has a new file
    cdef void name_made(self) noexcept                          # another file has a new name
    cdef void folder_found(self) noexcept                       # the folder was there, or was made: its name may not be synced
    cdef list doubtful(self, Segment active)                    # all segments that may have bytes that are not synced
    cdef int doubt_fresh(self, Segment active) except -1        # the disk has failed
    cdef int sync(self, Segment active) except -1               # all bytes and names, in the calling thread
    cdef int sync_names(self) except -1
    cdef int begin(self, Segment active, int* handles, int room) except -1     # number of handles to sync
    cdef int ended(self, bint good, bint closed) except -1      # the sync of these handles has ended; `closed`: so has the log
    cdef list synced(self)                                      # take the segments off whose bytes are synced, and return them
    cdef int close_handles(self) except -1
