"""The position of a consumer in its stream: which message comes next, and how many messages are still ahead. See cursor.pyx."""
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from pelton.core.log.log cimport Log


@cython.final
cdef class Cursor:
    cdef Log log
    cdef readonly uint64_t next_seq          # lowest sequence not looked at yet
    cdef readonly uint64_t passed            # highest sequence handed out (or purged)
    cdef readonly bint filtered
    cdef readonly bint caught_up             # filtered: no wanted message from next_seq to the end of the log; jump() ends this
    cdef readonly tuple filters              # bytes; () = everything
    cdef bint literal                        # one filter without wildcards
    cdef bint few                            # the wanted subjects are in `ids`, and the log keeps histories; else they are in `wanted`
    cdef uint32_t ids[64]
    cdef uint32_t ids_n
    cdef uint8_t* wanted                     # per subject id: 1 = passes the filters
    cdef uint32_t wanted_len                 # ids >= wanted_len are not wanted
    cdef uint32_t wanted_cap
    cdef uint64_t found                      # answer of the last peek(): 0 = none
    cdef uint64_t* starts                    # last_per_subject: sequences to hand out first, ascending
    cdef size_t starts_at, starts_len
    # `ahead`: wanted messages in next_seq .. counted; valid as long as the stream's number of removals is `removals`
    cdef bint known
    cdef uint64_t ahead, counted, appended, removals

    cdef int set_filters(self, tuple filters) except -1
    cdef int start_with_last(self) except -1                                   # begin with the last message of each wanted subject
    cdef int want(self, uint32_t subject_id) except -1                         # this subject passes the filters
    cdef uint64_t peek(self, uint64_t visible) except? 18446744073709551615    # the next wanted sequence <= visible, 0: none
    cdef int took(self, uint64_t seq) except -1                                # the message of peek() was handed out
    cdef int pass_over(self, uint64_t seq) except -1                           # the message of peek() is not live any more
    cdef int jump(self, uint64_t seq) except -1                                # caught up: `seq` is the first wanted message since then
    cdef int skip_below(self, uint64_t seq) except -1                          # the stream starts at `seq` now
    cdef int purged_below(self, uint64_t seq) except -1                        # the stream starts at `seq` now, after a purge
    cdef uint64_t count(self, uint64_t removals) except? 18446744073709551615  # wanted messages not handed out yet
    cdef uint64_t count_anew(self, uint64_t removals) except? 18446744073709551615  # the same, when not every message was passed to took()
    cdef int want_matching(self, tuple filters) except -1                      # all subjects that match a filter pass
    cdef int want_all(self, uint32_t* ids, size_t n) except -1
    cdef int spread(self) except -1
    cdef int forget(self, uint32_t subject_id) noexcept                        # the id becomes free: another subject may get it
    cdef bint passes(self, uint32_t subject_id) noexcept
    cdef uint64_t first_of_few(self) except? 18446744073709551615
    cdef uint64_t count_from(self, uint64_t seq) except? 18446744073709551615
    cdef uint64_t find(self, uint64_t visible) except? 18446744073709551615
