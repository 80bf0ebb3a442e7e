"""The written and synced watermarks of a log.

    accepted (last_seq)  >=  written (in the file)  >=  synced (on the disk)

The log also counts its writes: a write mark names the write that must be synced before an action that depends on it.
Knows nothing of files.
"""
from libc.stdint cimport uint64_t


cdef class Watermarks:
    """The written and synced watermarks, as sequences and as counts of writes."""

    cdef void start(self, uint64_t last_seq) noexcept:
        self.written_seq = self.synced_seq = last_seq
        self.known = True

    cdef int doubt(self, object synced_seq) except -1:
        self.known = synced_seq is not None
        self.synced_seq = min(<uint64_t>synced_seq, self.written_seq) if self.known else 0
        return 0

    cdef void bytes_written(self) noexcept:
        self.write_mark += 1

    cdef void written(self, uint64_t last_seq) noexcept:
        self.written_seq = last_seq

    cdef void synced(self) noexcept:
        self.synced_seq = self.written_seq
        self.synced_mark = self.write_mark
        self.known = True

    cdef uint64_t begin_sync(self) noexcept:
        self.sync_running = True
        self.sync_mark = self.write_mark
        return self.written_seq

    cdef void end_sync(self) noexcept:
        self.sync_running = False

    cdef void sync_reached(self, uint64_t upto) noexcept:
        if upto > self.synced_seq:
            self.synced_seq = upto
        self.known = True
        if self.sync_mark > self.synced_mark:
            self.synced_mark = self.sync_mark

    cdef void rewritten(self, uint64_t last_seq) noexcept:
        self.write_mark += 1
        self.synced_mark = self.sync_mark = self.write_mark
        self.written_seq = self.synced_seq = last_seq
        self.known = True

    cdef bint use_sync(self, bint used) noexcept:
        cdef bint before = self.sync_used
        self.sync_used = used
        return before

    cdef int check(self, uint64_t last_seq) except -1:
        if not self.synced_seq <= self.written_seq <= last_seq:
            raise AssertionError(f"synced {self.synced_seq} <= written {self.written_seq} <= accepted {last_seq} is broken")
        return 0
