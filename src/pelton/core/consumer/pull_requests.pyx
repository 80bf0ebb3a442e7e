"""Pull requests of a consumer: the parser, and the queue of waiting requests.

A request is empty (one message), a decimal number (that many), or a JSON object. The usual JSON of clients is parsed in place: flat, known keys
in lower case, integers, booleans and texts without escapes. All other JSON goes through the json module, with the rules of Go's
decoder: keys match in any case, unknown ones are ignored, the last of equal ones wins, a wrong type is an error.
"""
import json

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcmp, memset
from pelton.core.base.buffer cimport parse_u63
from pelton.core.broker.reactor cimport Task
from pelton.core.broker.router cimport Router

cdef enum:
    INT_MAX_NS = 9223372036854775807
    LAST_PRIORITY = 10             # of requests without a priority

# A larger batch is cut to this, so that sums of batches do not overflow.
cdef int64_t BATCH_MAX = 1 << 40

_KEYS = {"batch": 0, "max_bytes": 1, "expires": 2, "idle_heartbeat": 3, "no_wait": 4, "min_pending": 5, "min_ack_pending": 6,
         "priority": 7, "group": 8, "id": 9}
_kept = (b"", b"")             # owns the texts of the last request when they were not parsed in place


@cython.final
@cython.freelist(64)
@cython.trashcan(True)
cdef class PullRequest:
    """One waiting request."""

    cdef int join_group(self, PullSpec* spec) except -1:
        self.group = PyBytes_FromStringAndSize(spec.group, spec.group_len)
        self.client = PyBytes_FromStringAndSize(spec.client, spec.client_len)
        self.min_pending = spec.min_pending
        self.min_ack_pending = spec.min_ack_pending
        self.priority = spec.priority if spec.json else LAST_PRIORITY
        return 0

    cdef int pinned(self, bytes pin) except -1:
        self.client = pin
        return 0

    cdef int readiness(self, Router router, Task waiter) except -1:
        """As Router.readiness of the reply subject; looks up the subject once more before it answers that no client listens there."""
        cdef int n
        if self.route is None or router.stale(self.route):
            self.route = router.interest(PyBytes_AS_STRING(self.reply), PyBytes_GET_SIZE(self.reply))
        n = router.readiness(self.route, waiter)
        if n == 0:
            self.route = router.interest(PyBytes_AS_STRING(self.reply), PyBytes_GET_SIZE(self.reply))
            n = router.readiness(self.route, waiter)
        return n

    cdef void beat(self, uint64_t now_ns) noexcept:
        self.beat_ns = now_ns + self.heartbeat_ns


cdef inline bint blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t' or c == c'\r' or c == c'\n'


cdef inline const char* plain_text(const char* p, const char* end) noexcept nogil:
    """The end of a JSON string of printable ASCII without escapes; NULL when it is not one."""
    while p < end and p[0] != c'"':
        if p[0] == c'\\' or p[0] < 32 or p[0] > 126:
            return NULL
        p += 1
    return p if p < end else NULL


cdef inline const char* skip_blanks(const char* p, const char* end) noexcept nogil:
    while p < end and blank(p[0]):
        p += 1
    return p


cdef inline bint is_key(const char* key, size_t n, const char* name, size_t name_len) noexcept nogil:
    return n == name_len and memcmp(key, name, name_len) == 0


cdef inline bint set_text(PullSpec* spec, const char* key, size_t n, const char* text, size_t text_len) noexcept nogil:
    """Set a member whose value is a string; False when its key takes no string."""
    if is_key(key, n, b"group", 5):
        spec.group = text
        spec.group_len = text_len
    elif is_key(key, n, b"id", 2):
        spec.client = text
        spec.client_len = text_len
    else:
        return False
    return True


cdef inline bint set_word(PullSpec* spec, const char* key, size_t n, const char* word, size_t word_len) noexcept nogil:
    """Set a member whose value is a number, true or false; False when the value does not fit the key, or the key is unknown."""
    cdef int64_t value
    if is_key(key, n, b"no_wait", 7):
        spec.no_wait = is_key(word, word_len, b"true", 4)
        return spec.no_wait or is_key(word, word_len, b"false", 5)
    if word_len > 1 and word[0] == c'0':
        return False
    value = parse_u63(word, word_len)
    if value < 0:
        return False
    if is_key(key, n, b"batch", 5):
        spec.batch = value
    elif is_key(key, n, b"expires", 7):
        spec.expires_ns = value
    elif is_key(key, n, b"max_bytes", 9):
        spec.max_bytes = value
    elif is_key(key, n, b"idle_heartbeat", 14):
        spec.heartbeat_ns = value
    elif is_key(key, n, b"priority", 8):
        spec.priority = value
    elif is_key(key, n, b"min_pending", 11):
        spec.min_pending = value
    elif is_key(key, n, b"min_ack_pending", 15):
        spec.min_ack_pending = value
    else:
        return False
    return True


