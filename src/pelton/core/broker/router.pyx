"""Subjects to subscribers: one account's subscriptions, queue groups and internal sinks; delivery into output buffers.

The trie holds three kinds of objects: Subscription (a client's plain one), QueueGroup (the members of one queue group on one subject) and
Sink (a receiver inside the server). A Route is the list of those for one literal subject.

Back-pressure: when a message goes to a subscriber whose connection is blocked with more than HIGH_WATER waiting, the server does not
read from its publisher until that output has drained. A subscriber that made no progress for STUCK_NS does not hold up publishers: its
output grows to `max_pending`, and then it is closed. Knows nothing of streams or of the API: those are attached Sinks.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from pelton.core.base.buffer cimport out_waiting, put_u64
from pelton.core.broker.reactor cimport Connection, Reactor, Owner, Task, Trace
from pelton.core.broker.receivers cimport (
    UNSERVED_MAX, Border, Message, Neighbours, QueueGroup, RemoteSubscription, Sink, Subscription, subscription_cost,
)
from pelton.core.protocol.subjects cimport Route, SubjectTrie, subject_has_wildcard, subject_matches, subject_valid

from pelton.core.broker.receivers import CallbackSink, Sink, Subscription

cdef enum:
    HIGH_WATER = 1048576               # output of a blocked subscriber above this stalls its publishers
    FORGOTTEN_AT_ONCE = 1000           # subscriptions of a closed connection that are removed in a turn
    STUCK_NS = 100000000               # no bytes taken for this long: publishers do not wait any more
    LINE_ROOM = 96                     # a MSG line without subject, sid and reply: words, blanks, two numbers, line ends


cdef class Forgetting(Task):
    """Removes the subscriptions of a closed connection."""

    cdef Router router
    cdef list left

    cdef int run(self) except -1:
        cdef int i
        for i in range(min(len(self.left), FORGOTTEN_AT_ONCE)):
            self.router.unsubscribe(<Subscription>self.left.pop())
        if self.left:
            return 1
        self.router.leaving.remove(self.left)
        return 0


cdef class Router(Owner):
    """One account's subjects."""

    def __init__(self, Reactor reactor) -> None:
        self.reactor = reactor
        self.trie = SubjectTrie()
        self.groups = {}
        self.prefixes = []
        self.prefix_sinks = []
        self.watchers = {}
        self.sinks = {}
        self.leaving = []
        self.offered = {}
        self.announcers = [lambda: list(self.offered)]

    cdef void set_neighbours(self, Neighbours neighbours) noexcept:
        self.neighbours = neighbours

    cdef void set_border(self, Border border) noexcept:
        self.border = border

    # --- messages ------------------------------------------------------------------------------------------------------
    cdef int publish(self, Connection source, Message* m) except -1:
        cdef int took = 0
        cdef Route route
        if m.subject_len and m.subject[0] == c'$' and self.first_asked(source, m, &took):
            return took
        route = self.trie.route(m.subject, m.subject_len)
        if route.n:
            took += self.fan_out(route, source, m)
        return took

    cdef bint first_asked(self, Connection source, Message* m, int* took) except -1:
        cdef int i
        cdef bytes prefix
        cdef size_t n
        for i in range(len(self.prefixes)):
            prefix = <bytes>self.prefixes[i]
            n = PyBytes_GET_SIZE(prefix)
            if m.subject_len > n and memcmp(m.subject, PyBytes_AS_STRING(prefix), n) == 0:
                if source is not None and self.reactor.trace is not None:
                    took[0] = self.ask_traced(prefix, <Sink>self.prefix_sinks[i], source, m)
                else:
                    took[0] = (<Sink>self.prefix_sinks[i]).take(source, m)
                return took[0] != 0 and self.system_interest == 0    # a message that this sink does not take may be for another receiver
        return False

    cdef int send(self, Message* m) except -1:
        cdef Route route = self.trie.match(m.subject, m.subject_len)
        return self.fan_out(route, None, m) if route.n else 0

    cdef int fan_out(self, Route route, Connection source, Message* m) except -1:
        cdef int i, took = 0, n = 0
        cdef PyObject* unserved[UNSERVED_MAX]
        cdef bint remote = False
        cdef object item
        if source is not None and self.reactor.trace is not None:
            return self.fan_out_traced(route, source, m)
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                took += self.deliver(<Subscription>item, source, m)
            elif type(item) is QueueGroup:
                if self.deliver_group(<QueueGroup>item, source, m):
                    took += 1
                elif (<QueueGroup>item).remote is not None:
                    if n == UNSERVED_MAX:
                        took += self.neighbours.send(None, source, m, unserved, n)
                        n = 0
                    unserved[n] = route.items[i]
                    n += 1
            elif type(item) is RemoteSubscription:
                remote = True
            else:
                took += (<Sink>item).take(source, m)
        if remote or n:
            took += self.neighbours.send(route if remote else None, source, m, unserved, n)
        return took

    cdef int fan_out_traced(self, Route route, Connection source, Message* m) except -1:
        """As fan_out, adding an event for each receiver to reactor.trace; when the trace asks only what would happen, nothing is delivered."""
        cdef int i, took = 0, n = 0
        cdef PyObject* unserved[UNSERVED_MAX]
        cdef bint remote = False
        cdef object item
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                took += self.deliver_traced(<Subscription>item, source, m)
            elif type(item) is QueueGroup:
                if self.deliver_group_traced(<QueueGroup>item, source, m):
                    took += 1
                elif (<QueueGroup>item).remote is not None and n < UNSERVED_MAX:
                    unserved[n] = route.items[i]
                    n += 1
            elif type(item) is RemoteSubscription:
                remote = True
            else:
                took += (<Sink>item).traced(source, m)
        if remote or n:                         # the other servers record the further events
            took += 1 if self.reactor.trace.only else self.neighbours.send(route if remote else None, source, m, unserved, n)
        return took

    cdef int ask_traced(self, bytes prefix, Sink sink, Connection source, Message* m) except -1:
        """A subject of the server itself. In the trace, the API appears as a service of the system account."""
        if prefix.endswith(b".API."):
            subject = PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape")
            self.reactor.trace.events.append(("si", "$SYS", subject, subject))
        return sink.traced(source, m)

    cdef int deliver_group_traced(self, QueueGroup group, Connection source, Message* m) except -1:
        cdef list members = list(group.members)
        cdef Py_ssize_t n = len(members), start, i
        start = <Py_ssize_t>((self.reactor.random() >> 33) % <uint64_t>n) if n > 1 else 0
        for i in range(n):
            if self.deliver_traced(<Subscription>members[(start + i) % n], source, m):
                return 1
        return 0

    cdef int deliver_traced(self, Subscription s, Connection source, Message* m) except -1:
        cdef Connection c = s.connection
        cdef Trace trace = self.reactor.trace
        cdef str why = ""
        if s.closed:
            why = "Not delivered because subscription is closed"
        elif c.closed or c.closing:
            why = "Not delivered because client is closed"
        elif source is c and not c.echo:
            why = "Not delivered because of no echo"
        elif not trace.only and self.deliver(s, source, m) == 0:
            if c.guarded:
                why = "Not delivered because subscription denies this subject"
            else:
                why = "Not delivered because fast producer not stalled and consumer is slow"
        trace.events.append(("eg", s, why))
        return 0 if why else 1

    cdef int deliver_group(self, QueueGroup group, Connection source, Message* m) except -1:
        """Deliver to one member: the first from a random one on that is not congested; if all are, the first that is open."""
        cdef Py_ssize_t n = len(group.members), start, i
        cdef Subscription s
        if n == 0:
            return 0
        start = <Py_ssize_t>((self.reactor.random() >> 33) % <uint64_t>n) if n > 1 else 0
        for i in range(n):
            s = <Subscription>group.members[(start + i) % n]
            if not s.connection.congested() and self.deliver(s, source, m):
                return 1
        n = len(group.members)                 # an auto-unsubscribe or a slow consumer may have left
        for i in range(n):
            s = <Subscription>group.members[(start + i) % n]
            if self.deliver(s, source, m):
                return 1
        return 0

    cdef int deliver(self, Subscription s, Connection source, Message* m) except -1:
        cdef Connection c = s.connection
        cdef char* start
        cdef char* p
        cdef uint32_t sid_len, hlen = m.hlen, n = m.body_len
        cdef const char* body = m.body
        if s.closed or c.closed or c.closing or (source is c and not c.echo):
            return 0
        if c.blocked and self.reactor.drop_for_slow and out_waiting(&c.out) > <size_t>(self.reactor.max_pending // 4 * 3):
            return 0
        if c.guarded and not self.guard(s, m):
            return 0
        if hlen and not c.headers:             # the client's CONNECT has no headers: true
            body += hlen
            n -= hlen
            hlen = 0
        sid_len = <uint32_t>PyBytes_GET_SIZE(s.sid)
        start = p = c.reserve(<size_t>n + m.subject_len + sid_len + m.reply_len + LINE_ROOM)
        if hlen:
            p[0] = c'H'
            p += 1
        memcpy(p, b"MSG ", 4)
        memcpy(p + 4, m.subject, m.subject_len)
        p += 4 + m.subject_len
        p[0] = c' '
        memcpy(p + 1, PyBytes_AS_STRING(s.sid), sid_len)
        p += 1 + sid_len
        p[0] = c' '
        p += 1
        if m.reply_len:
            memcpy(p, m.reply, m.reply_len)
            p += m.reply_len
            p[0] = c' '
            p += 1
        if hlen:
            p = put_u64(p, hlen)
            p[0] = c' '
            p += 1
        p = put_u64(p, n)
        p[0] = c'\r'
        p[1] = c'\n'
        memcpy(p + 2, body, n)
        p += 2 + n
        p[0] = c'\r'
        p[1] = c'\n'
        c.count_out(n)
        s.count_delivery()
        c.commit(p + 2 - start)
        if s.max and s.delivered >= s.max:
            self.unsubscribe(s)
        if source is not None and c.blocked and not source.stalled and out_waiting(&c.out) > HIGH_WATER:
            if source is not c and not self.reactor.drop_for_slow and self.reactor.now_ns - c.progress_ns < STUCK_NS:
                source.wait_for(c)
        return 1

    cdef bint guard(self, Subscription s, Message* m) except -1:
        """Whether the subscriber's permissions allow this message; if so, note its permission to answer."""
        cdef Connection c = s.connection
        if c.filtered and not c.allowed.rules.may_deliver(m.subject, m.subject_len, s.queue):
            return False
        if m.reply_len:
            c.allowed.note_reply(m.reply, m.reply_len, self.reactor.now_ns)
        return True

    # --- interest ------------------------------------------------------------------------------------------------------
    cdef Route interest(self, const char* subject, size_t n):
        cdef Route route = self.trie.route(subject, n)
        return self.bind(route, subject, n, b"") if self.shared and route.n else route

    cdef Route interest_in(self, const char* subject, size_t n, bytes queue):
        if PyBytes_GET_SIZE(queue) == 0:
            return self.interest(subject, n)
        return self.bind(self.trie.route(subject, n), subject, n, queue)

    cdef Route bind(self, Route route, const char* subject, size_t n, bytes queue):
        """Bind the route's import sinks to this subject; with a queue, keep only the members of that group."""
        cdef object item
        cdef bint all_of_them = PyBytes_GET_SIZE(queue) == 0
        cdef int i
        only = SubjectTrie()
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription or type(item) is RemoteSubscription:
                if not all_of_them:
                    continue
            elif type(item) is QueueGroup:
                if not all_of_them and not (<QueueGroup>item).key.endswith(b" " + queue):
                    continue
            elif (<Sink>item).elsewhere:
                item = (<Sink>item).bound(subject, n, queue)
                if item is None:
                    continue
            elif not all_of_them:
                continue
            (<SubjectTrie>only).insert(subject, n, item)
        return (<SubjectTrie>only).match_for(subject, n, self.trie.generation)

    cdef bint stale(self, Route route) noexcept:
        return route.generation != self.trie.generation

    cdef int readiness(self, Route route, Task waiter) except -1:
        cdef int i, n, best = 0
        cdef object item
        cdef Subscription s
        cdef QueueGroup group
        cdef Connection crowded = None
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription or type(item) is RemoteSubscription:
                s = <Subscription>item
                if s.closed or s.connection.closed or s.connection.closing:
                    continue
                if not s.connection.congested():
                    return 2
                best = 1
                crowded = s.connection
            elif type(item) is QueueGroup:
                group = <QueueGroup>item
                for s in group.members if group.remote is None else group.members + group.remote:
                    if s.connection.closed or s.connection.closing:
                        continue
                    if not s.connection.congested():
                        return 2
                    best = 1
                    crowded = s.connection
            else:
                n = (<Sink>item).ready(waiter)
                if n == 2:
                    return 2
                best = max(best, n)
        if crowded is not None and waiter is not None:
            crowded.await_room(waiter)
        return best

    # --- subscriptions -------------------------------------------------------------------------------------------------
    cdef Subscription subscribe(self, Connection c, bytes subject, bytes queue, bytes sid):
        """Add a subscription; the caller has checked the subject, and that the sid is free."""
        cdef Subscription s = Subscription(c, sid, subject, queue)
        c.keep(sid, s)
        self.enlist(s)
        return s

    cdef int enlist(self, Subscription s) except -1:
        cdef bytes subject = s.subject
        cdef QueueGroup group
        cdef int n = 1
        s.connection.reckon(subscription_cost(subject, s.queue, s.sid))
        if s.queue:
            key = subject + b" " + s.queue
            group = self.groups.get(key)
            if group is None:
                group = self.groups[key] = QueueGroup(key, s.queue)
                self.trie.insert(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), group)
            if type(s) is Subscription:
                group.add(s)
            else:
                n = (<RemoteSubscription>s).weight
                group.add_remote(<RemoteSubscription>s)
        else:
            self.trie.insert(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), s)
        return self.count_changed(s, n)

    cdef int count_changed(self, Subscription s, int n) except -1:
        """The number of subscribers of this subject has changed by n: tell the other servers and the account's border."""
        if self.reaches_system(s.subject):
            self.system_interest += 1 if n > 0 else -1
        if self.watchers:
            self.wake_watchers(s.subject)
        if self.border is not None:
            self.border.changed(s.subject, n > 0)
        if self.neighbours is not None:
            self.neighbours.changed(s.subject, s.queue, n, s.connection)
        return 0

    cdef int unsubscribe(self, Subscription s) except -1:
        cdef QueueGroup group
        cdef int n = 1
        if s.closed:
            return 0
        s.end()
        s.connection.subscriptions.pop(s.sid, None)
        s.connection.reckon(-subscription_cost(s.subject, s.queue, s.sid))
        if s.queue:
            key = s.subject + b" " + s.queue
            group = self.groups[key]
            if type(s) is not Subscription:
                n = (<RemoteSubscription>s).weight
                group.remove_remote(<RemoteSubscription>s)
            else:
                group.remove(s)
            if not group.members and group.remote is None:
                del self.groups[key]
                self.trie.discard(PyBytes_AS_STRING(s.subject), PyBytes_GET_SIZE(s.subject), group)
        else:
            self.trie.discard(PyBytes_AS_STRING(s.subject), PyBytes_GET_SIZE(s.subject), s)
        return self.count_changed(s, -n)

    cdef int forget(self, Connection c) except -1:
        """Remove all subscriptions; when the connection has closed and has many, some in each turn: it gets no message meanwhile."""
        cdef Forgetting rest
        cdef Subscription s
        cdef list left = list(c.subscriptions.values())
        if c.closed and len(left) > FORGOTTEN_AT_ONCE:
            rest = Forgetting.__new__(Forgetting)
            rest.router = self
            rest.left = left
            self.leaving.append(left)
            self.reactor.enlist_delivery(rest)
            return 0
        for s in left:
            self.unsubscribe(s)
        return 0

    def reaches_system(self, bytes subject) -> bool:
        """Whether a subscription could match a subject of a prefix sink (all of those start with ``$``)."""
        return subject[:1] == b"$" or subject[:2] in (b"*.", b">")

    def wake_watchers(self, bytes subject) -> None:
        """Interest has come or gone on a subject or pattern: wake the tasks that watch it."""
        cdef Task t
        wild = subject_has_wildcard(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        hits = self.watchers.get(subject, ()) if not wild else [
            t for watched, tasks in self.watchers.items()
            if subject_matches(PyBytes_AS_STRING(<bytes>watched), len(watched), PyBytes_AS_STRING(subject), len(subject))
            for t in tasks
        ]
        for t in list(hits):
            t.wake()

    # --- for Python callers --------------------------------------------------------------------------------------------
    def attach(self, str pattern, Sink sink) -> None:
        """The sink takes every message whose subject matches the pattern; raises ValueError for an invalid pattern."""
        p = pattern.encode("utf-8", "surrogateescape")
        if not subject_valid(PyBytes_AS_STRING(p), PyBytes_GET_SIZE(p)):
            raise ValueError(f"not a subject: {pattern!r}")
        self.trie.insert(PyBytes_AS_STRING(p), PyBytes_GET_SIZE(p), sink)
        self.sinks[p] = self.sinks.get(p, 0) + 1
        self.announce(p, 1)

    def detach(self, str pattern, Sink sink) -> bool:
        """Undo attach(); False when the sink was not attached there."""
        p = pattern.encode("utf-8", "surrogateescape")
        if not self.trie.discard(PyBytes_AS_STRING(p), PyBytes_GET_SIZE(p), sink):
            return False
        self.sinks[p] -= 1
        if not self.sinks[p]:
            del self.sinks[p]
        self.announce(p, -1)
        return True

    def announce(self, bytes pattern, int delta) -> None:
        """The subjects that prefix sinks take have grown or shrunk by this pattern; ``announcers`` list the present patterns."""
        if self.neighbours is not None:
            self.neighbours.changed(pattern, b"", delta, None)

    def share(self, str pattern, Sink sink) -> None:
        """As attach(), for a sink that stands for subscribers in another account."""
        self.attach(pattern, sink)
        sink.mark_elsewhere()
        self.shared += 1
        if self.reaches_system(pattern.encode("utf-8", "surrogateescape")):
            self.system_interest += 1

    def unshare(self, str pattern, Sink sink) -> None:
        """Undo share()."""
        if self.detach(pattern, sink):
            self.shared -= 1
            if self.reaches_system(pattern.encode("utf-8", "surrogateescape")):
                self.system_interest -= 1

    def attach_prefix(self, str prefix, Sink sink, bint offered=False) -> None:
        """The sink is asked first for subjects that start with the prefix, which starts with ``$``; `offered`: other servers may use it, too."""
        if not prefix.startswith("$"):
            raise ValueError(f"a prefix sink's subjects start with $: {prefix!r}")
        place = len(self.prefixes)
        for i, other in enumerate(self.prefixes):          # a longer prefix is asked before one that it begins with
            if prefix.encode().startswith(other) and prefix.encode() != other:
                place = min(place, i)
        self.prefixes.insert(place, prefix.encode())
        self.prefix_sinks.insert(place, sink)
        if offered:
            self.offered[prefix.encode() + b">"] = sink
            self.announce(prefix.encode() + b">", 1)

    def detach_prefix(self, Sink sink) -> None:
        """Undo attach_prefix() for all prefixes of this sink."""
        kept = [(p, s) for p, s in zip(self.prefixes, self.prefix_sinks, strict=True) if s is not sink]
        for pattern in [pattern for pattern, s in self.offered.items() if s is sink]:
            del self.offered[pattern]
            self.announce(pattern, -1)
        self.prefixes = [p for p, _ in kept]
        self.prefix_sinks = [s for _, s in kept]

    def watch(self, str subject, Task task) -> None:
        """Wake the task when a subscription that matches this literal subject comes or goes."""
        self.watchers.setdefault(subject.encode("utf-8", "surrogateescape"), []).append(task)

    def unwatch(self, str subject, Task task) -> None:
        """Undo watch()."""
        key = subject.encode("utf-8", "surrogateescape")
        tasks = self.watchers.get(key, [])
        if task in tasks:
            tasks.remove(task)
        if not tasks:
            self.watchers.pop(key, None)

    def has_interest(self, str subject, str queue = "") -> bool:
        """Whether there is a subscriber (in that queue group)."""
        s = subject.encode("utf-8", "surrogateescape")
        route = self.interest_in(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s), queue.encode("utf-8", "surrogateescape"))
        return self.readiness(route, None) > 0

    def has_listener(self, str subject) -> bool:
        """Whether a subscription has exactly this subject, here or on another server; wildcards and queue groups don't count."""
        s = subject.encode("utf-8", "surrogateescape")
        cdef Route route = self.trie.match(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))
        cdef Subscription found
        for item in route.held or ():
            if type(item) is Subscription or type(item) is RemoteSubscription:
                found = <Subscription>item
                if found.subject == s and not (found.closed or found.connection.closed or found.connection.closing):
                    return True
        return False

    def publish_message(self, str subject, bytes payload, str reply = "", bytes headers = b"") -> int:
        """Publish a message of the server to subscribers and sinks; the number of receivers that took it."""
        cdef Message m
        s = subject.encode("utf-8", "surrogateescape")
        r = reply.encode("utf-8", "surrogateescape")
        body = headers + payload
        m.subject = PyBytes_AS_STRING(s)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(s)
        m.reply = PyBytes_AS_STRING(r)
        m.reply_len = <uint32_t>PyBytes_GET_SIZE(r)
        m.body = PyBytes_AS_STRING(body)
        m.body_len = <uint32_t>PyBytes_GET_SIZE(body)
        m.hlen = <uint32_t>PyBytes_GET_SIZE(headers)
        return self.publish(None, &m)

    def matching(self, str subject) -> list:
        """The clients' subscriptions that match a literal subject, members of queue groups too."""
        s = subject.encode("utf-8", "surrogateescape")
        cdef Route route = self.trie.match(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))
        found = []
        for item in route.held or ():
            if type(item) is Subscription:
                found.append(item)
            elif type(item) is QueueGroup:
                found.extend((<QueueGroup>item).members)
        return found

    def subscription_count(self) -> int:
        """Number of subscriptions, queue groups and sinks that the trie holds."""
        return self.trie.count
