"""Subjects to subscribers: one account's subscriptions, queue groups and internal sinks; delivery into output buffers.

Knows nothing of streams or of the API: those are Sinks that somebody attached. Back-pressure: a publisher whose message
went to a congested subscriber is not read from until that one has drained (or has proved stuck).
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from penstock.core.broker.reactor cimport Connection, Reactor, Owner, Task
from penstock.core.broker.receivers cimport (
    UNSERVED_MAX, Border, Message, Neighbours, QueueGroup, RemoteSubscription, Sink, Subscription, subscription_cost,
)
from penstock.core.protocol.subjects cimport Route, SubjectTrie



cdef class Router(Owner):
    cdef readonly Reactor reactor
    cdef readonly SubjectTrie trie                 # holds Subscription, QueueGroup and Sink objects
    cdef dict groups                               # subject + b" " + queue -> QueueGroup
    cdef list prefixes                             # bytes: subjects starting so are asked of the sink at the same place first
    cdef list prefix_sinks
    cdef uint64_t system_interest                  # client subscriptions that could match subjects of those prefixes
    cdef public bint traces                        # the account has a destination for traces: each message with headers is asked about
    cdef dict watchers                             # deliver subject -> list of Tasks to wake on new interest
    cdef Neighbours neighbours                       # None: no other servers
    cdef dict sinks                                # pattern of attach() -> how often
    cdef dict offered                              # pattern of a prefix -> its sink, of those that other servers may use
    cdef public list announcers                    # callables: lists of patterns that prefix sinks stand for
    cdef public Border border                      # None: nothing is shared
    cdef int shared                                # sinks that are `elsewhere`
    cdef public object mapping                     # None, or called with the subject (str) of each client's publish: the one to use
    # A message from a client (or from inside, source None): sinks and subscribers. Returns how many took it.
    cdef int publish(self, Connection source, Message* m) except -1
    # A server-made message to whoever listens on m.subject (replies, acks, statuses). Returns how many took it.
    cdef int send(self, Message* m) except -1
    # Deliver to the subscribers of a route, showing m.subject to them whatever the route's subject was (consumer deliveries).
    cdef int fan_out(self, Route route, Connection source, Message* m) except -1
    cdef int fan_out_traced(self, Route route, Connection source, Message* m) except -1
    cdef int deliver_traced(self, Subscription s, Connection source, Message* m) except -1
    cdef int ask_traced(self, bytes prefix, Sink sink, Connection source, Message* m) except -1
    cdef int deliver_group_traced(self, QueueGroup group, Connection source, Message* m) except -1
    # 0: nobody there; 1: all congested (then `waiter`, if not None, is woken when one has drained); 2: somebody can take it.
    cdef int readiness(self, Route route, Task waiter) except -1
    # Who listens on a literal subject (of all queue groups and none): for readiness() and fan_out(). Cheap when asked again.
    cdef Route interest(self, const char* subject, size_t n)
    # The same, for one queue group only: members of other groups and plain subscriptions are left out.
    cdef Route interest_in(self, const char* subject, size_t n, bytes queue)
    cdef Route bind(self, Route route, const char* subject, size_t n, bytes queue)
    cdef bint stale(self, Route route) noexcept            # subscriptions have changed since the route was made: ask again
    # cold path; attach, detach, watch, ... for Python callers are in router.pyi
    cdef Subscription subscribe(self, Connection c, bytes subject, bytes queue, bytes sid)
    cdef int enlist(self, Subscription s) except -1        # a subscription whose connection knows it already
    cdef int told(self, Subscription s, int n) except -1
    cdef bint first_asked(self, Connection source, Message* m, int* took) except -1       # the sink of a prefix; True: nobody else can be there
    cdef int reckon(self, Subscription s, int sign) except -1
    cdef int unsubscribe(self, Subscription s) except -1
    cdef int deliver(self, Subscription s, Connection source, Message* m) except -1
    cdef bint guard(self, Subscription s, Message* m) except -1
    cdef int deliver_group(self, QueueGroup group, Connection source, Message* m) except -1
