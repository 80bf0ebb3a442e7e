"""The NATS protocol as bytes: one pull parser for all roles, and the writers that Python callers use.

Knows nothing of what subjects mean, of sockets, or of what an operation does.

    line        name blank+ args [CR] LF          names in any case; a blank is a space or a tab
    PUB         subject [reply] #bytes            then #bytes of payload and CR LF
    HPUB        subject [reply] #header #total    then #total bytes, the first #header of them headers, and CR LF
    SUB         subject [queue] sid
    UNSUB       sid [max]
    CONNECT     json, also without a blank before it; the same for INFO
    PING PONG +OK                                 the rest of the line means nothing
    -ERR        text
    MSG         subject sid [reply] #bytes        as PUB
    HMSG        subject sid [reply] #header #total

  between servers, one of which is a leaf node of the other:
    LS+         subject [queue weight]
    LS-         subject [queue]
    LMSG        subject [reply] #bytes            then as PUB; or, for queue groups:
                subject + reply queue+ #bytes     subject | queue+ #bytes
    HMSG        as LMSG, with #header #total at the end

The limit of a line counts its arguments: from the first byte after the name that is no blank to the CR or LF that ends the line.
A number has one to nine digits, as in nats-server.

Reader: `data[pos:end]` are the received bytes that are not parsed yet. Of an incomplete operation the reader keeps only these bytes
and `need`, the number of bytes that must be there before the parser tries again.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, memmove

from pelton.core.base.buffer cimport parse_u63, put_u64

from pelton.core.protocol.headers import decode_headers, encode_headers

cdef enum:
    LINE_BYTES_SERVER = 4096
    LINE_BYTES_CLIENT = 1048576
    PAYLOAD_BYTES_SERVER = 1048576
    PAYLOAD_BYTES_CLIENT = 134217728        # a guard, not a rule: servers may add headers to a message of their full size
    NUMBER_DIGITS_MAX = 9
    LARGE_BYTES = 1048576                   # a larger buffer is given back once it is empty,
    SMALL_BYTES = 65536                     # down to this
    ARGS_MAX = 5


cdef struct Token:
    const char* at
    uint32_t len


cdef int reader_init(Reader* r, int role) except -1:
    r.data = NULL
    r.pos = r.end = r.cap = r.need = 0
    r.role = role
    r.headers = True
    r.max_line = LINE_BYTES_CLIENT if role == ROLE_CLIENT else LINE_BYTES_SERVER
    r.max_payload = PAYLOAD_BYTES_CLIENT if role == ROLE_CLIENT else PAYLOAD_BYTES_SERVER
    return 0


cdef void reader_free(Reader* r) noexcept:
    free(r.data)
    r.data = NULL
    r.pos = r.end = r.cap = r.need = 0


cdef char* reader_room(Reader* r, size_t n) except NULL:
    cdef size_t held = r.end - r.pos
    cdef size_t cap
    cdef char* data
    if n == 0:
        n = 1                               # an address is owed even so
    if held == 0:
        r.pos = r.end = 0
        if r.cap > LARGE_BYTES and n <= SMALL_BYTES:
            data = <char*>realloc(r.data, SMALL_BYTES)
            if data != NULL:
                r.data = data
                r.cap = SMALL_BYTES
    if r.cap - r.end >= n:
        return r.data + r.end
    if n > (<size_t>-1) // 4 - held:
        raise MemoryError(f"a read of {n} bytes")
    if r.cap >= held + n:
        memmove(r.data, r.data + r.pos, held)
    else:
        cap = r.cap * 2 if r.cap * 2 >= held + n else held + n
        data = <char*>malloc(cap)
        if data == NULL:
            raise MemoryError(f"no room for {cap} bytes of input")
        if held:
            memcpy(data, r.data + r.pos, held)
        free(r.data)
        r.data = data
        r.cap = cap
    r.pos = 0
    r.end = held
    return r.data + held


cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    /* The first space or tab of s..stop, or stop: many bytes at a time, as reply subjects are long. */
    static inline const char* pelton_next_blank(const char* s, const char* stop) {
    #if defined(__SSE2__)
        while (stop - s >= 16) {
            __m128i v = _mm_loadu_si128((const __m128i*)s);
            int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(' ')), _mm_cmpeq_epi8(v, _mm_set1_epi8('\\t'))));
            if (found) return s + __builtin_ctz((unsigned)found);
            s += 16;
        }
    #elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const uint64_t ones = 0x0101010101010101ULL, highs = ones << 7;
        while (stop - s >= 8) {
            uint64_t v, space, tab;
            memcpy(&v, s, 8);
            space = v ^ ones * ' ';
            tab = v ^ ones * '\\t';
            v = (((space - ones) & ~space) | ((tab - ones) & ~tab)) & highs;   /* its lowest bit is exact */
            if (v) return s + (__builtin_ctzll(v) >> 3);
            s += 8;
        }
    #endif
        while (s < stop && *s != ' ' && *s != '\\t') s++;
        return s;
    }
    """
    const char* pelton_next_blank(const char* s, const char* stop) noexcept nogil


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef struct Name:
    const char* text        # in lower case
    size_t len
    int kind
    int roles               # that may receive it: 1 << role of each
    int form


