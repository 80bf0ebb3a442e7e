"""Segment files that are compressed block by block; readers see the uncompressed bytes. compressed_segment.pyx draws the format.

Knows nothing of records, of index files, or of when a segment is compressed.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.disk cimport Disk

cdef enum:
    PACKED_BLOCK_BYTES = 65536


cdef class Packed:
    """The places of the blocks in one compressed file."""
    cdef readonly uint64_t size            # bytes of the segment, uncompressed
    cdef readonly uint64_t stored          # bytes of the file
    cdef uint32_t begins                   # offset of the first block
    cdef uint32_t count                    # number of blocks
    cdef uint64_t* starts                  # count + 1 offsets in the file: the start of each block and the end of the last one
    cdef object cipher                     # data keys of the stream; None: the blocks are not encrypted
    cdef object aead                       # the cipher of this file
    cdef bytes table                       # length and checksum of each block; None: not known
    cdef readonly uint32_t mended          # bits corrected in the blocks that were read
    cdef readonly uint32_t unsure          # blocks that were read without a checksum: only their records can tell whether they are sound
    cdef uint64_t id                       # key in the cache of decompressed blocks
    # Like Disk.read_at with an uncompressed file. A damaged block reads as zeros.
    cdef int64_t read_at(self, Disk disk, int handle, char* p, size_t n, uint64_t offset) except -1
    cdef bytes opened(self, bytes raw, uint32_t said, uint32_t k)
    cdef long long measure(self, Disk disk, int handle, uint64_t at, uint32_t said) except -1
    cdef const char* block(self, Disk disk, int handle, uint32_t k) except NULL
    cdef int mend(self, char* p, size_t n, uint32_t k) except -1


# Compress the n bytes of a segment, its head included, into a file. `cipher`: encrypt the file; None: do not.
cdef bytes pack(const char* p, size_t n, object cipher)
# Open a compressed segment file for reading. `cipher`: the data keys of an encrypted file. LogLocked when the key is missing.
cdef Packed open_packed(Disk disk, int handle, object cipher, str path)
# Whether a file with an unreadable head has the end of a compressed file that is not encrypted.
cdef bint ends_packed(Disk disk, int handle) except -1
