"""The files of a log: the active segment and its unwritten tail, group commit, retired segments.

`Log` (core/log/log) is the subclass that other modules use. Knows nothing of messages, subjects or removal policy.

    accepted (last_seq)  >=  written (in the file)  >=  synced (on the disk)
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.base.disk cimport Disk
from penstock.core.base.quota cimport Usage
from penstock.core.log.disk_condition cimport DiskCondition
from penstock.core.log.owed_writes cimport OwedWrites
from penstock.core.log.read_windows cimport Pages
from penstock.core.log.removals cimport Removals
from penstock.core.log.retired_segments cimport RetiredSegments
from penstock.core.log.segment cimport Segment, SegmentList
from penstock.core.log.subject_table cimport SubjectTable
from penstock.core.log.tail cimport Tail
from penstock.core.log.unsynced_files cimport UnsyncedFiles
from penstock.core.log.watermarks cimport Watermarks

cdef class LogFiles:
    cdef readonly Disk disk                  # None for a memory log
    cdef readonly str folder
    cdef readonly bint memory
    # state, all O(1) to read
    cdef readonly uint64_t first_seq         # lowest live sequence; last_seq + 1 when empty; never goes back
    cdef readonly uint64_t last_seq          # highest accepted sequence; 0 for a new log
    cdef readonly Watermarks marks           # the written and synced watermarks
    cdef readonly DiskCondition state        # whether the log takes appends
    cdef readonly uint64_t msgs              # live messages
    cdef readonly uint64_t bytes             # size of the live messages as nats-server counts it (file: 22+subject+(4+hdr)+msg+8; memory: subject+hdr+msg+16)
    cdef readonly uint64_t appended          # messages ever appended since open + live at open: msgs + removed
    cdef readonly uint64_t removed           # messages removed since open
    cdef readonly uint64_t last_ts_ns        # of the last message appended (0: none known)
    cdef readonly uint32_t subject_ids       # every subject id is < subject_ids
    cdef readonly uint64_t subject_count     # subjects with live messages
    cdef readonly Removals removals          # removals that are not recorded yet, and lost sequences
    cdef readonly list notes                 # lines for the operator about what recovery found and did
    # private parts
    cdef readonly SegmentList segments
    cdef readonly SubjectTable subjects_table
    cdef Pages pages
    cdef Segment active                      # takes the appends
    cdef Segment reading                     # the segment of the last read
    cdef Tail tail                           # the newest bytes of the active segment
    cdef RetiredSegments retired             # segments without live messages whose files are not unlinked yet
    cdef UnsyncedFiles unsynced              # bytes and names that are not synced
    cdef readonly OwedWrites owed            # writes that the disk has refused (core/log/deferred_writes)
    cdef uint64_t segment_bytes
    cdef public bint compress                # maintain() compresses full segments; compressed ones stay compressed
    cdef readonly object cipher              # data keys of the stream (core/log/encryption); None: the stream is not encrypted
    cdef uint32_t record_extra               # bytes of a new message record besides subject, headers and payload
    cdef uint8_t record_state                # ... and its state: TAGGED when messages are encrypted
    cdef bint checks                         # append computes the checksum: a log in files whose messages are not encrypted
    cdef Out unsealed                        # the last message that was read, decrypted
    cdef uint32_t size_extra                 # accounted bytes of a message besides subject, headers and payload
    cdef uint32_t header_extra               # accounted bytes of a message with headers besides size_extra
    cdef readonly Usage usage                # the quota that counts the bytes of this log; never None

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
    cdef int pay(self) except -1                                            # does the owed writes
    cdef int make_anew(self, Segment s) except -1
    cdef int note_unsure(self) except -1
    cdef int resume(self) except -1                                         # an encrypted log continues in a new segment
    cdef int begin_segment(self, uint64_t first) except -1
    cdef int roll(self, uint64_t next_seq) except -1
    cdef int put_removals(self) except -1
    cdef int heed_guard(self) except -1
    cdef int write_tail(self) except -1
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
    cdef void raise_last(self, uint64_t seq, uint64_t ts_ns) noexcept       # raise last_seq to `seq` and last_ts_ns to `ts_ns`, if they are lower
    cdef void given_before(self, uint64_t first) noexcept   # recovery: the sequence `first` and higher ones are not given yet
    cdef int found_active(self, Segment s) except -1        # recovery: the newest segment
    cdef void begin_at(self, uint64_t first_seq) noexcept   # the next sequence of a log without messages
    cdef void count_segment(self, Segment s) noexcept       # add the live messages of a segment to the counts
    cdef int count_anew(self) except -1                     # compute all counts from the segments and the subject table
    cdef int end_counting(self) except -1                   # recovery: all segments are counted
    cdef int end(self) except -1                            # the log is closed
    cdef int forget_files(self) except -1                   # the folder is removed