cdef enum Form:
    FORM_ARGS = 0           # a blank must follow the name
    FORM_TEXT = 1           # text follows the name, with or without a blank
    FORM_REST = 2           # what follows means nothing
    FORM_BLANK_TEXT = 3     # a blank must follow, then text

cdef enum:
    BY_SERVER = 1 << ROLE_SERVER
    BY_CLIENT = 1 << ROLE_CLIENT
    BY_LEAF = 1 << ROLE_LEAF
    BY_ALL = BY_SERVER | BY_CLIENT | BY_LEAF
    NAMES_COUNT = 16

cdef Name[NAMES_COUNT] NAMES
NAMES[0] = Name(b"pub", 3, OP_PUB, BY_SERVER, FORM_ARGS)
NAMES[1] = Name(b"hpub", 4, OP_PUB, BY_SERVER, FORM_ARGS)
NAMES[2] = Name(b"msg", 3, OP_MSG, BY_CLIENT, FORM_ARGS)
NAMES[3] = Name(b"hmsg", 4, OP_MSG, BY_CLIENT, FORM_ARGS)
NAMES[4] = Name(b"lmsg", 4, OP_MSG, BY_LEAF, FORM_ARGS)
NAMES[5] = Name(b"hmsg", 4, OP_MSG, BY_LEAF, FORM_ARGS)
NAMES[6] = Name(b"sub", 3, OP_SUB, BY_SERVER, FORM_ARGS)
NAMES[7] = Name(b"unsub", 5, OP_UNSUB, BY_SERVER, FORM_ARGS)
NAMES[8] = Name(b"connect", 7, OP_CONNECT, BY_SERVER | BY_LEAF, FORM_TEXT)
NAMES[9] = Name(b"ping", 4, OP_PING, BY_ALL, FORM_REST)
NAMES[10] = Name(b"pong", 4, OP_PONG, BY_ALL, FORM_REST)
NAMES[11] = Name(b"+ok", 3, OP_OK, BY_ALL, FORM_REST)
NAMES[12] = Name(b"-err", 4, OP_ERR, BY_ALL, FORM_BLANK_TEXT)
NAMES[13] = Name(b"info", 4, OP_INFO, BY_ALL, FORM_TEXT)
NAMES[14] = Name(b"ls+", 3, OP_SUB, BY_LEAF, FORM_ARGS)
NAMES[15] = Name(b"ls-", 3, OP_UNSUB, BY_LEAF, FORM_ARGS)


cdef inline bint name_starts(const char* s, size_t n, const Name* name) noexcept nogil:
    # Whether the first min(n, name.len) bytes are those of the name. Only letters have a bit to ignore.
    cdef size_t i
    cdef char c
    if n > name.len:
        n = name.len
    for i in range(n):
        c = s[i]
        if c'A' <= c <= c'Z':
            c += 32
        if c != name.text[i]:
            return False
    return True


cdef const Name* name_of(const char* s, size_t n, int role, bint* possible) noexcept nogil:
    # The name that s starts with; NULL and *possible when more bytes may still make one.
    cdef size_t i, first
    cdef const Name* name
    possible[0] = False
    # By far the most frequent ones of a role first.
    first = 2 * role
    for i in range(first, first + 2):
        if n >= NAMES[i].len and name_starts(s, n, &NAMES[i]):
            return &NAMES[i]
    for i in range(NAMES_COUNT):
        name = &NAMES[i]
        if name.roles >> role & 1 and name_starts(s, n, name):
            if n >= name.len:
                return name
            possible[0] = True
    return NULL


