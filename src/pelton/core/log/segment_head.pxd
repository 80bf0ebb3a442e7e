"""The head of a segment file: which one a segment gets."""
from pelton.core.base.buffer cimport Out
from pelton.core.log.segment cimport Segment

cdef int put_head(object cipher, Segment s, Out* out) except -1     # append the head of a new file for s, encrypted if the stream is
