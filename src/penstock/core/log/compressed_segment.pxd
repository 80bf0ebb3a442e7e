"""Segment files whose bytes are compressed block by block, read as if they were not. Drawn in compressed_segment.pyx.

Knows nothing of records, of indexes, or of when a segment is compressed.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.base.disk cimport Disk

cdef enum:
    PACKED_BLOCK_BYTES = 65536


cdef class Packed:
    """Where the blocks of one compressed file are."""
    cdef readonly uint64_t size            # bytes before compression, those of the segment
    cdef readonly uint64_t stored          # bytes of the file
    cdef uint32_t begins                   # offset of the first block
    cdef uint32_t count                    # blocks
    cdef uint64_t* starts                  # where each begins in the file, and where the last one ends: count + 1
    cdef object cipher                     # data keys of the stream; None: the blocks are not encrypted
    cdef object aead                       # that of the file
    cdef bytes table                       # length and checksum of each; None: not known
    cdef readonly uint32_t mended          # bits put right in blocks that were read
    cdef readonly uint32_t unsure          # blocks that were read of which nothing but the records in them says whether they are sound
    cdef uint64_t id                       # in the cache of decompressed blocks
    # As Disk.read_at does with a file that is not compressed. A damaged block reads as zeros.
    cdef int64_t read_at(self, Disk disk, int handle, char* p, size_t n, uint64_t offset) except -1
    cdef bytes opened(self, bytes raw, uint32_t said, uint32_t k)
    cdef long long measure(self, Disk disk, int handle, uint64_t at, uint32_t said) except -1
    cdef const char* block(self, Disk disk, int handle, uint32_t k) except NULL
    cdef int mend(self, char* p, size_t n, uint32_t k) except -1


# The file that a segment's n bytes make; they begin with the segment's head. `cipher`: it is encrypted; None: it is not.
cdef bytes pack(const char* p, size_t n, object cipher)
# What the file behind a handle holds; `cipher`: it is encrypted. LogLocked: there is no key for it.
cdef Packed open_packed(Disk disk, int handle, object cipher, str path)
# Whether a file whose head is not known ends as one of those, and is not encrypted.
cdef bint ends_packed(Disk disk, int handle) except -1
