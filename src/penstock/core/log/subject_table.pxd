"""The subjects of one log: ids, live counts, lowest and highest live sequence.

Knows nothing of files or of patterns. A subject that no segment names any more gives its id back, which another one gets later:
not before `give_back` is called, which those do who hold no id but the one they have told to `keep`.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.log.segment cimport Segment, SegmentList

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
    uint32_t local             # scratch: its number in a segment's own table; without a subject: 1 + the next such place of the run
    uint32_t holders           # segments that name it
    uint8_t stale


cdef struct Place:
    # of the hash table
    uint32_t tag
    uint32_t id                # 1 + it; 0: empty


cdef struct Run:
    # `run_ids` ids, one after the other.
    uint32_t spare             # ids without a subject
    uint32_t head              # 1 + the first of them; 0: none
    bint mixed                 # names came or went since the SubjectIndex has sorted it


cdef class SubjectWatcher:
    """Who keeps something by a subject's id."""
    cdef int gone(self, uint32_t id) except -1           # the id is given back; its name is there for the length of the call


cdef class SubjectTable:
    cdef Subject* table
    cdef readonly uint32_t count         # every id is below
    cdef uint32_t cap
    cdef readonly uint32_t spare         # ids below `count` without a subject
    cdef Place* places                   # by the hash of the name
    cdef uint32_t mask
    cdef Run* runs
    cdef uint32_t runs_cap
    cdef readonly uint32_t run_ids
    cdef uint32_t ordered                # ids below are in sorted runs of the SubjectIndex
    cdef int64_t filling                 # the run whose spare ids are given out; -1: none
    cdef bint look                       # some other run may have enough of them
    cdef Out leaving                     # ids (uint32s), once for each segment that named them and is gone: give_back() looks at them
    cdef uint32_t kept                   # 1 + the id that is not given back, whatever happens; 0: none
    cdef list watchers
    cdef readonly uint64_t live          # subjects with live messages
    cdef readonly bint tracking          # every subject with more than one live message has a history
    cdef SegmentList segments
    cdef public uint64_t debt_free       # entries that may be looked at before histories are worth a thought
    cdef uint64_t debt                   # entries looked at for want of histories
    cdef uint64_t total                  # live messages of all subjects
    cdef object names                    # the SubjectIndex, once somebody asked by pattern

    cdef int64_t find(self, const char* name, uint32_t n) noexcept
    cdef int64_t find_hashed(self, const char* name, uint32_t n, uint64_t h) noexcept
    cdef uint32_t intern(self, const char* name, uint32_t n) except? 4294967295
    cdef uint32_t intern_hashed(self, const char* name, uint32_t n, uint64_t h) except? 4294967295
    # Of a name that will be interned soon: one after the other, with some time between, to have the memory at hand by then.
    cdef void look_at(self, uint64_t h) noexcept
    cdef int64_t look_closer(self, uint64_t h) noexcept                  # the id that it will probably be, or -1
    cdef int seen_in(self, Segment s, uint32_t id) except -1             # the same, of the segment that is being filled: asked once for each
    cdef void note_seen(self, Segment s) noexcept                        # a segment that names subjects already is filled further
    cdef void set_local(self, uint32_t id, uint32_t number) noexcept     # scratch of the caller, until the next one uses it
    cdef void counted(self, uint32_t id, uint32_t live, uint64_t first, uint64_t last) noexcept     # so many more live messages, behind all others
    cdef void looked_at(self, uint64_t entries) noexcept                 # for want of histories
    cdef int keep_index(self, object names) except -1                    # the SubjectIndex of this table
    cdef void run_added(self) noexcept                                   # the SubjectIndex has one more run of ids, not sorted yet
    cdef void run_sorted(self, uint32_t run) noexcept
    cdef int join(self, Segment s, uint32_t id) except -1                # the segment names it
    cdef int leave(self, Segment s) except -1                            # the segment names none any more
    cdef int leave_one(self, uint32_t id) except -1
    cdef int give_back(self, uint32_t budget) except -1                  # look at so many that left
    cdef int keep(self, uint32_t id) except -1                           # this one stays until another one is to be kept
    cdef int unused(self, uint32_t id) except -1                         # interned, and not appended
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
    cdef void stop_tracking(self) noexcept                               # the histories are not believed any more
    cdef void reset(self) noexcept                                       # no live message left
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
