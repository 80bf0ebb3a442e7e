"""The tail: the newest bytes of the active segment in memory. Appends go here, and reads of new messages come from here.

    base                    base + written              base + out.len
    | written, kept to read | unwritten                 |

Messages in the tail are plain; the write encrypts them. The owner decides when to write.
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memmove
from pelton.core.base.buffer cimport Out, out_free, out_put
from pelton.core.log.encryption cimport seal_records
from pelton.core.log.record cimport RECORD_EXTRA_BYTES, put_skip
from pelton.core.log.segment cimport Segment


cdef class Tail:
    """A buffer with the last bytes of the active segment, written and unwritten."""

    def __dealloc__(self) -> None:
        out_free(&self.out)
        out_free(&self.sealed)

    cdef void begin(self, uint64_t base) noexcept:
        self.out.len = 0
        self.base = base
        self.written = 0

    cdef size_t unwritten(self) noexcept:
        return self.out.len - self.written

    cdef const char* unwritten_bytes(self, Segment s) except NULL:
        cdef const char* p = self.out.data + self.written
        cdef size_t n = self.out.len - self.written, head = 0
        if s.aead is None:
            return p
        self.sealed.len = 0
        if self.base + self.written == 0:
            head = s.begins
            out_put(&self.sealed, p, head)
        seal_records(s.aead, p + head, n - head, s.salt, &self.sealed)
        return self.sealed.data

    cdef void wrote_all(self) noexcept:
        self.written = self.out.len

    cdef void cut_to(self, size_t keep) noexcept:
        self.out.len = keep

    cdef void trim(self) noexcept:
        cdef size_t gone
        if self.written <= TAIL_MAX_BYTES:
            return
        gone = self.written - TAIL_KEEP_BYTES
        memmove(self.out.data, self.out.data + gone, self.out.len - gone)
        self.out.len -= gone
        self.base += gone
        self.written -= gone

    cdef int skip(self, Segment s, uint64_t first, uint64_t last, bint lost) except -1:
        put_skip(&self.out, first, last, lost, s.salt)
        s.grow(RECORD_EXTRA_BYTES)
        return 0