cdef bint read_fast(const char* p, const char* end, PullSpec* spec) noexcept nogil:
    """Parse the usual form; False when it is another (then spec is not valid)."""
    cdef const char* key
    cdef const char* start
    cdef size_t n
    p = skip_blanks(p + 1, end)
    if p >= end or p[0] != c'"':
        return p < end and p[0] == c'}' and p + 1 == end
    while True:
        key = p + 1
        p = <const char*>memchr(key, c'"', end - key)
        if p == NULL:
            return False
        n = p - key
        p = skip_blanks(p + 1, end)
        if p >= end or p[0] != c':':
            return False
        start = p = skip_blanks(p + 1, end)
        if p < end and p[0] == c'"':
            p = plain_text(p + 1, end)
            if p == NULL or not set_text(spec, key, n, start + 1, p - start - 1):
                return False
            p += 1
        else:
            while p < end and (c'0' <= p[0] <= c'9' or c'a' <= p[0] <= c'z'):
                p += 1
            if not set_word(spec, key, n, start, p - start):
                return False
        p = skip_blanks(p, end)
        if p < end and p[0] == c'}':
            return p + 1 == end
        if p >= end or p[0] != c',':
            return False
        p = skip_blanks(p + 1, end)
        if p >= end or p[0] != c'"':
            return False


def read_slowly(text: bytes) -> list:
    """The values of a JSON request in the order of _KEYS; raises ValueError, which says what is wrong."""
    values = [0, 0, 0, 0, False, 0, 0, 0, "", ""]
    pairs = json.loads(text.decode("utf-8", "replace"), object_pairs_hook=list)
    for key, value in pairs:
        at = _KEYS.get(key.lower())
        if value is None or at is None:
            continue
        if at >= 8:
            if not isinstance(value, str):
                raise ValueError(f"{key} is not a string")
        elif at == 4:
            if not isinstance(value, bool):
                raise ValueError("no_wait is not a boolean")
        elif isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{key} is not an integer")
        values[at] = value
    return values


cdef int take_slowly(bytes text, PullSpec* spec) except -1:
    global _kept
    values = read_slowly(text)
    spec.batch, spec.max_bytes, spec.expires_ns, spec.heartbeat_ns = values[0], values[1], values[2], values[3]
    spec.no_wait = values[4]
    spec.min_pending, spec.min_ack_pending, spec.priority = values[5], values[6], values[7]
    _kept = (values[8].encode("utf-8", "surrogatepass"), values[9].encode("utf-8", "surrogatepass"))
    spec.group = PyBytes_AS_STRING(<bytes>_kept[0])
    spec.group_len = PyBytes_GET_SIZE(<bytes>_kept[0])
    spec.client = PyBytes_AS_STRING(<bytes>_kept[1])
    spec.client_len = PyBytes_GET_SIZE(<bytes>_kept[1])
    return 0


cdef int parse_pull(const char* p, size_t n, PullSpec* spec) except -1:
    cdef const char* end = p + n
    cdef int64_t value
    cdef bint negative = False
    memset(spec, 0, sizeof(PullSpec))
    while p < end and blank(p[0]):
        p += 1
    while end > p and blank((end - 1)[0]):
        end -= 1
    if p < end and p[0] == c'{':
        if not read_fast(p, end, spec):
            memset(spec, 0, sizeof(PullSpec))
            try:
                take_slowly(PyBytes_FromStringAndSize(p, end - p), spec)
            except (ValueError, RecursionError):
                return 0
        spec.json = True
        spec.special = spec.group_len or spec.client_len or spec.priority or spec.min_pending or spec.min_ack_pending
    else:
        spec.batch = 1
        if p < end:
            negative = p[0] == c'-'
            if negative or p[0] == c'+':
                p += 1
            value = parse_u63(p, end - p)
            if value >= 0:
                spec.batch = -value if negative else value
    if spec.max_bytes < 0:
        spec.max_bytes = 0
    if spec.heartbeat_ns < 0:
        spec.heartbeat_ns = 0
    return 1


