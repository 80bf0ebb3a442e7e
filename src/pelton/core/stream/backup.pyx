"""The message formats of nats-server's backups, read and written: blocks of records, and the entries of the newer archive.

    block      = record*                                                              all numbers little-endian
    record     =
         0  u32 length         the whole record; bit 31: it has headers
         4  u64 seq            bit 63: erased; bit 62: a tombstone, which says that this sequence is removed
        12  i64 ts_ns
        20  u16 subject_len
        22  subject, [u32 header length, headers], payload
       end  u64 HighwayHash-64 of seq, ts_ns, subject, headers, payload; its key is SHA-256 of "<stream>-<index of the block>"

    archive    = "NATSARC1" entry*
    entry      = uvarint name length, varint ts_ns, uvarint seq, uvarint header length, uvarint payload length,
                 name, headers, payload
       seq > 0: a message, its name is the subject; all zero: the end mark; else a file: state.json, consumers/<name>

    index.db   = u8 11, u8 version, uvarint messages, bytes, first; varint time of the first; uvarint last; varint time of the last;
                 uvarint subjects, each: uvarint length, subject, uvarint messages, first block, [last block];
                 uvarint blocks, each: uvarint index, bytes, first; varint time; uvarint last; varint time; uvarint removed,
                 [uvarint TTLs, from version 2], [uvarint schedules, from version 3], [set of sequences, when some are removed];
                 uvarint index of the last block, its last 8 bytes; u64 HighwayHash-64 under SHA-256 of "<stream>"
    set        = u8 22, u8 version, u32 nodes, u32 count, node*
    node       = u64 base, 32 (version 1: 64) u64 of bits, u16

Knows nothing of the containers of these bytes (core/base/s2, a tar file), or of streams.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove
from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve, out_waiting
from pelton.core.base.highway_hash cimport Highway, highway_end, highway_put, highway_start
from pelton.core.log.log cimport Log, Record
from pelton.core.log.record cimport RECORD_EXTRA_BYTES, RECORD_MAX_BYTES
from pelton.core.protocol.publish_headers cimport PublishHeaders, Text, header_value, scan_headers

from hashlib import sha256

from pelton.core.base.durations import parse_duration

cdef enum:
    HEAD_BYTES = 22
    SUM_BYTES = 8
    HEADER_LEN_BYTES = 4
    MAGIC_BYTES = 8
    VARINT_MAX_BYTES = 10
    FILE_MAX_BYTES = 67108864          # the most bytes of an entry that is not a message
    NAME_MAX_BYTES = 65535
    STATE_MAGIC = 11
    SET_MAGIC = 22
    SET_NODE_MAX = 4096                # sequences in one node of a set

cdef uint64_t ERASED = <uint64_t>1 << 63
cdef uint64_t TOMBSTONE = <uint64_t>1 << 62
cdef uint32_t WITH_HEADERS = <uint32_t>1 << 31


cdef int keyed(Highway* h, str text) except -1:
    cdef bytes key = sha256(text.encode("utf-8", "surrogateescape")).digest()
    highway_start(h, <const uint8_t*>PyBytes_AS_STRING(key))
    return 0


# --- writing blocks ------------------------------------------------------------------------------

cdef class BlockWriter:
    """Writes messages of a log as nats-server's message blocks; see backup.pyi."""

    cdef str stream
    cdef Highway key
    cdef Out out

    def __init__(self, str stream) -> None:
        self.stream = stream

    def __dealloc__(self):
        out_free(&self.out)

    def start(self, int index) -> None:
        """Begin block `index`, counted from 1."""
        keyed(&self.key, f"{self.stream}-{index}")
        self.out.off = self.out.len = 0

    def __len__(self) -> int:
        return self.out.len

    cdef int put(self, uint64_t seq, uint64_t ts_ns, const char* subject, size_t subject_len, const char* body, uint32_t hlen,
                 size_t body_len) except -1:
        cdef size_t length = HEAD_BYTES + subject_len + (HEADER_LEN_BYTES if hlen else 0) + body_len + SUM_BYTES
        cdef char* p = out_reserve(&self.out, length)
        cdef uint32_t first = <uint32_t>length | (WITH_HEADERS if hlen else 0)
        cdef uint16_t n = <uint16_t>subject_len
        cdef uint64_t checksum
        cdef Highway h = self.key
        memcpy(p, &first, 4)
        memcpy(p + 4, &seq, 8)
        memcpy(p + 12, &ts_ns, 8)
        memcpy(p + 20, &n, 2)
        if subject_len:
            memcpy(p + HEAD_BYTES, subject, subject_len)
        highway_put(&h, p + 4, 16)
        highway_put(&h, p + HEAD_BYTES, subject_len)
        p += HEAD_BYTES + subject_len
        if hlen:
            memcpy(p, &hlen, HEADER_LEN_BYTES)
            p += HEADER_LEN_BYTES
        if body_len:
            memcpy(p, body, body_len)
        highway_put(&h, p, body_len)
        checksum = highway_end(&h)
        memcpy(p + body_len, &checksum, SUM_BYTES)
        self.out.len += length
        return 0

    def fill(self, Log log, uint64_t seq, uint64_t stop, size_t budget, size_t block_bytes) -> int:
        """Add messages with sequences in [seq, stop]; returns the sequence to continue with."""
        cdef Record r
        cdef size_t enough = min(self.out.len + budget, block_bytes)
        while self.out.len < enough:
            seq = log.next_live(seq)
            if seq == 0 or seq > stop:
                return stop + 1
            if log.read(seq, &r):
                self.put(seq, r.ts_ns, r.subject, r.subject_len, r.body, r.hlen, r.body_len)
            seq += 1
        return seq

    def erased(self, uint64_t seq, uint64_t ts_ns) -> None:
        """Add a record for a sequence whose message is removed."""
        # not a tombstone: it does not move the last sequence of a block that has messages
        self.put(seq | ERASED, ts_ns, NULL, 0, NULL, 0, 0)

    def take(self) -> bytes:
        """Return the block."""
        data = PyBytes_FromStringAndSize(self.out.data, self.out.len)
        out_free(&self.out)
        return data


