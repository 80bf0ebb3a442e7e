"""Messages and index files as ciphertext.

The record of an encrypted message keeps its head (length, sequence, time, sizes) in plain. Subject, headers and payload are ciphertext,
a tag of 16 bytes follows, and the checksum covers the bytes in the file. So a process without the key can still read the heads of the
records, cut a torn end and find damage. The tag authenticates the head together with the message.

Each file has its own key, derived from the data key of the stream and from the head of the file with its 24 random bytes. So a record
that was copied to another segment, stream or place is rejected. The nonce of a message is its sequence. A sequence may be used a second
time only if no client saw the first message, and only in a file with another key: a log that is opened begins a new file, and a
rewritten file (compaction) has another key.

Removals and skips (ranges of sequences) are not encrypted. Messages are plain in memory (also in the tail) and inside compressed blocks,
which are encrypted as a whole (core/log/compressed_segment); there zeros take the place of the tag.

    index file   as in core/log/index_file with version 2: entries and tables are ciphertext, followed by the number of the data
                 key (u32), 24 random bytes, the tag of the entries and the tag of the tables
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, crc32c, out_free, out_reserve
from pelton.core.base.disk cimport Disk
from pelton.core.log.record cimport (
    ERASED, FRESH_BYTES, MESSAGE, RECORD_HEAD_BYTES, SEALED, SEALED_EXTRA_BYTES, SEALED_HEAD_BYTES, TAG_BYTES, TAGGED, Head, check_record,
    put_sealed_head, seal_record,
)

cdef extern from "Python.h":
    int PyBUF_READ

cdef enum:
    INDEX_HEAD_BYTES = 112
    INDEX_VERSION = 2
    BOUND_BYTES = 96              # bytes of the head of an index file that are authenticated with its tables
    NONCE_BYTES = 12
    TAGS_AT = 28                  # offset of the tags in the bytes behind the tables
    CHECK_BYTES = 4


class LogLocked(OSError):
    """The log is encrypted, and there is no key for it."""


cdef inline bytes nonce_of(uint64_t number):
    cdef bytes nonce = PyBytes_FromStringAndSize(NULL, NONCE_BYTES)
    memset(PyBytes_AS_STRING(nonce), 0, 4)
    memcpy(PyBytes_AS_STRING(nonce) + 4, &number, 8)
    return nonce


cdef inline object view(const char* p, size_t n):
    return PyMemoryView_FromMemory(<char*>p, n, PyBUF_READ)


# --- files -----------------------------------------------------------------------------------------------------------------

cdef object aead_of(object cipher, const char* head, str path):
    cdef uint32_t number
    memcpy(&number, head + 24, 4)
    if cipher is None:
        raise LogLocked(13, "the segment is encrypted, and there is no key", path)
    try:
        return cipher.aead(number, b"segment " + head[8:28] + head[32:56])
    except KeyError:
        raise LogLocked(13, "the segment is encrypted with a data key that the stream's key file does not have", path) from None


cdef object begin_file(object cipher, Out* out, uint64_t first_seq, uint32_t salt, bint packed):
    cdef bytes fresh = cipher.fresh()
    put_sealed_head(out, first_seq, salt, cipher.number, PyBytes_AS_STRING(fresh), packed)
    return aead_of(cipher, out.data + out.len - SEALED_HEAD_BYTES, "")


# --- records ---------------------------------------------------------------------------------------------------------------

cdef int seal_records(object aead, const char* p, size_t n, uint32_t salt, Out* out) except -1:
    cdef size_t at = 0, body
    cdef Head head
    cdef char* to
    cdef bytes sealed
    cdef object encrypt = aead.encrypt
    out_reserve(out, n)
    while at < n:
        if n - at < RECORD_HEAD_BYTES:
            raise AssertionError("what is to be sealed does not end with a record")
        memcpy(&head, p + at, RECORD_HEAD_BYTES)
        if head.length < RECORD_HEAD_BYTES or head.length > n - at:
            raise AssertionError("what is to be sealed is not made of records")
        to = out_reserve(out, head.length)
        if head.kind == MESSAGE and head.state & (TAGGED | SEALED | ERASED) == TAGGED:
            head.state |= SEALED
            memcpy(to, &head, RECORD_HEAD_BYTES)
            body = head.length - SEALED_EXTRA_BYTES
            sealed = encrypt(nonce_of(head.seq), view(p + at + RECORD_HEAD_BYTES, body), view(to, RECORD_HEAD_BYTES))
            if <size_t>PyBytes_GET_SIZE(sealed) != body + TAG_BYTES:
                raise AssertionError("a cipher has changed the length of a message")
            memcpy(to + RECORD_HEAD_BYTES, PyBytes_AS_STRING(sealed), body + TAG_BYTES)
        else:
            memcpy(to, p + at, head.length)
        seal_record(to, head.length, salt)
        out.len += head.length
        at += head.length
    return 0


cdef const char* open_record(object aead, object cipher, const char* p, Out* scratch) except? NULL:
    cdef Head head
    cdef bytes body
    memcpy(&head, p, RECORD_HEAD_BYTES)
    if aead is None or head.state & (TAGGED | SEALED | ERASED) != TAGGED | SEALED or head.length < SEALED_EXTRA_BYTES:
        return NULL
    if <uint64_t>head.subject_len + head.hlen > head.length - SEALED_EXTRA_BYTES:
        return NULL
    try:
        body = aead.decrypt(nonce_of(head.seq), view(p + RECORD_HEAD_BYTES, head.length - RECORD_HEAD_BYTES - CHECK_BYTES),
                            view(p, RECORD_HEAD_BYTES))
    except cipher.invalid:
        return NULL
    head.state &= ~SEALED & 0xFF
    scratch.len = 0
    out_reserve(scratch, head.length)
    memcpy(scratch.data, &head, RECORD_HEAD_BYTES)
    memcpy(scratch.data + RECORD_HEAD_BYTES, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
    memset(scratch.data + head.length - CHECK_BYTES - TAG_BYTES, 0, TAG_BYTES + CHECK_BYTES)
    scratch.len = head.length
    return scratch.data


cdef bytes plain_image(object aead, object cipher, bytes data, uint32_t salt):
    cdef bytes image = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    cdef char* p = PyBytes_AS_STRING(image)
    cdef size_t at = SEALED_HEAD_BYTES, size = PyBytes_GET_SIZE(image)
    cdef Head head
    cdef Out scratch
    cdef const char* plain
    cdef uint32_t n
    memset(&scratch, 0, sizeof(Out))
    try:
        while at < size:
            n = check_record(p + at, size - at, salt, &head)
            if n == 0:
                return None          # damaged since the opening: the next read of the record reports it
            if head.kind == MESSAGE and not head.state & ERASED:
                plain = open_record(aead, cipher, p + at, &scratch)
                if plain == NULL:
                    return None
                memcpy(p + at, plain, n)
                seal_record(p + at, n, salt)
            at += n
    finally:
        out_free(&scratch)
    return image


# --- parts of files --------------------------------------------------------------------------------------------------------

cdef bytes seal_part(object aead, uint64_t part, const char* p, size_t n, bytes bound):
    return aead.encrypt(nonce_of(part), view(p, n), bound)


cdef bytes open_part(object aead, object cipher, uint64_t part, const char* p, size_t n, bytes bound):
    if n < TAG_BYTES:
        return None
    try:
        return aead.decrypt(nonce_of(part), view(p, n), bound)
    except cipher.invalid:
        return None


cdef object index_aead(object cipher, const char* head, const char* tail):
    cdef uint32_t number
    memcpy(&number, tail, 4)
    return cipher.aead(number, b"index " + head[8:32] + tail[4:TAGS_AT])


cdef bytes seal_index(object cipher, uint32_t number, bytes data, size_t entries_bytes):
    cdef bytes fresh = cipher.fresh(), entries, tables
    cdef size_t tables_at = INDEX_HEAD_BYTES + entries_bytes, tables_bytes = PyBytes_GET_SIZE(data) - tables_at
    cdef bytes sealed = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(data) + INDEX_TAIL_BYTES)
    cdef char* p = PyBytes_AS_STRING(sealed)
    cdef char* to = p + PyBytes_GET_SIZE(data)
    cdef uint32_t version = INDEX_VERSION, crc
    memcpy(p, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    memcpy(p + 8, &version, 4)
    memcpy(to, &number, 4)
    memcpy(to + 4, PyBytes_AS_STRING(fresh), FRESH_BYTES)
    aead = index_aead(cipher, p, to)
    entries = seal_part(aead, 0, p + INDEX_HEAD_BYTES, entries_bytes, None)
    tables = seal_part(aead, 1, p + tables_at, tables_bytes, p[:BOUND_BYTES])
    memcpy(p + INDEX_HEAD_BYTES, PyBytes_AS_STRING(entries), entries_bytes)
    memcpy(p + tables_at, PyBytes_AS_STRING(tables), tables_bytes)
    memcpy(to + TAGS_AT, PyBytes_AS_STRING(entries) + entries_bytes, TAG_BYTES)
    memcpy(to + TAGS_AT + TAG_BYTES, PyBytes_AS_STRING(tables) + tables_bytes, TAG_BYTES)
    crc = crc32c(p + tables_at, tables_bytes, 0)
    memcpy(p + 96, &crc, 4)
    crc = crc32c(p + INDEX_HEAD_BYTES, entries_bytes, 0)
    memcpy(p + 100, &crc, 4)
    crc = crc32c(p, 108, 0)
    memcpy(p + 108, &crc, 4)
    return sealed


cdef bint open_entries(object cipher, Disk disk, int handle, const char* head, char* entries, size_t n) except -1:
    # Decrypts entries from an index file in place, if the file is encrypted. Their checksum is good. False: they cannot be decrypted.
    cdef uint32_t version
    cdef uint64_t size
    cdef char[INDEX_TAIL_BYTES] tail
    cdef bytes whole, plain
    memcpy(&version, head + 8, 4)
    if version != INDEX_VERSION:
        return True
    if cipher is None:
        return False
    size = disk.size(handle)
    if size < INDEX_TAIL_BYTES or disk.read_at(handle, tail, INDEX_TAIL_BYTES, size - INDEX_TAIL_BYTES) != INDEX_TAIL_BYTES:
        return False
    whole = PyBytes_FromStringAndSize(NULL, n + TAG_BYTES)
    memcpy(PyBytes_AS_STRING(whole), entries, n)
    memcpy(PyBytes_AS_STRING(whole) + n, tail + TAGS_AT, TAG_BYTES)
    try:
        plain = open_part(index_aead(cipher, head, tail), cipher, 0, PyBytes_AS_STRING(whole), n + TAG_BYTES, None)
    except KeyError:
        return False
    if plain is None:
        return False
    memcpy(entries, PyBytes_AS_STRING(plain), n)
    return True


cdef bytes open_tables(object cipher, const char* head, bytes data):
    """Decrypt the tables of an index file; `data`: everything behind the entries. None: they cannot be decrypted."""
    cdef size_t n = PyBytes_GET_SIZE(data)
    cdef bytes whole
    cdef const char* tail
    if cipher is None or n < INDEX_TAIL_BYTES:
        return None
    n -= INDEX_TAIL_BYTES
    tail = PyBytes_AS_STRING(data) + n
    whole = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data), n + TAG_BYTES)
    memcpy(PyBytes_AS_STRING(whole) + n, tail + TAGS_AT + TAG_BYTES, TAG_BYTES)
    try:
        return open_part(index_aead(cipher, head, tail), cipher, 1, PyBytes_AS_STRING(whole), n + TAG_BYTES, head[:BOUND_BYTES])
    except KeyError:
        return None
