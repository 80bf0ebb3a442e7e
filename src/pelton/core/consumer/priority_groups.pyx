"""Priority groups of a pull consumer: which of the waiting requests may have the next message.

There are three policies. Overflow: a request names a number of waiting or of unacknowledged messages, and gets messages only when one of
the numbers is reached. Pinned client: the first request without a pin id gets one, in a header of every message; as long as the client
sends requests with that id, no other client gets messages. Prioritized: a request has a priority from 0 (first) to 9, and the
queue is in that order.

Requests that are empty or a plain number name no group: they are never refused, come last under priorities, and never
get a pin. Knows nothing of messages but how many there are, and sends nothing: the caller does.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memset
from pelton.core.base.buffer cimport Out, out_free, out_put
from pelton.core.broker.router cimport Message
from pelton.core.consumer.pull_requests cimport PullRequest, PullSpec

cdef enum:
    PRIORITY_MAX = 9


cdef str misplaced(PullSpec* spec, int policy):
    """The reason when the request names something that the consumer's policy does not have."""
    if (spec.min_pending or spec.min_ack_pending) and policy != OVERFLOW:
        return "400 Bad Request - Not a Overflow Priority consumer"
    if spec.client_len and policy != PINNED:
        return "400 Bad Request - Not a Pinned Client Priority consumer"
    if spec.priority < 0 or spec.priority > PRIORITY_MAX:
        return "400 Bad Request - Priority must be between 0 and 9"
    return None


cdef str needless(PullSpec* spec):
    return misplaced(spec, NO_PRIORITY)


@cython.final
cdef class PriorityGroups:
    """The policy and the names of one consumer's groups, and the pinned client."""

    def __cinit__(self):
        memset(&self.block, 0, sizeof(Out))

    def __init__(self, int policy, tuple names, pin_ttl_ns: int) -> None:
        """`names`: at least one; only the first can have a pinned client."""
        self.pin = self.pinned_group = b""
        self.set_rules(policy, names, pin_ttl_ns)

    def __dealloc__(self):
        out_free(&self.block)

    def set_rules(self, int policy, tuple names, pin_ttl_ns: int) -> None:
        """Change policy, names and TTL; a pinned client stays."""
        self.policy = policy
        self.names = names
        self.pin_ttl_ns = pin_ttl_ns

    cdef str refusal(self, PullSpec* spec):
        if not spec.json:
            return None
        text = misplaced(spec, self.policy)
        if text is not None:
            return text
        if spec.group_len == 0:
            return "400 Bad Request - Priority Group missing"
        if PyBytes_FromStringAndSize(spec.group, spec.group_len) not in self.names:
            return "400 Bad Request - Invalid Priority Group"
        if PyBytes_GET_SIZE(self.pin) and spec.client_len and not self.is_pin(spec.client, spec.client_len):
            return "423 Nats-Pin-Id mismatch"
        return None

    cdef bint is_pin(self, const char* p, size_t n) noexcept:
        return n == <size_t>PyBytes_GET_SIZE(self.pin) and memcmp(p, PyBytes_AS_STRING(self.pin), n) == 0

    cdef int asked(self, PullSpec* spec, uint64_t now_ns) noexcept:
        if spec.client_len and self.pin_until_ns:
            self.pin_until_ns = now_ns + self.pin_ttl_ns
        return 0

    cdef int judge(self, PullRequest r, uint64_t ahead, uint64_t unacknowledged) noexcept:
        """`ahead`: waiting messages, the next one included."""
        if self.policy == PINNED:
            if PyBytes_GET_SIZE(r.client) == 0:
                return WAITS if self.pin_until_ns else TAKES
            return TAKES if self.pin_until_ns and self.is_pin(PyBytes_AS_STRING(r.client), PyBytes_GET_SIZE(r.client)) else WRONG_PIN
        if self.policy == OVERFLOW and (r.min_pending > 0 or r.min_ack_pending > 0):
            if r.min_pending > 0 and <uint64_t>r.min_pending <= ahead:
                return TAKES
            return TAKES if r.min_ack_pending > 0 and <uint64_t>r.min_ack_pending <= unacknowledged else WAITS
        return TAKES

    cdef bint claims(self, PullRequest r) noexcept:
        return self.policy == PINNED and self.pin_until_ns == 0 and PyBytes_GET_SIZE(r.group) > 0

    cdef int assign(self, PullRequest r, bytes pin, uint64_t now_ns) except -1:
        self.pin = pin
        r.pinned(pin)
        self.pinned_group = r.group
        self.pinned_ns = now_ns
        self.pin_until_ns = now_ns + self.pin_ttl_ns
        return 0

    def unpin(self) -> None:
        """Unpin the client; no client is pinned now."""
        self.pin = b""
        self.pinned_ns = self.pin_until_ns = 0

    cdef int mark(self, Message* m) except -1:
        self.block.off = self.block.len = 0
        if m.hlen >= 2:
            out_put(&self.block, m.body, m.hlen - 2)
        else:
            out_put(&self.block, b"NATS/1.0\r\n", 10)
        out_put(&self.block, b"Nats-Pin-Id: ", 13)
        out_put(&self.block, PyBytes_AS_STRING(self.pin), PyBytes_GET_SIZE(self.pin))
        out_put(&self.block, b"\r\n\r\n", 4)
        out_put(&self.block, m.body + m.hlen, m.body_len - m.hlen)
        m.hlen = <uint32_t>self.block.len - (m.body_len - m.hlen)
        m.body = self.block.data
        m.body_len = <uint32_t>self.block.len
        return 0
