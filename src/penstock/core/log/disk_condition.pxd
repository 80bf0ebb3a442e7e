"""Whether a log takes appends, and what its disk said when it does not. See disk_condition.pyx."""

cdef enum LogCondition:
    HOLDS = -1           # a group is being appended: nothing is written and no segment begun until it is whole (core/stream/atomic_batch)
    TAKES = 0            # appends are taken
    FULL = 1             # no room (or no handle): appends are refused until a write succeeds; nothing accepted is lost
    FAILED = 2           # a write or sync failed: no appends until mend() has rewritten what may not be on the disk; reads go on
    CLOSED = 3


cdef class DiskCondition:
    cdef readonly int condition          # LogCondition
    cdef readonly int failure            # errno behind FULL or FAILED
    cdef bint roll_failed                # FULL because no new segment could be begun
    cdef bint begin_anew                 # the active segment takes no message any more: see LogFiles.resume
    cdef bint unsure_told                # the file `unsure` names the segments that are not to be believed
    cdef int tries                       # calls of mend() that found bytes unreadable

    cdef void take(self) noexcept                    # a write has succeeded; still FULL where only a new segment takes messages
    cdef void full(self, int error) noexcept
    cdef void failed(self) noexcept                  # the errno follows, with because(): what comes between may fail itself
    cdef void because(self, int error) noexcept
    cdef void refused(self, int error) noexcept      # FULL or FAILED by the errno, unless it is FAILED already
    cdef void suspected(self) noexcept               # FAILED for what an earlier process or call has met: the errno is kept if there is one
    cdef void close(self) noexcept
    cdef void hold(self) noexcept                    # a group begins
    cdef void release(self) noexcept                 # ... and is whole
    cdef void recovered(self) noexcept               # everything accepted is on the disk
    cdef int unreadable(self) noexcept               # count one more call of mend() that could not read; how many there were
    cdef void roll_ended(self, bint failed) noexcept
    cdef void want_new_segment(self, bint wanted) noexcept
    cdef void unsure_noted(self, bint noted) noexcept
