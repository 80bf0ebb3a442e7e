"""The condition of a log: whether it takes appends, and the error of the disk if it does not.

    TAKES -> FULL      a write found no room, or a new segment could not be made; the next write that succeeds ends this
    TAKES -> FAILED    a write or sync failed with another error; mend() (core/log/disk_recovery) ends this
    any   -> CLOSED    final

Knows nothing of files. The owner decides when to try again.
"""
from errno import EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC

NO_ROOM = frozenset((ENOSPC, EDQUOT, EFBIG, ENOMEM, EMFILE, ENFILE))
"""Errors of a write that do not put earlier writes in doubt."""


class LogClosed(OSError):
    """The log takes no appends: a write or fsync failed and mend() has not worked yet, or it was closed."""


cdef class DiskCondition:
    """One of LogCondition, and the errno behind it."""

    cdef void take(self) noexcept:
        self.condition = FULL if self.begin_anew else TAKES

    cdef void full(self, int error) noexcept:
        self.condition = FULL
        self.failure = error

    cdef void failed(self) noexcept:
        self.condition = FAILED

    cdef void because(self, int error) noexcept:
        self.failure = error

    cdef void refused(self, int error) noexcept:
        if self.condition >= FAILED:
            return
        self.condition = FULL if error in NO_ROOM else FAILED
        self.failure = error

    cdef void suspected(self) noexcept:
        self.condition = FAILED
        if self.failure == 0:
            self.failure = EIO

    cdef void close(self) noexcept:
        self.condition = CLOSED

    cdef void hold(self) noexcept:
        self.condition = HOLDS

    cdef void release(self) noexcept:
        self.condition = TAKES

    cdef void recovered(self) noexcept:
        self.condition = TAKES
        self.failure = 0
        self.tries = 0

    cdef int unreadable(self) noexcept:
        self.tries += 1
        return self.tries

    cdef void roll_ended(self, bint failed) noexcept:
        self.roll_failed = failed

    cdef void want_new_segment(self, bint wanted) noexcept:
        self.begin_anew = wanted

    cdef void unsure_noted(self, bint noted) noexcept:
        self.unsure_told = noted
