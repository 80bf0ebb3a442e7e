"""What one connection may publish, subscribe to and receive: allow and deny lists, and permission to answer requests.

    publish     allowed when allow is absent or has a match, and deny has none; otherwise only for an answer that is still open
    subscribe   allowed when one entry of allow covers the whole pattern, and none of deny does. Entries with a queue apply only to
                subscriptions of such a queue; if one in allow matches the subject, the subscription needs one of these queues
    deliver     a subscription that overlaps a deny entry is allowed, but denied messages are not delivered to it

Memory is bounded: decisions are kept for DECISIONS_MAX subjects of at most DECISION_BYTES each (then all are forgotten), permission
to answer for REPLIES_MAX subjects of REPLY_BYTES_MAX bytes in all (then the oldest goes). Knows nothing of connections; time is handed in.
"""
from collections import OrderedDict

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from pelton.core.base.buffer cimport hash_bytes
from pelton.core.base.maps cimport BytesMap
from pelton.core.protocol.overlaps cimport TOO_MANY, Patterns
from pelton.core.protocol.subjects cimport subject_valid, tokens_filled

cdef enum:
    DECISION_BYTES = 256               # longer subjects are decided anew each time
    MOST_DECISIONS = 1024
    MOST_REPLIES = 32768
    MOST_REPLY_BYTES = 4194304
    COLLIDE_STEPS = 1000               # a subscription that takes more steps to compare counts as denied in part
    COVERS_PLAIN = 1
    COVERS_NAMED = 2
    COVERS_FITTING = 4

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


cdef list written(tuple found):
    return [(p if q is None else p + b" " + q).decode("utf-8", "surrogateescape") for p, q in found]


cdef class SubjectSet:
    """Subjects, some with a queue; see permissions.pxd."""

    def __init__(self, texts, bint queues=False) -> None:
        cdef bytes subject
        found = []
        groups = {}
        for text in texts:
            words = encoded(text).split() if queues else [text]
            if not 1 <= len(words) <= 2:
                raise ValueError(f"not a subject, nor a subject and a queue: {text!r}")
            subject = checked(words[0])
            if len(words) == 1:
                found.append((subject, None))
                if self.plain is None:
                    self.plain = Patterns()
                self.plain.insert(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), 0)
            else:
                queue = checked(words[1])
                found.append((subject, queue))
                groups.setdefault(subject, []).append(queue)
        self.entries = tuple(found)
        if not groups:
            return
        self.queued = Patterns()
        self.queues = []
        for subject, names in groups.items():
            self.queued.insert(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), len(self.queues))
            self.queues.append(SubjectSet(names).plain)

    cdef bint matches(self, const char* s, size_t n, bytes queue) except -1:
        """Whether a subject here matches a literal one; those with a queue count if theirs fits."""
        cdef set found
        if not tokens_filled(s, n):
            return False
        if self.plain is not None and self.plain.matches(s, n):
            return True
        if self.queued is None or not queue:
            return False
        found = set()
        self.queued.gather_matches(s, n, found)
        return any([self.fits(number, queue) for number in found])

    cdef int covers(self, bytes subject, bytes queue) except -1:
        """COVERS_PLAIN: an entry without a queue covers the whole subject; COVERS_NAMED: one with a queue does; COVERS_FITTING: with this one."""
        cdef const char* s = PyBytes_AS_STRING(subject)
        cdef size_t n = PyBytes_GET_SIZE(subject)
        cdef int how = COVERS_PLAIN if self.plain is not None and self.plain.covered(s, n) else 0
        cdef set found
        if self.queued is None or not queue:
            return how
        found = set()
        self.queued.gather_covers(s, n, found)
        if found:
            how |= COVERS_NAMED
            if any([self.fits(number, queue) for number in found]):
                how |= COVERS_FITTING
        return how

    cdef bint collides(self, bytes subject, bytes queue) except -1:
        """Whether a part of the subject is here. If the answer takes many steps, it is yes: then each delivery is checked."""
        cdef const char* s = PyBytes_AS_STRING(subject)
        cdef size_t n = PyBytes_GET_SIZE(subject)
        cdef set found
        if self.plain is not None and self.plain.met(s, n, COLLIDE_STEPS, None):
            return True
        if self.queued is None or not queue:
            return False
        found = set()
        return self.queued.met(s, n, COLLIDE_STEPS, found) == TOO_MANY or any([self.fits(number, queue) for number in found])

    cdef bint fits(self, int number, bytes queue) except -1:
        return (<Patterns>self.queues[number]).covered(PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue))

    def steps(self) -> int:
        """Tokens looked at by all decisions so far."""
        return sum([patterns.steps for patterns in (self.plain, self.queued, *(self.queues or ())) if patterns is not None])


cdef class CompiledPermissions:
    """Compiled rules and the decisions taken; see permissions.pxd."""

    def __init__(self, publish_allow, publish_deny, subscribe_allow, subscribe_deny) -> None:
        self.publish_allow = None if publish_allow is None else SubjectSet(publish_allow)
        self.publish_deny = SubjectSet(publish_deny or ())
        self.subscribe_allow = None if subscribe_allow is None else SubjectSet(subscribe_allow, True)
        self.subscribe_deny = SubjectSet(subscribe_deny or (), True)
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
        if self.publish_allow is not None and not self.publish_allow.matches(s, n, b""):
            return False
        return not self.publish_deny.matches(s, n, b"")

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
        return not self.subscribe_deny.matches(s, n, queue)

    cdef int may_subscribe(self, bytes subject, bytes queue) except -1:
        cdef int how
        if not subject_valid(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)):
            return SUB_ALLOWED if self.subscribe_allow is None else SUB_REFUSED
        if self.subscribe_allow is not None:
            how = self.subscribe_allow.covers(subject, queue)
            if not how & (COVERS_FITTING if how & COVERS_NAMED else COVERS_PLAIN):
                return SUB_REFUSED
        if self.subscribe_deny.covers(subject, queue) & (COVERS_PLAIN | COVERS_FITTING):
            return SUB_REFUSED
        return SUB_FILTERED if self.subscribe_deny.collides(subject, queue) else SUB_ALLOWED


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
        return None if self.rules.publish_allow is None else written(self.rules.publish_allow.entries)

    @property
    def publish_deny(self) -> list:
        """Subjects of those that may not."""
        return written(self.rules.publish_deny.entries)

    @property
    def subscribe_allow(self) -> list | None:
        """Subjects, some with a queue, that may be subscribed to; None: all."""
        return None if self.rules.subscribe_allow is None else written(self.rules.subscribe_allow.entries)

    @property
    def subscribe_deny(self) -> list:
        """Those of them that may not."""
        return written(self.rules.subscribe_deny.entries)

    @property
    def open_replies(self) -> int:
        """Reply subjects for which leave is held."""
        return 0 if self.replies is None else len(self.replies)

    @property
    def steps(self) -> int:
        """Tokens looked at by all decisions so far, for tests that they are few."""
        cdef CompiledPermissions rules = self.rules
        return sum([each.steps() for each in (rules.publish_allow, rules.publish_deny, rules.subscribe_allow, rules.subscribe_deny)
                    if each is not None])

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
