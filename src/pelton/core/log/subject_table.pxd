"""The subjects of one log: ids, live counts, lowest and highest live sequence.

When no segment names a subject any more, its id becomes free and a later subject gets it. Ids become free only in `give_back`: its
caller must hold no id besides the one that it gave to `keep`.

Knows nothing of files or patterns.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList

cdef enum:
    FIRST_STALE = 1      # `first` is only a lower bound
    LAST_STALE = 2       # `last` is only an upper bound


cdef struct SubjectState:
    uint64_t msgs              # live messages on this subject
    uint64_t first             # lowest live sequence (exact: the log repairs it before handing the struct out)
    uint64_t last              # highest live sequence (exact)
    const char* name
    uint32_t name_len


cdef struct History:
    # The sequences of one subject, ascending; removed ones stay until they reach an end or outnumber the live ones.
    uint64_t* seqs
    uint32_t at                # of the first one
    uint32_t end
    uint32_t cap


cdef struct Subject:
    SubjectState state
    History* history
    uint32_t seen              # serial of the segment it was last appended to
    uint32_t local             # scratch: the number in a segment's own table; of a spare id: 1 + the next spare id of the run
    uint32_t holders           # number of segments that name it
    uint8_t stale


cdef struct Place:
    # A place of the hash table.
    uint32_t tag
    uint32_t id                # 1 + the id; 0: empty


cdef struct Run:
    # `run_ids` consecutive ids.
    uint32_t spare             # number of ids without a subject
    uint32_t head              # 1 + the first spare id; 0: none
    bint mixed                 # names came or went since the SubjectIndex sorted the run


cdef class SubjectWatcher:
    """An object that keeps state by subject id. The table calls gone() before it reuses an id."""
    cdef int gone(self, uint32_t id) except -1           # the id becomes free; its name is valid during the call


cdef class SubjectTable:
    cdef Subject* table
    cdef readonly uint32_t count         # every id is < count
    cdef uint32_t cap
    cdef readonly uint32_t spare         # number of ids < count without a subject
    cdef Place* places                   # by the hash of the name
    cdef uint32_t mask
    cdef Run* runs
    cdef uint32_t runs_cap
    cdef readonly uint32_t run_ids
    cdef uint32_t ordered                # ids < ordered are in sorted runs of the SubjectIndex
    cdef int64_t filling                 # the run whose spare ids are used next; -1: none
    cdef bint look                       # another run may have enough spare ids
    cdef Out leaving                     # ids (uint32s) for give_back(): one entry for each removed segment that named the id
    cdef uint32_t kept                   # 1 + the id that must not become free; 0: none
    cdef list watchers
    cdef readonly uint64_t live          # subjects with live messages
    cdef readonly bint tracking          # every subject with more than one live message has a history
    cdef SegmentList segments
    cdef public uint64_t debt_free       # entries that may be looked at before the table considers histories
    cdef uint64_t debt                   # entries looked at because there are no histories
    cdef uint64_t total                  # live messages of all subjects
    cdef object names                    # the SubjectIndex, made with the first query by pattern

    cdef int64_t find(self, const char* name, uint32_t n) noexcept
    cdef int64_t find_hashed(self, const char* name, uint32_t n, uint64_t h) noexcept
    cdef uint32_t intern(self, const char* name, uint32_t n) except? 4294967295
    cdef uint32_t intern_hashed(self, const char* name, uint32_t n, uint64_t h) except? 4294967295
    # Prefetch for a name that the caller interns soon: first look_at(), some time later look_closer().
    cdef void look_at(self, uint64_t h) noexcept
    cdef int64_t look_closer(self, uint64_t h) noexcept                  # the id that the name probably has, or -1
    cdef int seen_in(self, Segment s, uint32_t id) except -1             # join() for the active segment: once per subject and segment
    cdef void note_seen(self, Segment s) noexcept                        # appends go on in a segment that names subjects already
    cdef void set_local(self, uint32_t id, uint32_t number) noexcept     # scratch of the caller, valid until the next caller uses it
    cdef void counted(self, uint32_t id, uint32_t live, uint64_t first, uint64_t last) noexcept     # `live` more messages, above all others
    cdef void looked_at(self, uint64_t entries) noexcept                 # count entries looked at because there are no histories
    cdef int keep_index(self, object names) except -1                    # the SubjectIndex of this table
    cdef void run_added(self) noexcept                                   # the SubjectIndex has one more run, not sorted yet
    cdef void run_sorted(self, uint32_t run) noexcept
    cdef int join(self, Segment s, uint32_t id) except -1                # the segment names the subject
    cdef int leave(self, Segment s) except -1                            # the segment names no subject any more
    cdef int leave_one(self, uint32_t id) except -1
    cdef int give_back(self, uint32_t budget) except -1                  # look at up to `budget` ids of `leaving`, free the unused ones
    cdef int keep(self, uint32_t id) except -1                           # this id does not become free until the next keep()
    cdef int unused(self, uint32_t id) except -1                         # the id was interned, but no message was appended
    cdef int forget_subject(self, uint32_t id) except -1
    cdef int forget_run(self, uint32_t run) noexcept
    cdef int cut(self) noexcept
    cdef uint32_t new_id(self) except? 4294967295
    cdef uint32_t new_spare(self) noexcept
    cdef int resize(self, uint64_t size) except -1
    cdef void take_place(self, uint32_t tag, uint32_t id) noexcept
    cdef void leave_place(self, uint32_t tag, uint32_t id) noexcept
    cdef int appended(self, uint32_t id, uint64_t seq) except -1
    cdef void removed(self, uint32_t id, uint64_t seq) noexcept
    cdef void stop_tracking(self) noexcept                               # drop the histories
    cdef void reset(self) noexcept                                       # the log has no live message
    cdef SubjectState* state(self, uint32_t id) except? NULL             # exact; NULL without live messages
    cdef int repair(self, Subject* s, uint32_t id) except -1
    cdef int repair_by_history(self, Subject* s) except -1
    cdef uint64_t next_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615    # its lowest live sequence >= seq; 0: none
    cdef uint64_t last_upto(self, uint32_t id, uint64_t seq) except? 18446744073709551615    # its highest live sequence <= seq; 0: none
    cdef uint64_t live_from(self, uint32_t id, uint64_t seq) except? 18446744073709551615    # how many of its live messages are >= seq
    cdef int track(self) except -1                                       # build the histories
    cdef History* history_of(self, uint32_t id) except? NULL
    cdef bint alive(self, uint64_t seq) except -1
    cdef int push(self, Subject* s, uint64_t seq) except -1
    cdef int remember(self, Subject* s, uint64_t seq) except -1
    cdef void forget(self, Subject* s) noexcept
