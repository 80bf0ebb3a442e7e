"""Messages and index files as ciphertext: what is encrypted with what, and when nothing is. Explained in encryption.pyx.

Knows nothing of where keys come from: it is handed an object with `number`, `fresh()`, `aead(number, context)` and `invalid`
(penstock.vault.StreamCipher).
"""
from libc.stdint cimport uint32_t, uint64_t
from penstock.core.base.buffer cimport Out
from penstock.core.base.disk cimport Disk

# The cipher of a file whose head is there; LogLocked: its data key is not.
cdef object aead_of(object cipher, const char* head, str path)
# Puts the head of an encrypted file and gives its cipher.
cdef object begin_file(object cipher, Out* out, uint64_t first_seq, uint32_t salt, bint packed)
# Appends n bytes of records to out, messages encrypted on the way, checksums made anew.
cdef int seal_records(object aead, const char* p, size_t n, uint32_t salt, Out* out) except -1
# The plain record in scratch; NULL: it is not what was written there. Its checksum is not made anew.
cdef const char* open_record(object aead, object cipher, const char* p, Out* scratch) except? NULL
# A whole encrypted segment with its messages plain, at the same offsets; None: something in it is damaged.
cdef bytes plain_image(object aead, object cipher, bytes data, uint32_t salt)
# One of the numbered parts of a file.
cdef bytes seal_part(object aead, uint64_t part, const char* p, size_t n, bytes bound)
cdef bytes open_part(object aead, object cipher, uint64_t part, const char* p, size_t n, bytes bound)      # None: it is not what was written
cdef enum:
    INDEX_TAIL_BYTES = 60         # behind the tables of an encrypted index file

# Index files: head, entries and tables are as core/log/index_file made them.
cdef bytes seal_index(object cipher, uint32_t number, bytes data, size_t entries_bytes)
cdef bint open_entries(object cipher, Disk disk, int handle, const char* head, char* entries, size_t n) except -1
cdef bytes open_tables(object cipher, const char* head, bytes data)