# --- writing entries -----------------------------------------------------------------------------

cdef char* put_uvarint(char* p, uint64_t value) noexcept nogil:
    while value > 127:
        p[0] = <char>(<uint8_t>(value & 127) | 128)
        value >>= 7
        p += 1
    p[0] = <char>value
    return p + 1


cdef class EntryWriter:
    """Writes messages of a log as entries of an archive; see backup.pyi."""

    cdef Out out

    def __dealloc__(self):
        out_free(&self.out)

    cdef int put(self, uint64_t seq, uint64_t ts_ns, const char* subject, size_t subject_len, const char* body, uint32_t hlen,
                 size_t body_len) except -1:
        cdef char* start = out_reserve(&self.out, 5 * VARINT_MAX_BYTES + subject_len + body_len)
        cdef char* p = put_uvarint(start, subject_len)
        p = put_uvarint(p, ts_ns << 1)                     # zigzag; no stored time is before 1970
        p = put_uvarint(p, seq)
        p = put_uvarint(p, hlen)
        p = put_uvarint(p, body_len - hlen)
        memcpy(p, subject, subject_len)
        p += subject_len
        if body_len:
            memcpy(p, body, body_len)
        self.out.len += p + body_len - start
        return 0

    def fill(self, Log log, uint64_t seq, uint64_t stop, size_t budget) -> int:
        """Add messages with sequences in [seq, stop]; returns the sequence to continue with."""
        cdef Record r
        while self.out.len < budget:
            seq = log.next_live(seq)
            if seq == 0 or seq > stop:
                return stop + 1
            if log.read(seq, &r):
                self.put(seq, r.ts_ns, r.subject, r.subject_len, r.body, r.hlen, r.body_len)
            seq += 1
        return seq

    def take(self) -> bytes:
        """Return the entries since the last call."""
        data = PyBytes_FromStringAndSize(self.out.data, self.out.len)
        out_free(&self.out)
        return data


# --- reading -------------------------------------------------------------------------------------

cdef class Feed:
    """Reads records from bytes that come in pieces; see backup.pyi."""

    cdef Out out

    def __dealloc__(self):
        out_free(&self.out)

    @property
    def waiting(self) -> int:
        """Bytes that were fed and are not read yet."""
        return out_waiting(&self.out)

    def feed(self, data) -> None:
        """Add bytes."""
        cdef Py_buffer view
        cdef size_t n = out_waiting(&self.out)
        if self.out.off and self.out.off >= n:             # drop the bytes that were read
            memcpy(self.out.data, self.out.data + self.out.off, n)
            self.out.off = 0
            self.out.len = n
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            out_put(&self.out, <const char*>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)


