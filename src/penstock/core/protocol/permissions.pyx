"""What one connection may publish, subscribe to and receive: allow and deny lists, and leave to answer.

    publish     allowed when allow is absent or has a match, and deny has none; otherwise only for an answer that is still open
    subscribe   allowed when one entry of allow covers the whole pattern, and none of deny does. Entries with a queue apply only to
                subscriptions of such a queue; if one in allow matches the subject, the subscription needs one of these queues
    deliver     a subscription that overlaps a deny entry is allowed, but denied messages are not delivered to it

Memory is bounded: decisions are kept for DECISIONS_MAX subjects of at most DECISION_BYTES each (then all are forgotten), leave to
answer for REPLIES_MAX subjects of REPLY_BYTES_MAX bytes in all (then the oldest goes). Knows nothing of connections; time is handed in.
"""
from collections import OrderedDict

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memchr
from penstock.core.base.buffer cimport hash_bytes
from penstock.core.base.maps cimport BytesMap
from penstock.core.protocol.subjects cimport (
    pattern_subset, patterns_collide, subject_has_wildcard, subject_matches, subject_valid, tokens_filled,
)

cdef enum:
    DECISION_BYTES = 256               # longer subjects are decided anew each time
    MOST_DECISIONS = 1024
    MOST_REPLIES = 32768
    MOST_REPLY_BYTES = 4194304

DECISIONS_MAX = MOST_DECISIONS
REPLIES_MAX = MOST_REPLIES
REPLY_BYTES_MAX = MOST_REPLY_BYTES

# The names of the .pxd are C constants; these are the same for Python.
globals().update(SUB_REFUSED=SUB_REFUSED, SUB_ALLOWED=SUB_ALLOWED, SUB_FILTERED=SUB_FILTERED)


cdef bytes encoded(object text):
    return text if type(text) is bytes else (<str?>text).encode("utf-8", "surrogateescape")


cdef bytes checked(object text):
    cdef bytes subject = encoded(text)
    if not subject_valid(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
        raise ValueError(f"not a subject: {text!r}")
    return subject


cdef inline bint covers(bytes pattern, bytes other) noexcept:
    """Whether everything that `other` matches is matched by the pattern."""
    return pattern_subset(
        PyBytes_AS_STRING(other), PyBytes_GET_SIZE(other), PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)
    )


cdef inline bint collides(bytes a, bytes b) noexcept:
    return patterns_collide(PyBytes_AS_STRING(a), PyBytes_GET_SIZE(a), PyBytes_AS_STRING(b), PyBytes_GET_SIZE(b))


cdef inline bint fits_queue(bytes pattern, bytes queue) noexcept:
    return pattern == queue or covers(pattern, queue)


cdef tuple entries(object texts):
    """Subscribe entries as (pattern, queue pattern or None)."""
    found = []
    for text in texts:
        words = encoded(text).split()
        if not 1 <= len(words) <= 2:
            raise ValueError(f"not a subject, nor a subject and a queue: {text!r}")
        found.append((checked(words[0]), checked(words[1]) if len(words) == 2 else None))
    return tuple(found)


cdef list written(tuple found):
    return [(p if q is None else p + b" " + q).decode("utf-8", "surrogateescape") for p, q in found]