cdef inline int split(const char* s, const char* stop, Token* tokens, bint cr_parts) noexcept nogil:
    # The tokens between blanks; ARGS_MAX + 1 says too many. A CR inside the line parts tokens, too, if cr_parts.
    cdef int n = 0
    while True:
        while s < stop and (is_blank(s[0]) or (cr_parts and s[0] == c'\r')):
            s += 1
        if s == stop:
            return n
        if n == ARGS_MAX:
            return ARGS_MAX + 1
        tokens[n].at = s
        if cr_parts:
            while s < stop and not (is_blank(s[0]) or s[0] == c'\r'):
                s += 1
        else:
            s = pelton_next_blank(s, stop)
        tokens[n].len = <uint32_t>(s - tokens[n].at)
        n += 1


cdef inline int64_t number(const Token* t) noexcept nogil:
    return parse_u63(t.at, t.len) if t.len <= NUMBER_DIGITS_MAX else -1


cdef int more_line(Reader* r, const char* s, const char* args, const Name* name) noexcept nogil:
    # The line has no end yet: refuse it when it is too long already, and keep memory bounded where it may go on for ever.
    cdef const char* end = r.data + r.end
    cdef const char* stop = end
    cdef char* to
    while args < end and is_blank(args[0]):
        args += 1
    r.need = <size_t>(end - s) + 1
    if name.form != FORM_REST:
        if args < end:
            if (stop - 1)[0] == c'\r':
                stop -= 1
            return BAD_LINE if stop - args > <int64_t>r.max_line else OP_MORE
        if end - s <= <int64_t>(name.len + 1):
            return OP_MORE
    # Nothing but the name counts so far (and one blank, where it must follow): drop the rest.
    to = r.data + r.end - name.len - (0 if name.form == FORM_REST else 1)
    memmove(to, s, name.len)
    r.pos = <size_t>(to - r.data)
    r.need = r.end - r.pos + 1
    return OP_MORE


cdef int with_body(Reader* r, Op* op, const char* s, const char* body, const Token* tokens, int n) noexcept nogil:
    # The operation whose line ends before `body`, with its payload; sizes are the last tokens.
    cdef int64_t total = number(&tokens[n - 1])
    cdef int64_t header = 0
    cdef const char* end = r.data + r.end
    cdef size_t full
    if total < 0:
        return BAD_ARGS
    if op.hlen:                             # set by the caller for HPUB and HMSG
        header = number(&tokens[n - 2])
        if header < 0 or header > total:
            return BAD_ARGS
    if total > r.max_payload:
        return BAD_PAYLOAD
    full = <size_t>(body - s) + <size_t>total + 2
    if <size_t>(end - s) < full:
        # Look again when the first byte behind the payload is there: when it is wrong that is said at once.
        if <size_t>(end - s) == full - 1:
            if body[total] != c'\r':
                return BAD_OP
            r.need = full
        else:
            r.need = full - 1
        return OP_MORE
    if body[total] != c'\r' or body[total + 1] != c'\n':
        return BAD_OP
    op.body = body
    op.body_len = <uint32_t>total
    op.hlen = <uint32_t>header
    r.pos += full
    r.need = 0
    return op.kind


cdef inline void set_token(const char** at, uint32_t* size, const Token* t) noexcept nogil:
    at[0] = t.at
    size[0] = t.len


cdef int leaf_args(Reader* r, Op* op, const char* s, const char* args, const char* stop, const char* after,
                   Token* tokens, int n) noexcept nogil:
    # LS+, LS-, LMSG and HMSG, cut into the first n tokens; of a list of queues there may be more.
    cdef int sizes = 2 if op.hlen else 1
    cdef int first
    cdef Token[2] last
    if n == 0:
        return BAD_ARGS
    set_token(&op.subject, &op.subject_len, &tokens[0])
    if op.kind == OP_MSG:
        if n < 1 + sizes:
            return BAD_ARGS
        if n <= 2 + sizes:
            if n == 2 + sizes:
                set_token(&op.reply, &op.reply_len, &tokens[1])
            return with_body(r, op, s, after, tokens, n)
        if tokens[1].len != 1 or not (tokens[1].at[0] == c'+' or tokens[1].at[0] == c'|'):
            return BAD_ARGS
        first = 2
        if tokens[1].at[0] == c'+':
            set_token(&op.reply, &op.reply_len, &tokens[2])
            first = 3
        for n in range(sizes):                  # from the end: the sizes, then the names
            while stop > args and is_blank((stop - 1)[0]):
                stop -= 1
            last[sizes - 1 - n].len = 0
            while stop > args and not is_blank((stop - 1)[0]):
                stop -= 1
                last[sizes - 1 - n].len += 1
            last[sizes - 1 - n].at = stop
        if stop <= tokens[first].at:
            first = 0                           # no name is left: as if none were wanted
        if first:
            op.queue = tokens[first].at
            op.queue_len = <uint32_t>(stop - tokens[first].at)
        return with_body(r, op, s, after, last, sizes)
    if op.kind == OP_UNSUB:
        op.sid = args
        while stop > args and is_blank((stop - 1)[0]):
            stop -= 1
        op.sid_len = <uint32_t>(stop - args)
    elif n == 3:
        set_token(&op.queue, &op.queue_len, &tokens[1])
        op.max = number(&tokens[2])
        if op.max < 0:
            return BAD_ARGS
    elif n != 1:
        return BAD_ARGS
    r.pos += <size_t>(after - s)
    r.need = 0
    return op.kind


