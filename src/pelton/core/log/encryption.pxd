"""Messages and index files as ciphertext. See encryption.pyx.

The caller passes the keys as an object with `number`, `fresh()`, `aead(number, context)` and `invalid` (pelton.vault.StreamCipher).
Knows nothing of where keys come from.
"""
from libc.stdint cimport uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.base.disk cimport Disk

# The cipher of a file, from its head. LogLocked when the data key is missing.
cdef object aead_of(object cipher, const char* head, str path)
# Append the head of a new encrypted file to out; returns the cipher of the file.
cdef object begin_file(object cipher, Out* out, uint64_t first_seq, uint32_t salt, bint packed)
# Append n bytes of records to out, with encrypted messages and new checksums.
cdef int seal_records(object aead, const char* p, size_t n, uint32_t salt, Out* out) except -1
# Decrypt a record into scratch; its checksum is not computed again. NULL: the authentication fails.
cdef const char* open_record(object aead, object cipher, const char* p, Out* scratch) except? NULL
# A whole encrypted segment with plain messages at the same offsets; None: a part of it is damaged.
cdef bytes plain_image(object aead, object cipher, bytes data, uint32_t salt)
# Encrypt and decrypt one numbered part of a file; `bound` is authenticated with it.
cdef bytes seal_part(object aead, uint64_t part, const char* p, size_t n, bytes bound)
cdef bytes open_part(object aead, object cipher, uint64_t part, const char* p, size_t n, bytes bound)      # None: the authentication fails
cdef enum:
    INDEX_TAIL_BYTES = 60         # bytes behind the tables of an encrypted index file

# Index files: core/log/index_file makes head, entries and tables.
cdef bytes seal_index(object cipher, uint32_t number, bytes data, size_t entries_bytes)
cdef bint open_entries(object cipher, Disk disk, int handle, const char* head, char* entries, size_t n) except -1
cdef bytes open_tables(object cipher, const char* head, bytes data)
