"""The condition of a log: whether it takes appends, and the error of the disk if it does not. See disk_condition.pyx."""

cdef enum LogCondition:
    HOLDS = -1           # a group is being appended: no write and no new segment until it is complete (core/stream/atomic_batch)
    TAKES = 0            # the log takes appends
    FULL = 1             # no room (or no handle): appends fail until a write succeeds; no accepted message is lost
    FAILED = 2           # a write or sync failed: appends fail until mend() has rewritten the doubtful segments; reads go on
    CLOSED = 3


cdef class DiskCondition:
    cdef readonly int condition          # LogCondition
    cdef readonly int failure            # the errno that made the log FULL or FAILED
    cdef bint roll_failed                # FULL because a new segment could not be made
    cdef bint begin_anew                 # the active segment takes no more messages: see LogFiles.resume
    cdef bint unsure_told                # the file `unsure` lists the doubtful segments
    cdef int tries                       # calls of mend() that found bytes unreadable

    cdef void take(self) noexcept                    # a write has succeeded: TAKES, but still FULL if messages need a new segment
    cdef void full(self, int error) noexcept
    cdef void failed(self) noexcept                  # FAILED; because() sets the errno later, as the steps between may fail themselves
    cdef void because(self, int error) noexcept
    cdef void refused(self, int error) noexcept      # FULL or FAILED, depending on the errno; FAILED stays FAILED
    cdef void suspected(self) noexcept               # FAILED because of an earlier process or call; keeps an errno that is set
    cdef void close(self) noexcept
    cdef void hold(self) noexcept                    # a group begins
    cdef void release(self) noexcept                 # the group is complete
    cdef void recovered(self) noexcept               # everything accepted is on the disk
    cdef int unreadable(self) noexcept               # count one more call of mend() that found bytes unreadable; returns the number
    cdef void roll_ended(self, bint failed) noexcept
    cdef void want_new_segment(self, bint wanted) noexcept
    cdef void unsure_noted(self, bint noted) noexcept
