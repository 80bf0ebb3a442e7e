"""Disks for readers that must not write; see readonly_disk.pyi."""
from pelton.core.base.disk cimport Disk


cdef class ReadOnlyDisk(Disk):
    cdef dict held          # path -> (handle, size) of the files of held folders
    cdef dict sizes         # handle that was given out -> size of its held file
    cdef dict folders       # held folder -> its names


cdef class OverlayDisk(Disk):
    cdef Disk base
    cdef readonly dict files        # path -> bytes that replace those of the base
    cdef readonly set gone          # paths of the base that were removed
    cdef str forget                 # ending of names whose files are not kept when they are written
    cdef readonly set forgotten     # ... those that would have been
    cdef dict patches               # path -> what a file of the base begins with
    cdef object progress            # called with the bytes of large reads
    cdef set made                   # folders
    cdef dict handles               # -> (path, handle of the base; -1: none)
    cdef int next_handle
    cdef object own(self, int handle)
