"""The log of one stream: append, read, remove, recover; in files or in memory.

The log holds the segments, the index by sequence, the index by subject and the watermarks. The owner decides which messages to
remove, and the log records each removal. So the segment files hold the whole state, and index files can be deleted at any time.

Knows nothing of consumers, retention policy, protocol or configuration.

    accepted (last_seq)  >=  written (in the file)  >=  synced (on the disk)
"""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from pelton.core.base.disk cimport Disk
from pelton.core.base.buffer cimport Out
from pelton.core.base.quota cimport Quota
from pelton.core.log.disk_condition cimport DiskCondition
from pelton.core.log.files cimport LogFiles
from pelton.core.log.deferred_writes cimport DeferredWrites
from pelton.core.log.read_windows cimport Pages
from pelton.core.log.removals cimport Removals
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList
from pelton.core.log.span cimport Span
from pelton.core.log.subject_table cimport SubjectState, SubjectTable    # msgs, first, last (exact), name, name_len
from pelton.core.log.tail cimport Tail
from pelton.core.log.watermarks cimport Watermarks


cdef struct Record:
    # One stored message. The pointers are valid until the next call on the same log.
    uint64_t seq
    uint64_t ts_ns
    const char* subject
    uint32_t subject_len
    uint32_t subject_id
    const char* body           # headers then payload
    uint32_t hlen              # header bytes
    uint32_t body_len          # headers + payload
    uint16_t flags             # as given to append; their meaning is the owner's (TTL, marker, ...)


@cython.final
cdef class Log:
    cdef object __weakref__
    cdef readonly Disk disk                  # None for a memory log
    cdef readonly str folder
    cdef readonly bint memory
    cdef readonly object cipher              # data keys of the stream (core/log/encryption); None: the stream is not encrypted
    # parts
    cdef LogFiles files                      # how accepted bytes get to the disk
    cdef Span span                           # the first and the last sequence
    cdef readonly SegmentList segments
    cdef readonly SubjectTable subjects_table
    cdef Pages pages
    # parts of `files`, here for those that use them often
    cdef readonly Watermarks marks
    cdef readonly DiskCondition state
    cdef readonly Removals removals
    cdef readonly DeferredWrites deferred
    cdef Tail tail
    # state, all O(1) to read
    cdef readonly uint64_t msgs              # live messages
    cdef readonly uint64_t bytes             # size of the live messages as nats-server counts it (file: 22+subject+(4+hdr)+msg+8; memory: subject+hdr+msg+16)
    cdef readonly uint64_t appended          # messages ever appended since open + live at open: msgs + removed
    cdef readonly uint64_t removed           # messages removed since open
    cdef readonly uint32_t subject_ids       # every subject id is < subject_ids
    cdef readonly uint64_t subject_count     # subjects with live messages
    cdef readonly list notes                 # lines for the operator about what recovery found and did
    cdef readonly Quota quota                # the quota that counts the bytes of this log; never None
    cdef public bint compress                # maintain() compresses full segments; compressed ones stay compressed
    cdef uint64_t segment_bytes
    cdef uint32_t record_extra               # bytes of a new message record besides subject, headers and payload
    cdef uint8_t record_state                # ... and its state: TAGGED when messages are encrypted
    cdef bint checks                         # append computes the checksum: a log in files whose messages are not encrypted
    cdef uint32_t size_extra                 # accounted bytes of a message besides subject, headers and payload
    cdef uint32_t header_extra               # accounted bytes of a message with headers besides size_extra
    cdef Segment reading                     # the segment of the last read
    cdef Out unsealed                        # the last message that was read, decrypted

    # --- per message -------------------------------------------------------------------------------------------------
    # Append one message; returns its sequence. Copies into the tail; read() finds the message at once. flags: read() gives them back.
    cdef uint64_t append(self, uint64_t ts_ns, const char* subject, uint32_t subject_len,
                         const char* body, uint32_t hlen, uint32_t body_len, uint16_t flags) except 0
    # The id of a subject, made if new. The one caller that publishes a subject repeatedly may keep the id until its next call of
    # subject_id(). Never NO_SUBJECT.
    cdef uint32_t subject_id(self, const char* subject, uint32_t n) except? 4294967295
    # Like append with a known subject id: no hash look-up.
    cdef uint64_t append_id(self, uint64_t ts_ns, uint32_t subject_id, const char* body, uint32_t hlen,
                            uint32_t body_len, uint16_t flags) except 0
    # Read one message: 1 found, 0 no live message. Sequential reads are the fast case (read-ahead).
    cdef int read(self, uint64_t seq, Record* out) except -1
    # Lowest live sequence >= seq, 0 if none. O(1) without holes.
    cdef uint64_t next_live(self, uint64_t seq) noexcept
    # Lowest live sequence in [seq, stop] whose subject id is accepted: wanted[id] == 1 (ids >= wanted_len: not). 0 if none.
    # Sealed segments without any wanted subject are skipped as a whole.
    cdef uint64_t next_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t wanted_len) except? 18446744073709551615
    # Subject id and accounted size of a live message without reading its bytes: 1 found, 0 no live message.
    cdef int peek(self, uint64_t seq, uint32_t* subject_id, uint32_t* size) except -1
    # Remove one live message: 1 removed, 0 no live message. The next write() records the removal.
    cdef int remove(self, uint64_t seq) except -1
    # Skip sequences: the next append gets `next_seq` (> last_seq), and the sequences before it have no message.
    cdef int skip_to(self, uint64_t next_seq) except -1

    # --- per subject -------------------------------------------------------------------------------------------------
    # State of a subject by id; NULL when it has no live message. Valid until the next call on the log.
    cdef SubjectState* subject(self, uint32_t subject_id) except? NULL
    cdef int64_t find_subject(self, const char* subject, uint32_t n) noexcept      # its id, or -1 when never seen

    # --- counts ------------------------------------------------------------------------------------------------------
    cdef uint64_t live_from(self, uint64_t seq) except? 18446744073709551615       # live messages with sequence >= seq; O(segments)
    cdef uint64_t wanted_from(self, uint64_t seq, const uint8_t* wanted, uint32_t wanted_len) except? 18446744073709551615
    cdef uint64_t seq_at(self, uint64_t ts_ns) except? 18446744073709551615        # lowest live sequence with timestamp >= ts_ns; last_seq + 1 if none

    # --- for core/log/recovery -----------------------------------------------------------------------------------------
    cdef int prepare(self, str folder, Disk disk, object segment_bytes, object first_seq, object cipher) except -1    # a log without segments
    cdef void count_segment(self, Segment s) noexcept                       # add the live messages of a segment to the counts
    cdef int end_counting(self) except -1                                   # all segments are counted
    cdef int opened(self) except -1                                         # all segments are in the log

    # --- for other modules of core/log ---------------------------------------------------------------------------------
    cdef int retire(self, Segment s) except -1                              # take a sealed segment without live messages off the list
    cdef int count_anew(self) except -1                                     # compute all counts from the segments and the subject table

    # --- private -----------------------------------------------------------------------------------------------------
    cdef int give_back(self, uint32_t budget) except -1                     # frees unused subject ids: see SubjectTable
    cdef int drop(self, Segment s, uint32_t i) except -1                    # takes one live message out of the counts, its subject and its segment
    cdef const char* record_at(self, Segment s, uint32_t i) except? NULL    # the bytes of a record, checked; NULL when they are damaged
    cdef int drop_unreadable(self, Segment s, uint32_t i) except -1          # a live message whose record is damaged or erased
    cdef int quarantine(self, Segment s, uint32_t i, str reason) except -1
