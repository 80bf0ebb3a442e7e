"""Copying messages of one stream into another: how a mirror or a source stores a message, and the copy loop within a server.

`SourceWriter` writes the messages of one upstream into the target, from this server or another one. A mirror keeps sequence, time and
headers; a source appends, and a header names the message's origin:

    Nats-Stream-Source: <origin> <sequence there> <filter> <destination> <subject there> [<identity>]

Both leave out Nats-Expected-* and Nats-Batch-*: the origin has applied them. A message is processed when it is stored, or is a
duplicate; one that the target refuses stays the next one.

`Copier` reads an origin of the same server from its log, up to its visible watermark, in the delivery phase, as consumers do; the origin's
publishers pay as little for it as for a waiting consumer. Knows nothing of configuration, retries or state files.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset
from pelton.core.base.buffer cimport Out, out_free, out_put, put_u64
from pelton.core.broker.router cimport Message
from pelton.core.log.cursor cimport Cursor
from pelton.core.log.log cimport Log, Record
from pelton.core.protocol.publish_headers cimport Text, header_value
from pelton.core.stream.publish cimport REFUSED, STORED
from pelton.core.stream.listeners cimport Listener
from pelton.core.stream.stream cimport Stream

cdef enum:
    BATCH = 4096                   # the most messages copied in one turn
    BATCH_BYTES = 8388608

RECORD_SOURCED = SOURCED


cdef inline bint starts(const char* p, size_t n, const char* text, size_t text_len) noexcept nogil:
    return n >= text_len and memcmp(p, text, text_len) == 0


cdef class SourceWriter:
    """Writes the messages of one upstream into the target."""

    def __cinit__(self):
        memset(&self.block, 0, sizeof(Out))

    def __init__(self, Stream target, *, bint mirror, position: int = 0, anchor: int = 0,
                 bytes before = b"", bytes after = b"", transform=None) -> None:
        self.target = target
        self.mirror = mirror
        self.position = position
        self.anchor = anchor
        self.before = before
        self.after = after
        self.transform = transform
        self.origin = b""

    def __dealloc__(self):
        out_free(&self.block)

    cdef int put(self, uint64_t seq, uint64_t ts_ns, Message* m) except -1:
        cdef uint64_t stored = seq
        cdef int outcome
        cdef object kept
        if seq <= self.position or (self.mirror and seq <= self.target.log.span.last_seq):
            self.position = max(self.position, seq)
            return 1
        if self.target.closed:
            return 0
        if m.hlen or not self.mirror:
            self.dress(seq, m)
        elif self.target.path.rules is not None:
            # a rule may change the log that m points into
            kept = PyBytes_FromStringAndSize(m.subject, m.subject_len), PyBytes_FromStringAndSize(m.body, m.body_len)
            m.subject = PyBytes_AS_STRING(<bytes>(<tuple>kept)[0])
            m.body = PyBytes_AS_STRING(<bytes>(<tuple>kept)[1])
        if self.transform is not None:
            self.rename(m)
        m.reply = NULL
        m.reply_len = 0
        outcome = self.target.path.accept_sourced(m, &stored, ts_ns, 0 if self.mirror else SOURCED, self.mirror)
        if outcome == REFUSED:
            self.refusal = self.target.path.refusal
            return 0
        self.refusal = None
        self.position = seq
        self.taken += 1
        if outcome == STORED:
            self.anchor = stored
            self.target.committer.enlist()
        return 1

    cdef int rename(self, Message* m) except -1:
        cdef bytes subject = PyBytes_FromStringAndSize(m.subject, m.subject_len)
        self.name = self.transform(subject.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        m.subject = PyBytes_AS_STRING(self.name)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(self.name)
        return 0

    cdef int dress(self, uint64_t seq, Message* m) except -1:
        """Let m point at a copy with the stored headers; for a source, the header gets the old subject."""
        cdef const char* p = m.body
        cdef const char* end = m.body + m.hlen
        cdef const char* eol
        cdef char number[24]
        cdef Out* out = &self.block
        cdef uint32_t hlen
        out.off = out.len = 0
        if m.hlen == 0:
            out_put(out, b"NATS/1.0\r\n", 10)
        while p < end:
            eol = <const char*>memchr(p, c'\n', end - p)
            eol = end if eol == NULL else eol + 1
            if eol - p <= 2:
                break
            if not (p[0] == c'N' and (starts(p, eol - p, b"Nats-Expected-", 14) or starts(p, eol - p, b"Nats-Batch-", 11)
                                      or (not self.mirror and starts(p, eol - p, b"Nats-Stream-Source:", 19)))):
                out_put(out, p, eol - p)
            p = eol
        if not self.mirror:
            out_put(out, b"Nats-Stream-Source: ", 20)
            out_put(out, PyBytes_AS_STRING(self.before), PyBytes_GET_SIZE(self.before))
            out_put(out, number, put_u64(number, seq) - number)
            out_put(out, PyBytes_AS_STRING(self.after), PyBytes_GET_SIZE(self.after))
            out_put(out, m.subject, m.subject_len)
            out_put(out, PyBytes_AS_STRING(self.origin), PyBytes_GET_SIZE(self.origin))
            out_put(out, b"\r\n", 2)
        if out.len == 10 and memcmp(out.data, b"NATS/1.0\r\n", 10) == 0:
            out.len = 0                    # no headers are left
        else:
            out_put(out, b"\r\n", 2)
        hlen = <uint32_t>out.len
        out_put(out, m.body + m.hlen, m.body_len - m.hlen)
        out_put(out, m.subject, m.subject_len)         # copy the subject behind the message: a rule may move the memory that m.subject points to
        m.body_len = m.body_len - m.hlen + hlen
        m.body = out.data
        m.hlen = hlen
        m.subject = out.data + m.body_len
        return 0

    def write(self, seq: int, ts_ns: int, str subject, bytes headers, bytes payload) -> bool:
        """Store a message from another server. False when the target refuses it for now, see `refusal`."""
        cdef Message m
        cdef bytes s = subject.encode("utf-8", "surrogateescape"), body = headers + payload
        m.subject = PyBytes_AS_STRING(s)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(s)
        m.body = PyBytes_AS_STRING(body)
        m.hlen = <uint32_t>PyBytes_GET_SIZE(headers)
        m.body_len = <uint32_t>PyBytes_GET_SIZE(body)
        return self.put(seq, ts_ns, &m) != 0

    def skip(self, upto: int) -> None:
        """The origin has no (matching) message up to a sequence; a mirror's next message comes after it. Raises OSError."""
        if upto > self.position:
            self.position = upto
        if self.mirror and upto > self.target.log.span.last_seq:
            self.target.log.skip_to(upto + 1)
            self.target.committer.enlist()

    def identify(self, str identity) -> None:
        """Add the identity of the origin to the headers from now on; "": it is not known."""
        self.origin = b" " + identity.encode("utf-8", "surrogateescape") if identity else b""

    def restart(self) -> None:
        """The origin is a new stream with the same name: begin again with its first message."""
        self.position = 0