cdef bint sayable(const char* subject, size_t n) noexcept nogil:
    """Whether a subject can be sent to clients: it has no blanks or control characters, which would end it on the wire."""
    cdef size_t i
    for i in range(n):
        if <uint8_t>subject[i] <= 32:
            return False
    return n > 0


cdef int store(Log log, uint64_t seq, uint64_t ts_ns, const char* subject, size_t subject_len, const char* body, size_t hlen,
               size_t body_len) except -1:
    """Append a message at its sequence; the sequences before it are skipped."""
    cdef PublishHeaders headers
    cdef uint16_t flags = 0
    if not sayable(subject, subject_len) or subject_len > NAME_MAX_BYTES or subject_len + body_len > RECORD_MAX_BYTES - RECORD_EXTRA_BYTES:
        raise ValueError(f"message {seq} cannot be stored: its subject or its size is not valid")
    if seq <= log.span.last_seq:
        raise ValueError(f"message sequence {seq} out of order")
    if seq > log.span.last_seq + 1:
        log.skip_to(seq)
    if hlen:
        scan_headers(body, <uint32_t>hlen, &headers)
        flags = <uint16_t>headers.rare           # as in core/stream/publish, for the rules
    log.append(ts_ns, subject, <uint32_t>subject_len, body, <uint32_t>hlen, <uint32_t>body_len, flags)
    return 0


cdef class BlockReader(Feed):
    """Reads the messages of nats-server's blocks into a log; see backup.pyi."""

    cdef Log log
    cdef str stream
    cdef Highway key
    cdef int index
    cdef readonly uint64_t last_removed

    def __init__(self, Log log, str stream) -> None:
        self.log = log
        self.stream = stream

    def start(self, int index) -> None:
        """Begin block `index`: further bytes are of it."""
        if out_waiting(&self.out):
            raise ValueError(f"message block {self.index} ends in the middle of a record")
        self.index = index
        keyed(&self.key, f"{self.stream}-{index}")

    def run(self) -> None:
        """Read the complete records."""
        cdef const char* p
        cdef uint32_t length, subject_len, hlen
        cdef uint16_t n16
        cdef uint64_t seq, ts_ns, checksum
        cdef size_t at, body_len
        cdef bint headers
        cdef Highway h
        while out_waiting(&self.out) >= HEAD_BYTES:
            p = self.out.data + self.out.off
            memcpy(&length, p, 4)
            headers = (length & WITH_HEADERS) != 0
            length &= ~WITH_HEADERS
            memcpy(&n16, p + 20, 2)
            subject_len = n16
            at = HEAD_BYTES + subject_len + (HEADER_LEN_BYTES if headers else 0)
            if length < at + SUM_BYTES or length > RECORD_MAX_BYTES:
                raise ValueError(f"message block {self.index} has bytes that are no record")
            if out_waiting(&self.out) < length:
                return
            memcpy(&seq, p + 4, 8)
            memcpy(&ts_ns, p + 12, 8)
            body_len = length - at - SUM_BYTES
            hlen = 0
            if headers:
                memcpy(&hlen, p + HEAD_BYTES + subject_len, HEADER_LEN_BYTES)
                if hlen > body_len:
                    raise ValueError(f"message block {self.index} has bytes that are no record")
            h = self.key
            highway_put(&h, p + 4, 16)
            highway_put(&h, p + HEAD_BYTES, subject_len)
            highway_put(&h, p + at, body_len)
            memcpy(&checksum, p + length - SUM_BYTES, SUM_BYTES)
            if highway_end(&h) != checksum:
                raise ValueError(f"message block {self.index} has a record whose checksum does not match")
            self.out.off += length
            if seq & TOMBSTONE:
                seq &= ~(TOMBSTONE | ERASED)
                self.last_removed = max(self.last_removed, seq)
                self.log.remove(seq)
            elif seq and not seq & ERASED and seq > self.log.span.last_seq:
                store(self.log, seq, ts_ns, p + HEAD_BYTES, subject_len, p + at, hlen, body_len)
            elif seq & ERASED:
                self.last_removed = max(self.last_removed, seq & ~ERASED)


