"""The files of a log: the active segment and its unwritten tail, group commit, retired segments.

A Log (core/log/log) has one. Knows nothing of messages, counts or removal policy.

    accepted (last_seq)  >=  written (in the file)  >=  synced (on the disk)
"""
cimport cython
from libc.stdint cimport uint64_t
from pelton.core.base.disk cimport Disk
from pelton.core.log.disk_condition cimport DiskCondition
from pelton.core.log.deferred_writes cimport DeferredWrites
from pelton.core.log.read_windows cimport Pages
from pelton.core.log.removals cimport Removals
from pelton.core.log.retired_segments cimport RetiredSegments
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.span cimport Span
from pelton.core.log.subject_table cimport SubjectTable
from pelton.core.log.tail cimport Tail
from pelton.core.log.unsynced_files cimport UnsyncedFiles
from pelton.core.log.watermarks cimport Watermarks


@cython.final
cdef class LogFiles:
    cdef Disk disk                           # None for a memory log
    cdef str folder
    cdef bint memory
    cdef object cipher                       # data keys of the stream (core/log/encryption); None: the stream is not encrypted
    # of the log
    cdef Span span
    cdef SegmentList segments
    cdef SubjectTable subjects_table
    cdef Pages pages
    # its own
    cdef Watermarks marks                    # the written and synced watermarks
    cdef DiskCondition state                 # whether the log takes appends
    cdef Removals removals                   # removals that are not recorded yet, and lost sequences
    cdef Segment active                      # takes the appends
    cdef Tail tail                           # the newest bytes of the active segment
    cdef RetiredSegments retired             # segments without live messages whose files are not unlinked yet
    cdef UnsyncedFiles unsynced              # bytes and names that are not synced
    cdef DeferredWrites deferred                     # writes that the disk has refused

    # --- per turn ----------------------------------------------------------------------------------------------------
    cdef bint dirty(self) noexcept                      # something accepted is not written
    cdef int write(self) except -1                      # accepted -> written: one write call, removals of the turn included
    cdef int sync(self) except -1                       # written -> synced, in the calling thread
    # Group commit with a worker thread: sync_begin gives the handles to sync (usually one), sync_end moves the synced watermark.
    cdef int sync_begin(self, int* handles, int room, uint64_t* upto) except -1    # number of handles; 0: nothing to do
    # error: the errno of a failed sync, 0 after success. After an error the log is FAILED: this call and each append raise LogClosed.
    cdef int sync_end(self, uint64_t upto, int error) except -1

    # --- private -----------------------------------------------------------------------------------------------------
    cdef int refuse(self) except -1                     # called when the condition is not TAKES: tries to write when FULL, else raises LogClosed
    cdef int start_segment(self, uint64_t first) except -1
    cdef int make_file(self, Segment s) except -1
    cdef int begin_tail(self, Segment s) except -1                          # for an empty active segment
    cdef int do_deferred(self) except -1                                    # does the deferred writes that an append needs
    cdef int make_anew(self, Segment s) except -1
    cdef int note_unsure(self, object synced_seq) except -1
    cdef int resume(self) except -1                                         # an encrypted log continues in a new segment
    cdef int begin_segment(self, uint64_t first) except -1
    cdef int roll(self, uint64_t next_seq) except -1
    cdef int put_removals(self) except -1
    cdef int heed_guard(self) except -1
    cdef int expect_removals(self) except -1        # the last write had none of the pending removals: the next one has
    cdef int write_tail(self) except -1
    cdef int opened(self, Segment s) except -1
    cdef int write_early(self) except -1
    cdef int write_failed(self, object error) except -1
    cdef int fail(self, object error) except -1
    cdef int sync_files(self) except -1
    cdef int on_disk(self) except -1                                        # writes the index files of synced segments
    cdef int write_index(self, Segment s) except -1
    cdef int retire(self, Segment s) except -1                              # takes a sealed segment without live messages off the list
    cdef int unlink_retired(self) except -1                                 # unlinks the files of retired segments that nothing depends on
    cdef bint make_room(self) except -1                                     # the disk is full: whether files of retired segments were cut
    cdef uint64_t removed_below(self) noexcept          # the floor: every lower sequence is removed and none of them is lost
    cdef int close_handles(self) except -1
    # for other modules of core/log
    cdef int activate(self, Segment s, uint64_t end) except -1      # appends go to this segment, from offset `end` of its file on
    cdef int begin_in_memory(self, Segment s) except -1     # the same for a new segment that has no file yet
    cdef int found_active(self, Segment s) except -1        # recovery: the newest segment
    cdef int end(self) except -1                            # the log is closed
    cdef int forget_files(self) except -1                   # the folder is removed