cdef class Copier(Listener):
    """Copies the messages of one stream of this server into another, and continues as more become visible."""

    def __init__(self, Stream origin, SourceWriter writer, start_seq: int, filters: tuple = ()) -> None:
        """Begin with the first message from `start_seq` on whose subject matches one of the filters (() = all)."""
        self.origin = origin
        self.writer = writer
        self.filters = tuple([pattern.encode("utf-8", "surrogateescape") for pattern in filters])
        self.start_seq = max(start_seq, origin.log.span.first_seq, 1) if writer.mirror else 0
        self.cursor = Cursor(origin.log, max(start_seq, origin.log.span.first_seq, 1))
        self.cursor.set_filters(self.filters)
        if not self.cursor.filtered:
            self.filters = ()
        origin.listeners.add(self, self.filters)
        origin.reactor.enlist_delivery(self)

    cdef int run(self) except -1:
        cdef Cursor cursor = self.cursor
        cdef Log log = self.origin.log
        cdef int budget = BATCH, found
        cdef uint64_t seq, size = 0
        cdef Record r
        cdef Message m
        if self.closed or self.blocked:
            return 0
        if self.origin.committer.in_doubt():
            return self.block()           # a power cut could take a message, and its sequence would be given again
        if self.start_seq:
            try:
                self.writer.skip(self.start_seq - 1)
            except OSError:
                return self.block()
            self.start_seq = 0
        while budget and size < BATCH_BYTES:
            seq = cursor.peek(self.origin.committer.visible)
            if seq == 0:
                self.caught_up = True
                if not cursor.caught_up:
                    self.origin.listeners.await_more(self)
                return 0
            try:
                found = log.read(seq, &r)
            except OSError as error:
                self.origin.read_failed(error)
                return self.block()        # retry() tries it again
            if found:
                m.subject = r.subject
                m.subject_len = r.subject_len
                m.body = r.body
                m.hlen = r.hlen
                m.body_len = r.body_len
                size += r.body_len
                if not self.writer.put(seq, r.ts_ns, &m):
                    return self.block()
                self.last_ns = self.origin.reactor.now_ns
                if self.closed:
                    return 0
            cursor.took(seq)
            budget -= 1
        return 1

    cdef int block(self) except -1:
        self.blocked = True
        if self.when_blocked is not None:
            self.when_blocked()
        return 0

    cdef int signalled(self, uint64_t seq) except -1:
        if self.cursor.caught_up:
            self.cursor.jump(seq)
            self.origin.listeners.await_more(self)
        return 0

    cdef int wants(self, uint32_t subject_id) except -1:
        return self.cursor.want(subject_id)

    cdef int forgets(self, uint32_t subject_id) except -1:
        return self.cursor.forget(subject_id)

    cdef int purged(self) except -1:
        return self.cursor.purged_below(self.origin.log.span.first_seq)

    cdef int wake(self) except -1:
        if not self.closed:
            self.origin.reactor.enlist_delivery(self)
        return 0

    def retry(self) -> None:
        """Continue after the target has refused a message."""
        if self.blocked:
            self.blocked = False
            self.wake()

    def lag(self) -> int:
        """Number of the origin's messages that are not copied yet."""
        return self.cursor.count_anew(self.origin.listeners.removals)

    def close(self) -> None:
        """Stop; the copied messages stay."""
        if not self.closed:
            self.closed = True
            self.origin.listeners.drop(self, self.filters)


def last_positions(Log log, above: int, names: set, bint marked = True) -> dict:
    """Read the positions from the newest sourced messages: '<origin> <filter> <destination>' -> (sequence there, sequence here, identity).

    Reads from the log's end down to the sequence `above`, until all `names` are found. `marked`: only messages that this server has
    sourced; a restored log has no such marks.
    """
    cdef uint64_t seq = log.span.last_seq, low = above
    cdef Record r
    cdef Text t
    cdef dict found = {}
    cdef set missing = set(names)
    while missing and log.msgs:
        seq = log.segments.prev_live(seq)
        if seq == 0 or seq <= low or seq < log.span.first_seq:
            break
        if log.read(seq, &r) and (r.flags & SOURCED or not marked):
            t = header_value(r.body, r.hlen, b"Nats-Stream-Source", 18)
            if t.at != NULL:
                words = PyBytes_FromStringAndSize(t.at, t.n).decode("utf-8", "surrogateescape").split(" ")
                if len(words) >= 5:
                    name = " ".join((words[0], words[2], words[3]))
                    if name in missing:
                        missing.discard(name)
                        found[name] = (int(words[1]), seq, words[5] if len(words) > 5 else "")
        seq -= 1
    return found