cdef struct Reading:
    # A position in bytes that may be incomplete.
    const uint8_t* at
    const uint8_t* end
    bint bad


cdef uint64_t uvarint(Reading* r) noexcept nogil:
    cdef uint64_t v = 0
    cdef uint8_t byte
    cdef int i
    for i in range(VARINT_MAX_BYTES):
        if r.at >= r.end:
            break
        byte = r.at[0]
        r.at += 1
        v |= <uint64_t>(byte & 127) << (7 * i)
        if byte < 128:
            return v
    r.bad = True
    return 0


cdef int64_t varint(Reading* r) noexcept nogil:
    cdef uint64_t v = uvarint(r)
    return <int64_t>((v >> 1) ^ (0 - (v & 1)))


cdef class EntryReader(Feed):
    """Reads the entries of an archive that begins with NATSARC1; see backup.pyi."""

    cdef public Log log
    cdef public int64_t max_bytes
    cdef public int64_t now_ns
    cdef readonly bint complete
    cdef bint begun
    cdef uint64_t last                     # the highest sequence seen

    def __init__(self) -> None:
        self.max_bytes = -1

    cdef int message(self, uint64_t seq, int64_t ts_ns, const char* name, size_t n, size_t hlen, size_t body_len) except -1:
        if self.log is None:
            raise ValueError("the archive has a message before state.json")
        if seq <= self.last or seq >= ERASED:
            raise ValueError(f"message sequence {seq} out of order")
        self.last = seq
        if self.outlived(ts_ns, name + n, hlen):
            if seq > self.log.span.last_seq:
                self.log.skip_to(seq + 1)
            return 0
        return store(self.log, seq, <uint64_t>ts_ns, name, n, name + n, hlen, body_len)

    cdef bint outlived(self, int64_t ts_ns, const char* headers, size_t n) except -1:
        cdef Text ttl
        if n == 0 or self.now_ns == 0:
            return False
        ttl = header_value(headers, <uint32_t>n, b"Nats-TTL", 8)
        if ttl.at == NULL:
            return False
        text = ttl.at[:ttl.n].decode("utf-8", "replace")
        if text == "never":
            return False
        life_ns = int(text) * 1_000_000_000 if len(text) < 20 and text.isascii() and text.isdigit() else parse_duration(text)
        return life_ns is not None and life_ns > 0 and ts_ns + life_ns < self.now_ns

    def run(self) -> tuple | None:
        """Read the complete entries: the next entry that is not a message, or None."""
        cdef Reading r
        cdef uint64_t name_len, seq, hlen, payload_len, most
        cdef int64_t ts_ns
        cdef size_t length
        if not self.begun:
            if out_waiting(&self.out) < MAGIC_BYTES:
                return None
            if memcmp(self.out.data + self.out.off, b"NATSARC1", MAGIC_BYTES) != 0:
                raise ValueError("not an archive")
            self.out.off += MAGIC_BYTES
            self.begun = True
        while out_waiting(&self.out) and not self.complete:
            r.at = <const uint8_t*>self.out.data + self.out.off
            r.end = <const uint8_t*>self.out.data + self.out.len
            r.bad = False
            name_len = uvarint(&r)
            ts_ns = varint(&r)
            seq = uvarint(&r)
            hlen = uvarint(&r)
            payload_len = uvarint(&r)
            if r.bad:
                if out_waiting(&self.out) >= 5 * VARINT_MAX_BYTES:
                    raise ValueError("the numbers of an entry are not valid")
                return None
            most = FILE_MAX_BYTES
            if seq and self.max_bytes >= 0:
                most = <uint64_t>self.max_bytes
            if name_len > NAME_MAX_BYTES or hlen > most or payload_len > most or hlen + payload_len > most:
                raise ValueError(f"message sequence {seq} is too long" if seq else "an entry is too long")
            if seq == 0 and name_len == 0:
                if ts_ns or hlen or payload_len:
                    raise ValueError("expected message sequence")
                self.complete = True
            length = name_len + hlen + payload_len
            if <size_t>(r.end - r.at) < length:
                return None
            self.out.off = <size_t>(<const char*>r.at - self.out.data) + length
            if self.complete:
                return None
            if seq == 0:
                name = PyBytes_FromStringAndSize(<const char*>r.at, name_len).decode("utf-8", "surrogateescape")
                return name, PyBytes_FromStringAndSize(<const char*>r.at + name_len, length - name_len)
            self.message(seq, ts_ns, <const char*>r.at, name_len, hlen, hlen + payload_len)
        return None