cdef class Patterns:
    """Subject patterns; see permissions.pxd."""

    def __init__(self, texts) -> None:
        self.patterns = tuple([checked(text) for text in texts])
        self.literals = set()
        self.by_first = {}
        self.anywhere = []
        for pattern in self.patterns:
            first = pattern.partition(b".")[0]
            if not subject_has_wildcard(PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
                self.literals.add(pattern)
            elif first == b"*" or first == b">":
                self.anywhere.append(pattern)
            else:
                self.by_first.setdefault(first, []).append(pattern)

    cdef bint matches(self, const char* s, size_t n) except -1:
        cdef bytes pattern
        cdef const char* dot
        if not tokens_filled(s, n):
            return False
        for pattern in self.anywhere:
            if subject_matches(s, n, PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
                return True
        if self.literals and PyBytes_FromStringAndSize(s, n) in self.literals:
            return True
        if self.by_first:
            dot = <const char*>memchr(s, c'.', n)
            for pattern in self.by_first.get(PyBytes_FromStringAndSize(s, n if dot == NULL else dot - s), ()):
                if subject_matches(s, n, PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
                    return True
        return False

    cdef list written(self):
        return [pattern.decode("utf-8", "surrogateescape") for pattern in self.patterns]


cdef class CompiledPermissions:
    """Compiled rules and the decisions taken; see permissions.pxd."""

    def __init__(self, publish_allow, publish_deny, subscribe_allow, subscribe_deny) -> None:
        self.publish_allow = None if publish_allow is None else Patterns(publish_allow)
        self.publish_deny = Patterns(publish_deny or ())
        self.subscribe_allow = None if subscribe_allow is None else entries(subscribe_allow)
        self.subscribe_deny = entries(subscribe_deny or ())
        self.publishes = BytesMap()
        self.deliveries = BytesMap()

    cdef bint may_publish(self, const char* s, size_t n) except -1:
        cdef uint64_t h
        cdef uint64_t* known
        cdef bint allowed
        if n > DECISION_BYTES:
            return self.publish_decision(s, n)
        h = hash_bytes(s, n)
        known = self.publishes.find(s, n, h)
        if known != NULL:
            return <bint>known[0]
        allowed = self.publish_decision(s, n)
        if self.publishes.count >= MOST_DECISIONS:
            self.publishes.clear()
        self.publishes.put(s, n, h, allowed)
        return allowed

    cdef bint publish_decision(self, const char* s, size_t n) except -1:
        if self.publish_allow is not None and not self.publish_allow.matches(s, n):
            return False
        return not self.publish_deny.matches(s, n)

    cdef bint may_deliver(self, const char* s, size_t n, bytes queue) except -1:
        cdef uint64_t h
        cdef uint64_t* known
        cdef bint allowed
        if n > DECISION_BYTES or PyBytes_GET_SIZE(queue):
            return self.delivery_decision(s, n, queue)
        h = hash_bytes(s, n)
        known = self.deliveries.find(s, n, h)
        if known != NULL:
            return <bint>known[0]
        allowed = self.delivery_decision(s, n, queue)
        if self.deliveries.count >= MOST_DECISIONS:
            self.deliveries.clear()
        self.deliveries.put(s, n, h, allowed)
        return allowed

    cdef bint delivery_decision(self, const char* s, size_t n, bytes queue) except -1:
        cdef bytes pattern
        for pattern, only in self.subscribe_deny:
            if only is not None and not (queue and fits_queue(<bytes>only, queue)):
                continue
            if subject_matches(s, n, PyBytes_AS_STRING(pattern), PyBytes_GET_SIZE(pattern)):
                return False
        return True

    cdef int may_subscribe(self, bytes subject, bytes queue) except -1:
        cdef bint plain = False, named = False, fitting = False
        cdef bytes pattern
        if not subject_valid(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            return SUB_ALLOWED if self.subscribe_allow is None else SUB_REFUSED
        if self.subscribe_allow is not None:
            for pattern, only in self.subscribe_allow:
                if (only is None or queue) and covers(pattern, subject):
                    if only is None:
                        plain = True
                    else:
                        named = True
                        fitting = fitting or fits_queue(<bytes>only, queue)
            if not (fitting if named else plain):
                return SUB_REFUSED
        named = False
        for pattern, only in self.subscribe_deny:
            if only is not None and not (queue and fits_queue(<bytes>only, queue)):
                continue
            if covers(pattern, subject):
                return SUB_REFUSED
            named = named or collides(pattern, subject)
        return SUB_FILTERED if named else SUB_ALLOWED


cdef class ConnectionPermissions:
    """The rules of a user, and one connection's leave to answer; see permissions.pyi."""

    def __init__(
        self, publish_allow=None, publish_deny=None, subscribe_allow=None, subscribe_deny=None,
        int64_t responses_max=0, int64_t responses_expires_ns=0,
    ) -> None:
        if responses_max and publish_allow is None:
            publish_allow = ()             # with allow_responses and no allow list, the client may publish answers only
        self.rules = CompiledPermissions(publish_allow, publish_deny, subscribe_allow, subscribe_deny)
        self.responses_max = responses_max
        self.responses_expires_ns = responses_expires_ns

    def copy(self) -> ConnectionPermissions:
        """The same rules for another connection, without leave to answer anything yet."""
        cdef ConnectionPermissions other = ConnectionPermissions.__new__(ConnectionPermissions)
        other.rules = self.rules
        other.responses_max = self.responses_max
        other.responses_expires_ns = self.responses_expires_ns
        return other

    cdef bint publishable(self, const char* s, size_t n, uint64_t now_ns) except -1:
        if self.rules.may_publish(s, n):
            return True
        if self.replies is None:
            return False
        subject = PyBytes_FromStringAndSize(s, n)
        leave = self.replies.get(subject)
        if leave is None:
            return False
        deadline_ns, left = leave
        if deadline_ns and now_ns > deadline_ns:
            self.forget_reply(subject)
            return False
        if left == 1:
            self.forget_reply(subject)
        elif left > 1:
            self.replies[subject] = (deadline_ns, left - 1)
        return True

    cdef int note_reply(self, const char* s, size_t n, uint64_t now_ns) except -1:
        if self.responses_max == 0 or self.rules.may_publish(s, n):
            return 0
        if self.replies is None:
            self.replies = OrderedDict()
        subject = PyBytes_FromStringAndSize(s, n)
        leave = self.replies.get(subject)
        left = self.responses_max if self.responses_max > 0 else -1
        if leave is None:
            self.reply_bytes += n
        else:
            if left > 0 and not (leave[0] and now_ns > leave[0]):
                left += leave[1]
            self.replies.move_to_end(subject)
        self.replies[subject] = (now_ns + self.responses_expires_ns if self.responses_expires_ns > 0 else 0, left)
        while True:
            oldest = next(iter(self.replies))
            deadline_ns = self.replies[oldest][0]
            if oldest is subject or not (
                (deadline_ns and now_ns > deadline_ns)
                or len(self.replies) > MOST_REPLIES or self.reply_bytes > MOST_REPLY_BYTES
            ):
                return 0
            self.forget_reply(oldest)

    cdef int forget_reply(self, bytes subject) except -1:
        del self.replies[subject]
        self.reply_bytes -= PyBytes_GET_SIZE(subject)
        return 0

    # --- for Python callers --------------------------------------------------------------------------------------------
    @property
    def publish_allow(self) -> list | None:
        """Subjects that may be published; None: all."""
        return None if self.rules.publish_allow is None else self.rules.publish_allow.written()

    @property
    def publish_deny(self) -> list:
        """Subjects of those that may not."""
        return self.rules.publish_deny.written()

    @property
    def subscribe_allow(self) -> list | None:
        """Subjects, some with a queue, that may be subscribed to; None: all."""
        return None if self.rules.subscribe_allow is None else written(self.rules.subscribe_allow)

    @property
    def subscribe_deny(self) -> list:
        """Those of them that may not."""
        return written(self.rules.subscribe_deny)

    @property
    def open_replies(self) -> int:
        """Reply subjects for which leave is held."""
        return 0 if self.replies is None else len(self.replies)

    def __repr__(self) -> str:
        return (
            f"ConnectionPermissions(publish_allow={self.publish_allow}, publish_deny={self.publish_deny}, subscribe_allow={self.subscribe_allow}, "
            f"subscribe_deny={self.subscribe_deny}, responses_max={self.responses_max}, "
            f"responses_expires_ns={self.responses_expires_ns})"
        )

    def may_publish(self, subject, uint64_t now_ns=0) -> bool:
        """As a PUB: a leave to answer is used up."""
        cdef bytes s = encoded(subject)
        return self.publishable(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s), now_ns)

    def may_subscribe(self, subject, queue="") -> int:
        """SUB_REFUSED, SUB_ALLOWED or SUB_FILTERED."""
        return self.rules.may_subscribe(encoded(subject), encoded(queue))

    def may_receive(self, subject, queue="") -> bool:
        """Whether a message on a literal subject may go to a subscription of that queue."""
        cdef bytes s = encoded(subject)
        return self.rules.may_deliver(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s), encoded(queue))

    def received(self, reply, uint64_t now_ns) -> None:
        """A message came that asks for an answer there."""
        cdef bytes s = encoded(reply)
        self.note_reply(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s), now_ns)