cdef int with_args(Reader* r, Op* op, const Name* name, const char* s, const char* args, const char* stop,
                   const char* after) noexcept nogil:
    # PUB, SUB, UNSUB, MSG and their kin, from a whole line: args..stop are its arguments, `after` is behind its LF.
    cdef Token[ARGS_MAX] tokens
    # nats-server takes a stray CR as a blank in SUB and UNSUB, as a byte of the token elsewhere.
    cdef int n = split(args, stop, tokens, name.kind == OP_SUB or name.kind == OP_UNSUB)
    cdef bint headers = name.text[0] == c'h'
    cdef int sizes = 2 if headers else 1
    op.hlen = headers
    if r.role == ROLE_LEAF:
        return leaf_args(r, op, s, args, stop, after, tokens, n)
    if name.kind == OP_PUB:
        if headers and not r.headers:
            return BAD_ARGS
        if n < 1 + sizes or n > 2 + sizes:
            return BAD_ARGS
        set_token(&op.subject, &op.subject_len, &tokens[0])
        if n == 2 + sizes:
            set_token(&op.reply, &op.reply_len, &tokens[1])
        return with_body(r, op, s, after, tokens, n)
    if name.kind == OP_MSG:
        if n < 2 + sizes or n > 3 + sizes:
            return BAD_ARGS
        set_token(&op.subject, &op.subject_len, &tokens[0])
        set_token(&op.sid, &op.sid_len, &tokens[1])
        if n == 3 + sizes:
            set_token(&op.reply, &op.reply_len, &tokens[2])
        return with_body(r, op, s, after, tokens, n)
    if name.kind == OP_SUB:
        if n < 2 or n > 3:
            return BAD_ARGS
        set_token(&op.subject, &op.subject_len, &tokens[0])
        if n == 3:
            set_token(&op.queue, &op.queue_len, &tokens[1])
        set_token(&op.sid, &op.sid_len, &tokens[n - 1])
    else:
        if n < 1 or n > 2:
            return BAD_ARGS
        set_token(&op.sid, &op.sid_len, &tokens[0])
        if n == 2:
            op.max = number(&tokens[1])
            if op.max < 0:                  # not a number: as if it were not there
                op.max = 0
    r.pos += <size_t>(after - s)
    r.need = 0
    return op.kind


cdef int parse(Reader* r, Op* op) noexcept nogil:
    cdef const char* s = r.data + r.pos
    cdef const char* end = r.data + r.end
    cdef const char* lf
    cdef const char* args
    cdef const char* stop
    cdef bint possible = False
    cdef const Name* name = name_of(s, <size_t>(end - s), r.role, &possible)
    if name == NULL:
        return OP_MORE if possible else BAD_OP
    op.kind = name.kind
    args = s + name.len
    if name.form == FORM_ARGS or name.form == FORM_BLANK_TEXT:
        if args == end:
            return OP_MORE
        if not is_blank(args[0]):
            return BAD_OP
    lf = <const char*>memchr(args, c'\n', <size_t>(end - args))
    if lf == NULL:
        return more_line(r, s, args, name)
    if name.form == FORM_REST:
        r.pos += <size_t>(lf + 1 - s)
        r.need = 0
        return name.kind
    stop = lf
    if stop > args and (stop - 1)[0] == c'\r':
        stop -= 1
    while args < stop and is_blank(args[0]):
        args += 1
    if stop - args > <int64_t>r.max_line:
        return BAD_LINE
    if name.form == FORM_ARGS:
        return with_args(r, op, name, s, args, stop, lf + 1)
    op.body = args
    op.body_len = <uint32_t>(stop - args)
    if name.kind == OP_ERR and r.role == ROLE_SERVER:
        return BAD_ARGS                     # with its text in body
    r.pos += <size_t>(lf + 1 - s)
    r.need = 0
    return name.kind