# --- index.db ------------------------------------------------------------------------------------

cdef int remove_range(Log log, uint64_t first, uint64_t last) except -1:
    cdef uint64_t seq = log.next_live(first)
    while seq and seq <= last:
        log.remove(seq)
        seq = log.next_live(seq + 1)
    return 0


cdef int remove_set(Log log, Reading* r, uint64_t first, uint64_t last, uint64_t* left) except -1:
    """Remove the sequences of a set that lie in a range, at most `left`; sets r.bad for an invalid set, or one with more sequences."""
    cdef uint32_t nodes, k, words
    cdef uint64_t base, bits
    cdef uint32_t i, b
    if r.end - r.at < 10 or r.at[0] != SET_MAGIC or not 1 <= r.at[1] <= 2:
        r.bad = True
        return 0
    words = 32 if r.at[1] == 2 else 64
    memcpy(&nodes, r.at + 2, 4)
    r.at += 10
    if nodes > <size_t>(r.end - r.at) // (10 + 8 * words):
        r.bad = True
        return 0
    for k in range(nodes):
        memcpy(&base, r.at, 8)
        if base > last or base + 64 * words <= first:
            r.at += 10 + 8 * words
            continue
        for i in range(words):
            memcpy(&bits, r.at + 8 + 8 * i, 8)
            for b in range(64):
                if bits == 0:
                    break
                if bits >> b & 1:
                    if left[0] == 0:
                        r.bad = True
                        return 0
                    left[0] -= 1
                    log.remove(base + 64 * i + b)
                    bits &= ~(<uint64_t>1 << b)
        r.at += 10 + 8 * words
    return 0


def apply_state(Log log, bytes data, bytes key) -> tuple | None:
    """Remove from a log the messages that an index.db names as removed; (first, last) sequence of the stream, or None: it is not valid."""
    cdef Reading r
    cdef Highway h
    cdef uint64_t checksum, first, last, count, n, i, low, high, removed, upto = 0
    cdef uint64_t oldest = log.span.first_seq, newest = log.span.last_seq
    cdef uint64_t left = newest - min(oldest, newest) + 2 * SET_NODE_MAX     # a node may extend beyond either end
    cdef int version
    cdef size_t size = PyBytes_GET_SIZE(data)
    if size < 32:
        return None
    r.at = <const uint8_t*>PyBytes_AS_STRING(data)
    r.end = r.at + size - SUM_BYTES
    r.bad = False
    highway_start(&h, <const uint8_t*>PyBytes_AS_STRING(key))
    highway_put(&h, <const char*>r.at, size - SUM_BYTES)
    memcpy(&checksum, r.end, SUM_BYTES)
    version = r.at[1]
    if highway_end(&h) != checksum or r.at[0] != STATE_MAGIC or not 1 <= version <= 4:
        return None
    r.at += 2
    uvarint(&r)
    uvarint(&r)
    first = uvarint(&r)
    varint(&r)
    last = uvarint(&r)
    varint(&r)
    count = uvarint(&r)
    for i in range(count):
        n = uvarint(&r)
        if r.bad or n > <uint64_t>(r.end - r.at):
            return None
        if n == 0:
            continue
        r.at += n
        n = uvarint(&r)
        uvarint(&r)
        if n > 1 or version >= 4:
            uvarint(&r)
    count = uvarint(&r)
    for i in range(count):
        uvarint(&r)
        uvarint(&r)
        low = uvarint(&r)
        varint(&r)
        high = uvarint(&r)
        varint(&r)
        removed = uvarint(&r)
        if version >= 2:
            uvarint(&r)
        if version >= 3:
            uvarint(&r)
        if removed:
            remove_set(log, &r, oldest, newest, &left)
        if r.bad:
            return None
        if low > upto:
            remove_range(log, upto, low - 1)
        upto = max(upto, high + 1)
    if r.bad:
        return None
    return first, last
