"""Pull requests of a consumer: reading one from its bytes, and the queue of those that wait.

A request is empty (one message), a decimal number (that many), or a JSON object. The JSON that clients send is read in place:
flat, known keys in lower case, integers and booleans. Anything else goes through the json module, with the rules of Go's
decoder: keys match in any case, unknown ones are ignored, the last of equal ones wins, a wrong type is an error.
"""
import json

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr, memcmp
from penstock.core.buffer cimport parse_u63

cdef enum:
    INT_MAX_NS = 9223372036854775807

_KEYS = {"batch": 0, "max_bytes": 1, "expires": 2, "idle_heartbeat": 3, "no_wait": 4}
_OTHER_INTEGERS = ("min_pending", "min_ack_pending", "priority")


@cython.final
@cython.freelist(64)
@cython.trashcan(True)
cdef class PullRequest:
    """One request that waits."""


cdef inline bint blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t' or c == c'\r' or c == c'\n'


cdef bint read_fast(const char* p, const char* end, PullSpec* spec) noexcept nogil:
    """The common form; False when it is anything else (then spec is not to be used)."""
    cdef const char* key
    cdef const char* start
    cdef size_t n
    cdef int64_t value
    p += 1
    while True:
        while p < end and blank(p[0]):
            p += 1
        if p >= end or p[0] != c'"':
            return p < end and p[0] == c'}' and p + 1 == end and spec.batch == 0
        key = p + 1
        p = <const char*>memchr(key, c'"', end - key)
        if p == NULL:
            return False
        n = p - key
        p += 1
        while p < end and blank(p[0]):
            p += 1
        if p >= end or p[0] != c':':
            return False
        p += 1
        while p < end and blank(p[0]):
            p += 1
        start = p
        while p < end and (c'0' <= p[0] <= c'9' or c'a' <= p[0] <= c'z'):
            p += 1
        if n == 7 and memcmp(key, b"no_wait", 7) == 0:
            if p - start == 4 and memcmp(start, b"true", 4) == 0:
                spec.no_wait = True
            elif p - start == 5 and memcmp(start, b"false", 5) == 0:
                spec.no_wait = False
            else:
                return False
        else:
            if p - start > 1 and start[0] == c'0':
                return False
            value = parse_u63(start, p - start)
            if value < 0:
                return False
            if n == 5 and memcmp(key, b"batch", 5) == 0:
                spec.batch = value
            elif n == 7 and memcmp(key, b"expires", 7) == 0:
                spec.expires_ns = value
            elif n == 9 and memcmp(key, b"max_bytes", 9) == 0:
                spec.max_bytes = value
            elif n == 14 and memcmp(key, b"idle_heartbeat", 14) == 0:
                spec.heartbeat_ns = value
            else:
                return False
        while p < end and blank(p[0]):
            p += 1
        if p < end and p[0] == c'}':
            return p + 1 == end
        if p >= end or p[0] != c',':
            return False
        p += 1
        while p < end and blank(p[0]):
            p += 1
        if p >= end or p[0] != c'"':
            return False


def read_slowly(text: bytes) -> list:
    """[batch, max_bytes, expires, heartbeat, no_wait] of a JSON request; ValueError says what is wrong with it."""
    values = [0, 0, 0, 0, False]
    pairs = json.loads(text.decode("utf-8", "replace"), object_pairs_hook=list)
    for key, value in pairs:
        name = key.lower()
        at = _KEYS.get(name)
        if value is None or (at is None and name not in _OTHER_INTEGERS and name not in ("group", "id")):
            continue
        if name in ("group", "id"):
            if not isinstance(value, str):
                raise ValueError(f"{name} is not a string")
        elif at == 4:
            if not isinstance(value, bool):
                raise ValueError("no_wait is not a boolean")
            values[4] = value
        elif isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{name} is not an integer")
        elif at is not None:
            values[at] = value
    return values


cdef int parse_pull(const char* p, size_t n, PullSpec* spec) except -1:
    cdef const char* end = p + n
    cdef int64_t value
    spec.batch = spec.max_bytes = spec.expires_ns = spec.heartbeat_ns = 0
    spec.no_wait = False
    while p < end and blank(p[0]):
        p += 1
    while end > p and blank((end - 1)[0]):
        end -= 1
    if p < end and p[0] == c'{':
        if not read_fast(p, end, spec):
            try:
                values = read_slowly(PyBytes_FromStringAndSize(p, end - p))
            except (ValueError, RecursionError):
                return 0
            spec.batch, spec.max_bytes, spec.expires_ns, spec.heartbeat_ns = values[0], values[1], values[2], values[3]
            spec.no_wait = values[4]
    elif p < end:
        if p[0] == c'+':
            p += 1
        value = parse_u63(p, end - p)
        if value > 0:
            spec.batch = value
    if spec.batch < 1:
        spec.batch = 1
    if spec.max_bytes < 0:
        spec.max_bytes = 0
    if spec.heartbeat_ns < 0:
        spec.heartbeat_ns = 0
    return 1


def read_request(bytes text):
    """(batch, max_bytes, expires_ns, heartbeat_ns, no_wait), or None when it is no request. For tests."""
    cdef PullSpec spec
    if not parse_pull(text, len(text), &spec):
        return None
    return spec.batch, spec.max_bytes, spec.expires_ns, spec.heartbeat_ns, bool(spec.no_wait)


@cython.final
cdef class PullQueue:
    """The requests of one consumer that wait."""

    cdef int add(self, PullRequest r) except -1:
        cdef uint64_t due = r.expires_ns
        r.next = None
        if self.tail is None:
            self.head = r
        else:
            self.tail.next = r
        self.tail = r
        self.count += 1
        self.wanted += r.left
        self.impatient += r.no_wait
        if r.heartbeat_ns and (due == 0 or r.beat_ns < due):
            due = r.beat_ns
        if due and (self.due_ns == 0 or due < self.due_ns):
            self.due_ns = due
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

    cdef int rotate(self) except -1:
        cdef PullRequest r = self.head
        if self.count > 1:
            self.head = r.next
            r.next = None
            self.tail.next = r
            self.tail = r
        return 0

    cdef int served(self, uint64_t now_ns) except -1:
        cdef PullRequest r = self.head
        r.left -= 1
        self.wanted -= 1
        r.delivered += 1
        r.beat_ns = now_ns + r.heartbeat_ns
        if r.left == 0:
            self.pop()
        else:
            self.rotate()
        return 0

    # --- for tests -----------------------------------------------------------------------------------------------------
    def put(self, bytes reply, left: int, expires_ns: int = 0) -> None:
        """Add a request."""
        cdef PullRequest r = PullRequest.__new__(PullRequest)
        r.reply = reply
        r.left = left
        r.expires_ns = expires_ns
        self.add(r)

    def serve(self, now_ns: int = 0):
        """Give the head a message; its reply subject, None when nobody waits."""
        cdef PullRequest r = self.head
        if r is None:
            return None
        self.served(now_ns)
        return r.reply

    def replies(self) -> list:
        """(reply, messages left) in the order in which they will be served."""
        cdef PullRequest r = self.head
        result = []
        while r is not None:
            result.append((r.reply, r.left))
            r = r.next
        return result
