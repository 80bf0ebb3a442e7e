"""The files under a record log: active segment and its unwritten tail, group commit, retired segments.

Knows nothing of messages, subjects or removal policy. `Log` (core/log/log) is built on it; other modules use that one.

    accepted (last_seq)  >=  written (in the file)  >=  synced (on the disk)
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.base.disk cimport Disk
from penstock.core.base.quota cimport Usage
from penstock.core.log.disk_condition cimport DiskCondition
from penstock.core.log.read_windows cimport Pages
from penstock.core.log.removals cimport Removals
from penstock.core.log.segment cimport Segment, SegmentList
from penstock.core.log.subject_table cimport SubjectTable
from penstock.core.log.tail cimport Tail
from penstock.core.log.watermarks cimport Watermarks

cdef class LogFiles:
    cdef readonly Disk disk                  # None for a memory log
    cdef readonly str folder
    cdef readonly bint memory
    # state, all O(1) to read
    cdef readonly uint64_t first_seq         # lowest live sequence; last_seq + 1 when empty; never goes back
    cdef readonly uint64_t last_seq          # highest sequence ever given (accepted); 0 for a new log
    cdef readonly Watermarks marks           # how far it is written and synced
    cdef readonly DiskCondition state        # whether appends are taken
    cdef readonly uint64_t msgs              # live messages
    cdef readonly uint64_t bytes             # their size as nats-server accounts it (file: 22+subject+(4+hdr)+msg+8; memory: subject+hdr+msg+16)
    cdef readonly uint64_t appended          # messages ever appended since open + live at open: msgs + removed
    cdef readonly uint64_t removed           # messages removed since open
    cdef readonly uint64_t last_ts_ns        # of the last message appended (0: none known)
    cdef readonly uint32_t subject_ids       # ids handed out so far: every id is < subject_ids
    cdef readonly uint64_t subject_count     # subjects with live messages
    cdef readonly Removals removals          # what was removed and is not yet a record, and what is lost
    cdef readonly list notes                 # what an opening found and did besides, one line each, for the operator
    # private parts
    cdef readonly SegmentList segments
    cdef readonly SubjectTable subjects_table
    cdef Pages pages
    cdef Segment active                      # takes the appends
    cdef Segment reading                     # where the last read was
    cdef Tail tail                           # the newest bytes of the active segment's file
    cdef list doomed                         # segments without live messages, to be unlinked
    cdef list unsynced                       # sealed segments with bytes not yet synced
    cdef list unnamed                        # segments made since the folder was synced
    cdef public list owed                    # what an opening could not write and what comes before the next append: see core/log/deferred_writes
    cdef bint unsaid                         # the first write after such an opening is synced before anything is taken
    cdef public list late                    # what it could not write and what can wait: calls that raise OSError until it is done
    cdef str stale                           # an index file that goes when what it says is written in the log
    cdef uint64_t segment_bytes
    cdef public bint compress                # segments that are full are compressed by maintain(); those that are stay so
    cdef readonly object cipher              # data keys of the stream (core/log/encryption); None: it has none
    cdef uint32_t record_extra               # bytes of a new message's record besides subject, headers and payload
    cdef uint8_t record_state                # ... and its state: TAGGED where messages are encrypted
    cdef bint checks                         # a new record gets its checksum at once: a file log whose messages are not encrypted
    cdef Out unsealed                        # the message that was read last, decrypted
    cdef uint32_t size_extra                 # accounted bytes of a message besides subject, headers and payload
    cdef uint32_t header_extra               # ... and of its headers, when it has any
    cdef readonly Usage usage                # whose bytes these are; never None
    cdef bint folder_dirty                   # a file was made since the folder was synced
    cdef bint folder_made

    # --- per turn ----------------------------------------------------------------------------------------------------
    cdef bint dirty(self) noexcept                      # something accepted is not written
    cdef int write(self) except -1                      # accepted -> written: one write call, removals of the turn included
    cdef int sync(self) except -1                       # written -> synced, in the calling thread
    # group commit with a worker thread: begin gives the handles to sync (usually one), end moves the watermark
    cdef int sync_begin(self, int* handles, int room, uint64_t* upto) except -1    # count of handles; 0 = nothing to do
    # error: the errno of a failed sync (then raises OSError from now on: the log is closed for writing)
    cdef int sync_end(self, uint64_t upto, int error) except -1

    # --- private -----------------------------------------------------------------------------------------------------
    cdef int refuse(self) except -1                     # raises what `condition` says, after a try to write when full
    cdef int start_segment(self, uint64_t first) except -1
    cdef int make_file(self, Segment s) except -1
    cdef int begin_tail(self, Segment s) except -1                          # of an active segment with nothing in it
    cdef int pay(self) except -1                                            # what the opening owes, first of all
    cdef int make_anew(self, Segment s) except -1
    cdef int note_unsure(self) except -1
    cdef uint64_t reduce(self, Segment s) except? 18446744073709551615
    cdef int say_gone_in(self, Segment s, uint64_t at, uint64_t end) except -1
    cdef int put_head(self, Segment s, Out* out) except -1                  # of a new file for s, in the form that is wanted now
    cdef int resume(self) except -1                                         # an encrypted log goes on in a new segment
    cdef int begin_segment(self, uint64_t first) except -1
    cdef int roll(self, uint64_t next_seq) except -1
    cdef int put_removals(self) except -1
    cdef int heed_guard(self) except -1
    cdef int write_tail(self) except -1
    cdef int write_early(self) except -1
    cdef int write_failed(self, object error) except -1
    cdef int fail(self, object error) except -1
    cdef int sync_files(self) except -1
    cdef int on_disk(self) except -1                                        # segments whose bytes are synced get their index
    cdef int write_index(self, Segment s) except -1
    cdef int retire(self, Segment s) except -1                              # a sealed segment without live messages
    cdef int prepare_unlink(self) except -1                                 # what retired segments say of older ones is said again
    cdef int unlink_ready(self) except -1                                   # those that nothing depends on any more
    cdef int unlink(self, Segment s) except -1
    cdef bint make_room(self) except -1
    cdef bint tells(self, Segment s) except -1
    cdef int say_removed(self, Segment s) except -1
    cdef uint64_t removed_below(self) noexcept          # everything below this sequence was removed, nothing of it was lost
    cdef int close_handles(self) except -1
    # for the modules that are built on it
    cdef int owe_first(self, object call) except -1         # before the next append is taken
    cdef int put_off(self, object call) except -1           # can wait: maintain() does it
    cdef int go_stale(self, str path) except -1             # an index file goes when what it says is written in the log (None: none does)
    cdef int drop_stale(self) except -1                     # ... it is written: the file goes
    cdef int name_made(self) noexcept                       # a file has a name that is not synced yet
    cdef int folder_found(self) noexcept                    # ... and so may the folder itself
    cdef int take_unsynced(self, list segments) except -1   # the sealed segments with bytes that are not synced
    cdef int activate(self, Segment s, uint64_t end) except -1      # appends go to this segment, behind that offset of its file
    cdef int begin_in_memory(self, Segment s) except -1     # the same, of a new segment that has no file yet
    cdef void raise_last(self, uint64_t seq, uint64_t ts_ns) noexcept       # sequences up to there were given, a message is as new as that
    cdef void given_before(self, uint64_t first) noexcept   # of an opening: this sequence and later ones were not given yet
    cdef int found_active(self, Segment s) except -1        # of an opening: the newest segment that was found
    cdef void begin_at(self, uint64_t first_seq) noexcept   # of a log without a message: its next sequence
    cdef void count_segment(self, Segment s) noexcept       # its live messages are the log's
    cdef int count_anew(self) except -1                     # all counts, from those of the segments and of the subject table
    cdef int end_counting(self) except -1                   # all segments of an opening are counted
    cdef int end(self) except -1                            # the log is closed
    cdef int forget_files(self) except -1                   # of a folder that is removed
