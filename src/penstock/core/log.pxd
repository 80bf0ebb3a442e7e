"""The record log of one stream: append, read, remove, recover; in files or in memory.

Holds: segments, the sequence index, the per-subject index, watermarks. Knows nothing of consumers, retention policy,
protocol or config: the owner decides what to remove, the log remembers it. Every removal is itself a record, so
the record files alone are the truth; index files can be deleted at any time.

    accepted (last_seq)  >=  written (in the file)  >=  synced (on the disk)
"""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from penstock.core.disk cimport Disk


cdef struct Record:
    # One stored message. The pointers are valid until the next call on the same log.
    uint64_t seq
    uint64_t ts_ns
    const char* subject
    uint32_t subject_len
    uint32_t subject_id
    const char* body           # headers then payload
    uint32_t hlen              # of which header bytes
    uint32_t body_len          # headers + payload
    uint16_t flags             # as given to append (for the owner: TTL, marker, ...)


cdef struct SubjectState:
    uint64_t msgs              # live messages on this subject
    uint64_t first             # lowest live sequence (exact: the log repairs it before handing the struct out)
    uint64_t last              # highest live sequence (exact)
    const char* name
    uint32_t name_len


cdef class Log:
    cdef readonly Disk disk                  # None for a memory log
    cdef readonly str folder
    cdef readonly bint memory
    # state, all O(1) to read
    cdef readonly uint64_t first_seq         # lowest live sequence; last_seq + 1 when empty; never goes back
    cdef readonly uint64_t last_seq          # highest sequence ever given (accepted); 0 for a new log
    cdef readonly uint64_t written_seq       # every record up to here is in the file
    cdef readonly uint64_t synced_seq        # every record up to here is on the disk
    cdef readonly uint64_t msgs              # live messages
    cdef readonly uint64_t bytes             # their size as nats-server accounts it (file: 22+subject+(4+hdr)+msg+8; memory: subject+hdr+msg+16)
    cdef readonly uint64_t appended          # messages ever appended since open + live at open: msgs + removed
    cdef readonly uint64_t removed           # messages removed since open
    cdef readonly uint64_t last_ts_ns        # of the last message appended (0: none known)
    cdef readonly uint32_t subject_ids       # ids handed out so far: every id is < subject_ids
    cdef readonly uint64_t subject_count     # subjects with live messages
    cdef object lost                         # list of (first_seq, count, reason) found bad at recovery
    cdef object impl                         # the log's private parts (segments, pages, tables) hang on further attributes below this line

    # --- per message -------------------------------------------------------------------------------------------------
    # Append: gives the sequence. Copies into the write buffer; visible to read() at once. flags: 0 or what read() gives back.
    cdef uint64_t append(self, uint64_t ts_ns, const char* subject, uint32_t subject_len,
                         const char* body, uint32_t hlen, uint32_t body_len, uint16_t flags) except 0
    # The id of a subject (made if new): a caller that publishes the same subject again may keep it. NO_SUBJECT never returned.
    cdef uint32_t subject_id(self, const char* subject, uint32_t n) except? 4294967295
    # Like append, with the id known: no hash look-up.
    cdef uint64_t append_id(self, uint64_t ts_ns, uint32_t subject_id, const char* body, uint32_t hlen,
                            uint32_t body_len, uint16_t flags) except 0
    # Read one message: 1 found, 0 not there (never was, or removed). Sequential reads are the fast case (read-ahead).
    cdef int read(self, uint64_t seq, Record* out) except -1
    # Lowest live sequence >= seq, 0 if none. O(1) without holes.
    cdef uint64_t next_live(self, uint64_t seq) noexcept
    # Lowest live sequence in [seq, stop] whose subject id is accepted: wanted[id] == 1 (ids >= wanted_len: not). 0 if none.
    # Sealed segments without any wanted subject are skipped as a whole.
    cdef uint64_t next_wanted(self, uint64_t seq, uint64_t stop, const uint8_t* wanted, uint32_t wanted_len) except? 18446744073709551615
    # Subject id and accounted size of a live message without reading its bytes: 1 found, 0 not there.
    cdef int peek(self, uint64_t seq, uint32_t* subject_id, uint32_t* size) except -1
    # Remove one live message: 1 removed, 0 was not there. Remembered with the next write().
    cdef int remove(self, uint64_t seq) except -1
    # Skip sequences: the next append gets seq `next_seq` (> last_seq). Used when a sequence is consumed and nothing stored.
    cdef int skip_to(self, uint64_t next_seq) except -1

    # --- per subject -------------------------------------------------------------------------------------------------
    # State of a subject by id; NULL when it has no live message. Valid until the next call on the log.
    cdef SubjectState* subject(self, uint32_t subject_id) except? NULL
    cdef int64_t find_subject(self, const char* subject, uint32_t n) noexcept      # its id, or -1 when never seen

    # --- per turn ----------------------------------------------------------------------------------------------------
    cdef bint dirty(self) noexcept                      # something accepted is not written
    cdef int write(self) except -1                      # accepted -> written: one write call, removals of the turn included
    cdef int sync(self) except -1                       # written -> synced, in the calling thread
    # group commit with a worker thread: begin gives the handles to sync (usually one), end moves the watermark
    cdef int sync_begin(self, int* handles, int room, uint64_t* upto) except -1    # count of handles; 0 = nothing to do
    cdef int sync_end(self, uint64_t upto, int error) except -1                    # error: the errno of a failed sync (then raises OSError from now on: the log is closed for writing)

    # --- counts ------------------------------------------------------------------------------------------------------
    cdef uint64_t live_from(self, uint64_t seq) except? 18446744073709551615       # live messages with sequence >= seq; O(segments)
    cdef uint64_t wanted_from(self, uint64_t seq, const uint8_t* wanted, uint32_t wanted_len) except? 18446744073709551615
    cdef uint64_t seq_at(self, uint64_t ts_ns) except? 18446744073709551615        # lowest live sequence with timestamp >= ts_ns; last_seq + 1 if none
