"""The head of a segment file: which one a segment gets. Knows nothing of the records behind it.

core/log/record draws the plain head, core/log/encryption the one of an encrypted file.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from pelton.core.base.buffer cimport Out
from pelton.core.log.encryption cimport begin_file
from pelton.core.log.record cimport RECORD_EXTRA_BYTES, SEALED_EXTRA_BYTES, SEALED_HEAD_BYTES, SEGMENT_HEAD_BYTES, put_segment_head
from pelton.core.log.segment cimport Segment


cdef int put_head(object cipher, Segment s, Out* out) except -1:
    if cipher is None or cipher.number == 0:
        put_segment_head(out, s.first, s.salt)
        s.use_form(SEGMENT_HEAD_BYTES, RECORD_EXTRA_BYTES)
        s.use_key(0, None)
        s.use_head(None)                 # the file before may have been encrypted
        return 0
    s.use_key(cipher.number, begin_file(cipher, out, s.first, s.salt, False))
    s.use_head(PyBytes_FromStringAndSize(out.data + out.len - SEALED_HEAD_BYTES, SEALED_HEAD_BYTES))
    s.use_form(SEALED_HEAD_BYTES, SEALED_EXTRA_BYTES)
    return 0