def read_request(bytes text):
    """For tests: (batch, max_bytes, expires_ns, heartbeat_ns, no_wait), or None when the request is not valid."""
    cdef PullSpec spec
    if not parse_pull(text, len(text), &spec):
        return None
    return spec.batch, spec.max_bytes, spec.expires_ns, spec.heartbeat_ns, bool(spec.no_wait)


cdef PullRequest request_of(PullSpec* spec, const char* reply, size_t n, uint64_t now_ns):
    cdef PullRequest r = PullRequest.__new__(PullRequest)
    r.reply = PyBytes_FromStringAndSize(reply, n)
    r.left = max(min(spec.batch, BATCH_MAX), -BATCH_MAX)
    r.bytes_left = spec.max_bytes
    r.no_wait = spec.no_wait
    r.heartbeat_ns = spec.heartbeat_ns
    r.beat_ns = now_ns + spec.heartbeat_ns
    r.expires_ns = now_ns + spec.expires_ns if spec.expires_ns else 0
    return r


@cython.final
cdef class PullQueue:
    """The waiting requests of one consumer."""

    cdef int add(self, PullRequest r) except -1:
        cdef uint64_t due = r.expires_ns
        self.place(r)
        self.count += 1
        self.wanted += r.left
        self.impatient += r.no_wait
        if r.heartbeat_ns and (due == 0 or r.beat_ns < due):
            due = r.beat_ns
        if due and (self.due_ns == 0 or due < self.due_ns):
            self.due_ns = due
        return 0

    cdef int place(self, PullRequest r) except -1:
        """Queue at the end, or behind the last request of the same or a more urgent priority."""
        cdef PullRequest before
        r.next = None
        if self.tail is None:
            self.head = self.tail = r
        elif not self.prioritized or self.tail.priority <= r.priority:
            self.tail.next = r
            self.tail = r
        elif self.head.priority > r.priority:
            r.next = self.head
            self.head = r
        else:
            before = self.head
            while before.next.priority <= r.priority:
                before = before.next
            r.next = before.next
            before.next = r
        return 0

    cdef int promote(self, PullRequest before) except -1:
        cdef PullRequest r = before.next
        before.next = r.next
        if self.tail is r:
            self.tail = before
        r.next = self.head
        self.head = r
        return 0

    cdef PullRequest pop(self):
        cdef PullRequest r = self.head
        self.head = r.next
        if self.head is None:
            self.tail = None
        r.next = None
        self.count -= 1
        self.wanted -= r.left
        self.impatient -= r.no_wait
        return r

    cdef PullRequest detach(self):
        cdef PullRequest r = self.head
        self.head = self.tail = None
        self.count = self.impatient = 0
        self.wanted = 0
        self.due_ns = 0
        return r

    cdef int order_by_priority(self, bint prioritized) except -1:
        cdef PullRequest r, following
        if self.prioritized == prioritized:
            return 0
        self.prioritized = prioritized
        r = self.detach()
        while r is not None:
            following = r.next
            self.add(r)
            r = following
        return 0

    cdef int rotate(self) except -1:
        cdef PullRequest r = self.head
        if self.count > 1:
            self.head = r.next
            r.next = None
            self.tail.next = r
            self.tail = r
        return 0

    cdef int served(self, uint64_t size, uint64_t now_ns) except -1:
        cdef PullRequest r = self.head
        if r.bytes_left:
            r.bytes_left -= size
            if r.bytes_left == 0:
                self.wanted -= r.left - 1
                r.left = 1
        r.left -= 1
        self.wanted -= 1
        r.delivered += 1
        r.beat(now_ns)
        if r.left <= 0:
            self.pop()
        elif self.count > 1:
            self.head = r.next
            self.place(r)
        return 0

    # --- for tests -----------------------------------------------------------------------------------------------------
    def put(self, bytes reply, left: int, expires_ns: int = 0, priority: int = 0) -> None:
        """Add a request."""
        cdef PullRequest r = PullRequest.__new__(PullRequest)
        r.priority = priority
        r.reply = reply
        r.left = left
        r.expires_ns = expires_ns
        self.add(r)

    def serve(self, now_ns: int = 0):
        """Give the head a message; returns its reply subject, None when no request waits."""
        cdef PullRequest r = self.head
        if r is None:
            return None
        self.served(0, now_ns)
        return r.reply

    def replies(self) -> list:
        """(reply, messages left) in the order in which the requests are served."""
        cdef PullRequest r = self.head
        result = []
        while r is not None:
            result.append((r.reply, r.left))
            r = r.next
        return result
