"""The NATS protocol as bytes: one pull parser for all roles.

`read_op` takes the next operation from a Reader without copying or allocating: an Op points into the Reader's buffer and
is valid until the next call that feeds or compacts it. Any split of the input gives the same operations.
Knows nothing of what subjects mean, of sockets, or of what an operation does.
"""
from libc.stdint cimport int64_t, uint32_t


cdef enum OpKind:
    OP_MORE = 0            # no complete operation yet: feed more bytes
    OP_PUB = 1             # PUB and HPUB (hlen > 0)
    OP_SUB = 2             # in the leaf role LS+: no sid, max is the weight of the queue
    OP_UNSUB = 3           # in the leaf role LS-: sid is all of its args
    OP_CONNECT = 4         # body = the JSON text
    OP_PING = 5
    OP_PONG = 6
    OP_INFO = 7            # body = the JSON text
    OP_OK = 8
    OP_ERR = 9             # body = the text after -ERR, blanks and quotes kept
    OP_MSG = 10            # MSG and HMSG (hlen > 0); in the leaf role LMSG and HMSG, queue: names with blanks between them
    # failures: the connection is over
    BAD_OP = -1            # unknown operation, missing arguments, payload not followed by CR LF: 'Unknown Protocol Operation'
    BAD_ARGS = -2          # argument-level failure: closed without a word
    BAD_LINE = -3          # 'maximum control line exceeded'
    BAD_PAYLOAD = -4       # 'Maximum Payload Violation'


cdef enum Role:
    ROLE_SERVER = 0        # reads what clients send
    ROLE_CLIENT = 1        # reads what a server sends
    ROLE_LEAF = 2          # reads what a server sends to one that it is connected with as a leaf node


cdef struct Op:
    int kind
    const char* subject
    uint32_t subject_len
    const char* reply
    uint32_t reply_len
    const char* sid
    uint32_t sid_len
    const char* queue
    uint32_t queue_len
    const char* body       # headers then payload; or the text of CONNECT, INFO, -ERR
    uint32_t body_len      # total: headers + payload
    uint32_t hlen          # of which header bytes
    int64_t max            # UNSUB: 0 when absent or <= 0; LS+: the weight of a queue


cdef struct Reader:
    char* data
    size_t pos             # parsed up to here
    size_t end             # filled up to here
    size_t cap
    size_t need            # bytes from pos before parsing makes sense again (0: unknown)
    uint32_t max_line
    int64_t max_payload    # hdr + payload; checked as soon as the line is read
    int role
    bint headers           # HPUB allowed (server role)


cdef int reader_init(Reader* r, int role) except -1
cdef void reader_free(Reader* r) noexcept
cdef char* reader_room(Reader* r, size_t n) except NULL          # address of at least n free bytes at the end; then r.end += got
cdef int read_op(Reader* r, Op* op) noexcept                     # an OpKind


cdef class Parser:
    """The same parser for Python callers (client, tests): bytes in, tuples out. See wire.pyi."""
    cdef Reader reader
    cdef readonly object failed      # None, or the failure code (BAD_*) after which feed() raises
    cdef str subject                 # of the last message
    cdef int take_in(self, object data) except -1                    # append bytes to the reader; WireError when the peer broke the protocol before
    cdef char* room(self, size_t n) except NULL                      # where n bytes may be received; WireError as take_in
    cdef void received(self, size_t n) noexcept                      # so many of them were
    cdef int fail(self, int kind, list events) except -1             # raise WireError: the peer broke the protocol; feed() raises it from now on
    cdef tuple event_of(self, Op* op)
    cdef str subject_of(self, Op* op)