cdef int read_op(Reader* r, Op* op) noexcept:
    cdef size_t held = r.end - r.pos
    op.subject = op.reply = op.sid = op.queue = op.body = NULL
    op.subject_len = op.reply_len = op.sid_len = op.queue_len = op.body_len = op.hlen = 0
    op.max = 0
    if held == 0 or held < r.need:
        op.kind = OP_MORE
    else:
        op.kind = parse(r, op)
    return op.kind


# ---- for Python callers ----

# The names of the .pxd are C constants; these are the same for Python.
globals().update(
    OP_PUB=OP_PUB, OP_SUB=OP_SUB, OP_UNSUB=OP_UNSUB, OP_CONNECT=OP_CONNECT, OP_PING=OP_PING, OP_PONG=OP_PONG,
    OP_INFO=OP_INFO, OP_OK=OP_OK, OP_ERR=OP_ERR, OP_MSG=OP_MSG, BAD_OP=BAD_OP, BAD_ARGS=BAD_ARGS,
    BAD_LINE=BAD_LINE, BAD_PAYLOAD=BAD_PAYLOAD, ROLE_SERVER=ROLE_SERVER, ROLE_CLIENT=ROLE_CLIENT, ROLE_LEAF=ROLE_LEAF,
)

cdef extern from *:
    """
    /* Whether text is plain ASCII and these very bytes. */
    static inline int pelton_text_is(PyObject* text, const char* p, size_t n) {
        return PyUnicode_IS_COMPACT_ASCII(text) && (size_t)PyUnicode_GET_LENGTH(text) == n
            && memcmp(PyUnicode_1BYTE_DATA(text), p, n) == 0;
    }
    """
    bint pelton_text_is(object text, const char* p, size_t n) noexcept


class WireError(ValueError):
    """The peer broke the protocol; ``code`` is one of the BAD_* constants, ``events`` what was read before it."""

    def __init__(self, code: int, events: list) -> None:
        meaning = {
            BAD_OP: "unknown operation, missing arguments or a payload without its CR LF",
            BAD_ARGS: "arguments that cannot be",
            BAD_LINE: "a line longer than allowed",
            BAD_PAYLOAD: "a payload larger than allowed",
        }
        super().__init__(meaning[code])
        self.code = code
        self.events = events


cdef inline str text_of(const char* p, uint32_t n):
    return PyUnicode_DecodeUTF8(p, n, "surrogateescape") if n else ""


cdef inline bytes bytes_of(const char* p, uint32_t n):
    return PyBytes_FromStringAndSize(p, n) if n else b""


