"""What a log still has to sync: bytes of segments, names of files.

A segment is synced by its handle, a name by its folder. The name of a new file is synced before the bytes of the file count as synced.
Each method raises the OSError of the disk. Knows nothing of records, watermarks or the condition of the log.
"""
import os

from pelton.core.base.disk cimport Disk
from pelton.core.log.segment cimport Segment
from pelton.core.log.segment_list cimport SegmentList


cdef class UnsyncedFiles:
    """The segments and names of one log that are not known to be on the disk."""

    def __init__(self, Disk disk, str folder, SegmentList segments) -> None:
        self.disk = disk
        self.folder = folder
        self.segments = segments
        self.sealed, self.syncing, self.fresh = [], [], []

    cdef int add(self, Segment s) except -1:
        if s not in self.sealed:
            self.sealed.append(s)
        return 0

    cdef int drop(self, Segment s) except -1:
        if s in self.sealed:
            self.sealed.remove(s)
        return 0

    cdef int drop_all(self) except -1:
        self.sealed = []
        return 0

    cdef int made(self, Segment s) except -1:
        self.names = True
        self.fresh.append(s)
        return 0

    cdef void name_made(self) noexcept:
        self.names = True

    cdef void folder_found(self) noexcept:
        self.folder_name = True

    cdef list doubtful(self, Segment active):
        return self.sealed + [active]

    cdef int doubt_fresh(self, Segment active) except -1:
        # The name of such a file is not synced, so none of its bytes count as synced.
        cdef Segment s
        for s in self.fresh:
            s.doubt_sync()
            if s is not active and s in self.segments.items:
                self.add(s)
        return 0

    cdef int sync(self, Segment active) except -1:
        cdef Segment s
        for s in self.doubtful(active):
            if s.synced_size < s.written_size:
                self.disk.sync(self.segments.handle(s))
                s.synced_all()
        return self.sync_names() if self.names else 0

    cdef int sync_names(self) except -1:
        self.disk.sync_dir(self.folder)
        if self.folder_name:
            self.disk.sync_dir(os.path.dirname(self.folder) or ".")
            self.folder_name = False
        self.names = False
        self.fresh = []
        return 0

    cdef int begin(self, Segment active, int* handles, int room) except -1:
        # The name of a new file is made durable here, once per segment.
        cdef Segment s
        cdef int n = 0
        if self.names:
            self.sync_names()
        try:
            for s in self.doubtful(active):
                if s.synced_size < s.written_size:
                    if n < room:
                        handles[n] = self.segments.handle(s)
                        s.begin_sync()
                        self.syncing.append(s)
                        n += 1
                    else:
                        self.disk.sync(self.segments.handle(s))
                        s.synced_all()
        except OSError:
            self.ended(False, False)             # no thread has got a handle yet
            raise
        return n

    cdef int ended(self, bint good, bint closed) except -1:
        cdef Segment s
        done, self.syncing = self.syncing, []
        for s in done:
            s.end_sync(good)
            if closed:
                self.disk.close_file(s)
        return 0

    cdef list synced(self):
        cdef Segment s
        cdef list done = []
        before, self.sealed = self.sealed, []
        for s in before:
            if s.synced_size < s.written_size:
                self.sealed.append(s)
            else:
                done.append(s)
        return done

    cdef int close_handles(self) except -1:
        cdef Segment s
        for s in self.sealed:
            self.disk.close_file(s)
        return 0
