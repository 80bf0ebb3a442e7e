"""Subjects to subscribers: one account's subscriptions, queue groups and internal sinks; delivery into output buffers.

Knows nothing of streams or of the API: those are attached Sinks. Back-pressure: the server does not read from a publisher whose message
went to a congested subscriber until that subscriber has drained (or is found to be stuck).
"""
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.broker.reactor cimport Connection, Reactor, Owner, Task
from pelton.core.broker.receivers cimport (
    UNSERVED_MAX, Border, Message, Neighbours, QueueGroup, RemoteSubscription, Sink, Subscription, subscription_cost,
)
from pelton.core.protocol.subjects cimport Route, SubjectTrie


cdef class Router(Owner):
    cdef readonly Reactor reactor
    cdef readonly SubjectTrie trie                 # holds Subscription, QueueGroup and Sink objects
    cdef dict groups                               # subject + b" " + queue -> QueueGroup
    cdef list prefixes                             # bytes: a subject with one of these prefixes goes first to the sink at the same place
    cdef list prefix_sinks
    cdef uint64_t system_interest                  # client subscriptions that could match subjects of those prefixes
    cdef public bint traces                        # the account has a trace destination: each message with headers is checked
    cdef dict watchers                             # deliver subject -> list of Tasks to wake on new interest
    cdef Neighbours neighbours                     # None: no other servers
    cdef void set_neighbours(self, Neighbours neighbours) noexcept
    cdef dict sinks                                # pattern of attach() -> number of attached sinks
    cdef list leaving                              # lists of the subscriptions of closed connections that are not removed yet
    cdef dict offered                              # pattern of a prefix -> its sink, of prefixes that other servers may use
    cdef public list announcers                    # callables that return lists of patterns of prefix sinks
    cdef public Border border                      # None: the account has no imports or exports
    cdef void set_border(self, Border border) noexcept
    cdef int shared                                # sinks that are `elsewhere`
    cdef public object mapping                     # None, or called with the subject (str) of each client's publish; returns the subject to use
    # Publish a message from a client (or the server, source None) to sinks and subscribers; the number of receivers that took it.
    cdef int publish(self, Connection source, Message* m) except -1
    # Send a message that the server makes to the subscribers of m.subject (replies, acks, statuses); the number that took it.
    cdef int send(self, Message* m) except -1
    # Deliver to the subscribers of a route under m.subject, whatever the route's subject is (consumer deliveries).
    cdef int fan_out(self, Route route, Connection source, Message* m) except -1
    cdef int fan_out_traced(self, Route route, Connection source, Message* m) except -1
    cdef int deliver_traced(self, Subscription s, Connection source, Message* m) except -1
    cdef int ask_traced(self, bytes prefix, Sink sink, Connection source, Message* m) except -1
    cdef int deliver_group_traced(self, QueueGroup group, Connection source, Message* m) except -1
    # 0: no subscriber; 1: all are congested (`waiter`, if not None, is woken when one has drained); 2: a subscriber can take a message.
    cdef int readiness(self, Route route, Task waiter) except -1
    # The subscribers of a literal subject (of all queue groups and none), for readiness() and fan_out(). Cheap when called again.
    cdef Route interest(self, const char* subject, size_t n)
    # As interest(), for one queue group only: without members of other groups and plain subscriptions.
    cdef Route interest_in(self, const char* subject, size_t n, bytes queue)
    cdef Route bind(self, Route route, const char* subject, size_t n, bytes queue)
    cdef bint stale(self, Route route) noexcept            # subscriptions have changed since the route was made: look it up again
    # cold path; attach, detach, watch, ... for Python callers are in router.pyi
    cdef Subscription subscribe(self, Connection c, bytes subject, bytes queue, bytes sid)
    cdef int enlist(self, Subscription s) except -1        # index a subscription that its connection already has
    cdef int count_changed(self, Subscription s, int n) except -1
    cdef bint first_asked(self, Connection source, Message* m, int* took) except -1       # ask the sink of a prefix; True: there can be no other receiver
    cdef int unsubscribe(self, Subscription s) except -1
    cdef int deliver(self, Subscription s, Connection source, Message* m) except -1
    cdef bint guard(self, Subscription s, Message* m) except -1
    cdef int deliver_group(self, QueueGroup group, Connection source, Message* m) except -1