cdef class Parser:
    """Incremental parser: feed bytes in any split, get the complete operations back; see wire.pyi."""

    def __cinit__(self, int role, max_control_line=None, max_payload=None, bint headers=True):
        if role not in (ROLE_SERVER, ROLE_CLIENT, ROLE_LEAF):
            raise ValueError(f"no such role: {role}")
        reader_init(&self.reader, role)
        self.subject = ""
        if max_control_line is not None:
            self.reader.max_line = max_control_line
        if max_payload is not None:
            self.reader.max_payload = max_payload
        self.reader.headers = headers

    def __dealloc__(self):
        reader_free(&self.reader)

    @property
    def waiting(self) -> int:
        """Bytes held of an operation not complete yet."""
        return self.reader.end - self.reader.pos

    def feed(self, data) -> list:
        """Take bytes, return the operations they complete; WireError when the peer broke the protocol, now or before."""
        cdef Op op
        cdef int kind
        cdef list events = []
        self.take_in(data)
        while True:
            kind = read_op(&self.reader, &op)
            if kind == OP_MORE:
                return events
            event = self.event_of(&op) if kind > 0 else None
            if event is None:
                self.fail(kind, events)
            events.append(event)

    cdef int take_in(self, object data) except -1:
        cdef Py_buffer view
        if self.failed is not None:
            raise WireError(self.failed, [])
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            memcpy(reader_room(&self.reader, <size_t>view.len), view.buf, <size_t>view.len)
            self.reader.end += <size_t>view.len
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef char* room(self, size_t n) except NULL:
        if self.failed is not None:
            raise WireError(self.failed, [])
        return reader_room(&self.reader, n)

    cdef void received(self, size_t n) noexcept:
        self.reader.end += n

    cdef int fail(self, int kind, list events) except -1:
        self.failed = kind if kind < 0 else BAD_ARGS
        raise WireError(self.failed, events)

    cdef tuple event_of(self, Op* op):
        # The operation as Python callers get it; None when a sid is no number.
        cdef int64_t sid
        cdef const char* payload = op.body + op.hlen
        cdef uint32_t size = op.body_len - op.hlen
        if self.reader.role == ROLE_LEAF and op.kind in (OP_MSG, OP_SUB, OP_UNSUB):
            queues = tuple(text_of(op.queue, op.queue_len).split())
            if op.kind == OP_MSG:
                return (OP_MSG, self.subject_of(op), text_of(op.reply, op.reply_len), queues,
                        bytes_of(op.body, op.hlen), bytes_of(payload, size))
            return (OP_SUB, self.subject_of(op), *queues, op.max) if op.kind == OP_SUB else (OP_UNSUB, bytes_of(op.sid, op.sid_len))
        if op.kind == OP_MSG:
            sid = parse_u63(op.sid, op.sid_len)
            if sid < 0:
                return None
            return (OP_MSG, self.subject_of(op), sid, text_of(op.reply, op.reply_len),
                    bytes_of(op.body, op.hlen), bytes_of(payload, size))
        if op.kind == OP_PUB:
            return (OP_PUB, self.subject_of(op), text_of(op.reply, op.reply_len),
                    bytes_of(op.body, op.hlen), bytes_of(payload, size))
        if op.kind == OP_SUB:
            return (OP_SUB, self.subject_of(op), text_of(op.queue, op.queue_len), bytes_of(op.sid, op.sid_len))
        if op.kind == OP_UNSUB:
            return (OP_UNSUB, bytes_of(op.sid, op.sid_len), op.max)
        if op.kind == OP_ERR:
            return (OP_ERR, bytes_of(op.body, op.body_len).strip(b" \t'"))
        if op.kind == OP_INFO or op.kind == OP_CONNECT:
            return (op.kind, bytes_of(op.body, op.body_len))
        return (op.kind,)

    cdef str subject_of(self, Op* op):
        # Messages come in runs of one subject: its str is kept.
        if not pelton_text_is(self.subject, op.subject, op.subject_len):
            self.subject = text_of(op.subject, op.subject_len)
        return self.subject


cdef bytes encoded_subject(str subject, str what):
    cdef bytes s = subject.encode("utf-8", "surrogateescape")
    cdef const char* p = PyBytes_AS_STRING(s)
    cdef Py_ssize_t i
    for i in range(PyBytes_GET_SIZE(s)):
        if is_blank(p[i]) or p[i] == c'\r' or p[i] == c'\n':
            raise ValueError(f"a blank or a line end in the {what} {subject!r}")
    return s


cdef inline char* put_bytes(char* to, bytes b):
    memcpy(to, PyBytes_AS_STRING(b), <size_t>PyBytes_GET_SIZE(b))
    return to + PyBytes_GET_SIZE(b)


def pub(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """The bytes of a PUB, or of an HPUB when headers is not empty; ValueError on a subject that cannot be written."""
    cdef bytes s = encoded_subject(subject, "subject")
    cdef bytes back = encoded_subject(reply, "reply")
    cdef char sizes[48]
    cdef char* to = sizes
    cdef Py_ssize_t total = PyBytes_GET_SIZE(headers) + PyBytes_GET_SIZE(payload)
    cdef bytes line
    if not s:
        raise ValueError("an empty subject")
    if headers:
        to = put_u64(to, <uint64_t>PyBytes_GET_SIZE(headers))
        to[0] = c' '
        to += 1
    to = put_u64(to, <uint64_t>total)
    memcpy(to, b"\r\n", 2)
    to += 2
    line = PyBytes_FromStringAndSize(
        NULL,
        (5 if headers else 4) + len(s) + 1 + (len(back) + 1 if back else 0) + (to - sizes) + total + 2,
    )
    cdef char* at = PyBytes_AS_STRING(line)
    at = put_bytes(at, b"HPUB " if headers else b"PUB ")
    at = put_bytes(at, s)
    at = put_bytes(at, b" ")
    if back:
        at = put_bytes(at, back)
        at = put_bytes(at, b" ")
    memcpy(at, sizes, <size_t>(to - sizes))
    at = put_bytes(at + (to - sizes), headers)
    at = put_bytes(at, payload)
    put_bytes(at, b"\r\n")
    return line
