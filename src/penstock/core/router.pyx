"""Subjects to subscribers: one account's subscriptions, queue groups and internal sinks; delivery into output buffers.

The trie holds three kinds of objects: Subscription (a client's plain one), QueueGroup (the members of one queue name on one
subject) and Sink (something inside the server). A Route is the list of those for one literal subject.

Back-pressure: when a message goes to a subscriber whose connection is blocked with more than HIGH_WATER waiting, its
publisher is not read from until that has drained. A subscriber that made no progress for STUCK_NS holds up nobody: its output
grows to `max_pending`, and then it is cut off. Knows nothing of streams or of the API: those are Sinks that somebody attached.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy
from penstock.core.buffer cimport out_waiting, put_u64
from penstock.core.hub cimport Connection, Hub, Owner, Task, Trace
from penstock.core.subjects cimport Route, SubjectTrie, subject_has_wildcard, subject_matches, subject_valid

cdef enum:
    HIGH_WATER = 1048576               # output of a blocked subscriber above this stalls its publishers
    STUCK_NS = 100000000               # no bytes taken for so long: nobody waits for it any more
    SUBSCRIPTION_BYTES = 640           # memory of one with everything that points to it,
    TOKEN_BYTES = 192                  # and of a node of the trie
    LINE_ROOM = 96                     # a MSG line without subject, sid and reply: words, blanks, two numbers, line ends


cdef class Sink:
    """An internal receiver of messages (a stream, the API, an ack desk)."""

    cdef int take(self, Connection source, Message* m) except -1:
        return 0

    cdef int ready(self, Task waiter) except -1:
        return 2

    cdef Sink bound(self, const char* subject, size_t n, bytes queue):
        return self

    cdef int traced(self, Connection source, Message* m) except -1:
        cdef Hub hub = source.hub
        trace, hub.trace = hub.trace, None     # what it sends in its turn is not the message
        try:
            return 1 if trace.only else self.take(source, m)
        finally:
            hub.trace = trace


cdef class Border:
    """What an account shares with others (core/exchange)."""

    cdef int changed(self, bytes subject, bint came) except -1:
        return 0


cdef class CallbackSink(Sink):
    """A Sink in Python: callback(connection | None, subject, reply, headers, payload) -> taken. For rare messages."""

    cdef object callback

    def __init__(self, callback) -> None:
        self.callback = callback

    cdef int take(self, Connection source, Message* m) except -1:
        return 1 if self.callback(
            source,
            PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(m.reply, m.reply_len).decode("utf-8", "surrogateescape") if m.reply_len else "",
            PyBytes_FromStringAndSize(m.body, m.hlen),
            PyBytes_FromStringAndSize(m.body + m.hlen, m.body_len - m.hlen),
        ) else 0


cdef class Subscription:
    """One SUB of a client."""

    def __init__(self, Connection connection, bytes sid, bytes subject, bytes queue) -> None:
        self.connection = connection
        self.sid = sid
        self.subject = subject
        self.queue = queue

    @property
    def max(self) -> int:
        """Ends after that many deliveries; 0: never."""
        return self.max

    def client(self) -> Connection:
        """The connection it belongs to."""
        return self.connection


cdef int64_t subscription_cost(bytes subject, bytes queue, bytes sid) noexcept:
    cdef int64_t cost = SUBSCRIPTION_BYTES + TOKEN_BYTES
    cdef Py_ssize_t i
    for i in range(PyBytes_GET_SIZE(subject)):
        cost += TOKEN_BYTES if PyBytes_AS_STRING(subject)[i] == c'.' else 1
    return cost + 2 * PyBytes_GET_SIZE(queue) + PyBytes_GET_SIZE(sid)


cdef class QueueGroup:
    """The members of one queue name on one subject: each message goes to one of them."""

    def __init__(self, bytes key) -> None:
        self.key = key
        self.members = []


cdef class Router(Owner):
    """One account's subjects."""

    def __init__(self, Hub hub) -> None:
        self.hub = hub
        self.trie = SubjectTrie()
        self.groups = {}
        self.prefixes = []
        self.prefix_sinks = []
        self.watchers = {}

    # --- messages ------------------------------------------------------------------------------------------------------
    cdef int publish(self, Connection source, Message* m) except -1:
        cdef int took = 0, i
        cdef bytes prefix
        cdef size_t n
        cdef Route route
        if m.subject_len and m.subject[0] == c'$':
            for i in range(len(self.prefixes)):
                prefix = <bytes>self.prefixes[i]
                n = PyBytes_GET_SIZE(prefix)
                if m.subject_len > n and memcmp(m.subject, PyBytes_AS_STRING(prefix), n) == 0:
                    if source is not None and self.hub.trace is not None:
                        took = self.ask_traced(prefix, <Sink>self.prefix_sinks[i], source, m)
                    else:
                        took = (<Sink>self.prefix_sinks[i]).take(source, m)
                    if self.system_interest == 0:
                        return took
                    break
        route = self.trie.route(m.subject, m.subject_len)
        if route.n:
            took += self.fan_out(route, source, m)
        return took

    cdef int send(self, Message* m) except -1:
        cdef Route route = self.trie.match(m.subject, m.subject_len)
        return self.fan_out(route, None, m) if route.n else 0

    cdef int fan_out(self, Route route, Connection source, Message* m) except -1:
        cdef int i, took = 0
        cdef object item
        if source is not None and self.hub.trace is not None:
            return self.fan_out_traced(route, source, m)
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                took += self.deliver(<Subscription>item, source, m)
            elif type(item) is QueueGroup:
                took += self.deliver_group(<QueueGroup>item, source, m)
            else:
                took += (<Sink>item).take(source, m)
        return took

    cdef int fan_out_traced(self, Route route, Connection source, Message* m) except -1:
        """As fan_out, and hub.trace is told of each receiver; when only that is asked for, nobody gets anything."""
        cdef int i, took = 0
        cdef object item
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                took += self.deliver_traced(<Subscription>item, source, m)
            elif type(item) is QueueGroup:
                took += self.deliver_group_traced(<QueueGroup>item, source, m)
            else:
                took += (<Sink>item).traced(source, m)
        return took

    cdef int ask_traced(self, bytes prefix, Sink sink, Connection source, Message* m) except -1:
        """A subject that the server itself takes. The API is a service of the system account, in name."""
        if prefix.endswith(b".API."):
            subject = PyBytes_FromStringAndSize(m.subject, m.subject_len).decode("utf-8", "surrogateescape")
            self.hub.trace.events.append(("si", "$SYS", subject, subject))
        return sink.traced(source, m)

    cdef int deliver_group_traced(self, QueueGroup group, Connection source, Message* m) except -1:
        cdef list members = list(group.members)
        cdef Py_ssize_t n = len(members), start, i
        start = <Py_ssize_t>((self.hub.random() >> 33) % <uint64_t>n) if n > 1 else 0
        for i in range(n):
            if self.deliver_traced(<Subscription>members[(start + i) % n], source, m):
                return 1
        return 0

    cdef int deliver_traced(self, Subscription s, Connection source, Message* m) except -1:
        cdef Connection c = s.connection
        cdef Trace trace = self.hub.trace
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
        """One member takes it: starting at a random one, the first that is not congested; if all are, the first that is open."""
        cdef Py_ssize_t n = len(group.members), start, i
        cdef Subscription s
        if n == 0:
            return 0
        start = <Py_ssize_t>((self.hub.random() >> 33) % <uint64_t>n) if n > 1 else 0
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
        if c.blocked and self.hub.drop_for_slow and out_waiting(&c.out) > <size_t>(self.hub.max_pending // 4 * 3):
            return 0
        if c.guarded and not self.guard(s, m):
            return 0
        if hlen and not c.headers:             # it never said that it understands headers
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
        c.out_msgs += 1
        c.out_bytes += n
        self.hub.out_msgs += 1
        self.hub.out_bytes += n
        s.delivered += 1
        c.commit(p + 2 - start)
        if s.max and s.delivered >= s.max:
            self.unsubscribe(s)
        if source is not None and c.blocked and not source.stalled and out_waiting(&c.out) > HIGH_WATER:
            if source is not c and not self.hub.drop_for_slow and self.hub.now_ns - c.progress_ns < STUCK_NS:
                source.stalled = True
                source.stalls += 1
                self.hub.stalls += 1
                c.await_room(source)
        return 1

    cdef bint guard(self, Subscription s, Message* m) except -1:
        """Whether its permissions let this subscriber have the message; if so, leave to answer it is noted."""
        cdef Connection c = s.connection
        if c.filtered and not c.allowed.rules.may_deliver(m.subject, m.subject_len, s.queue):
            return False
        if m.reply_len:
            c.allowed.note_reply(m.reply, m.reply_len, self.hub.now_ns)
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
        """The route with what is shared bound to this subject; with a queue, only the members of that group."""
        cdef object item
        cdef bint all_of_them = PyBytes_GET_SIZE(queue) == 0
        cdef int i
        only = SubjectTrie()
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
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
        route = (<SubjectTrie>only).match(subject, n)
        route.generation = self.trie.generation
        return route

    cdef bint stale(self, Route route) noexcept:
        return route.generation != self.trie.generation

    cdef int readiness(self, Route route, Task waiter) except -1:
        cdef int i, n, best = 0
        cdef object item
        cdef Subscription s
        cdef Connection crowded = None
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                s = <Subscription>item
                if s.closed or s.connection.closed or s.connection.closing:
                    continue
                if not s.connection.congested():
                    return 2
                best = 1
                crowded = s.connection
            elif type(item) is QueueGroup:
                for s in (<QueueGroup>item).members:
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
        """A new subscription; the caller has checked the subject, and that the sid is free."""
        cdef Subscription s = Subscription(c, sid, subject, queue)
        cdef QueueGroup group
        c.subscriptions[sid] = s
        self.reckon(s, 1)
        if queue:
            key = subject + b" " + queue
            group = self.groups.get(key)
            if group is None:
                group = self.groups[key] = QueueGroup(key)
                self.trie.insert(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), group)
            s.place = len(group.members)
            group.members.append(s)
        else:
            self.trie.insert(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), s)
        if self.reaches_system(subject):
            self.system_interest += 1
        if self.watchers:
            self.wake_watchers(subject)
        if self.border is not None:
            self.border.changed(subject, True)
        return s

    cdef int reckon(self, Subscription s, int sign) except -1:
        """The memory of a subscription that has come (1) or gone (-1)."""
        cdef int64_t cost = sign * subscription_cost(s.subject, s.queue, s.sid)
        s.connection.subscription_bytes += cost
        self.hub.subscription_bytes += cost
        return 0

    cdef int unsubscribe(self, Subscription s) except -1:
        cdef QueueGroup group
        cdef Subscription last
        if s.closed:
            return 0
        s.closed = True
        s.connection.subscriptions.pop(s.sid, None)
        self.reckon(s, -1)
        if s.queue:
            key = s.subject + b" " + s.queue
            group = self.groups[key]
            last = <Subscription>group.members.pop()     # order means nothing in a group
            if last is not s:
                group.members[s.place] = last
                last.place = s.place
            if not group.members:
                del self.groups[key]
                self.trie.discard(PyBytes_AS_STRING(s.subject), PyBytes_GET_SIZE(s.subject), group)
        else:
            self.trie.discard(PyBytes_AS_STRING(s.subject), PyBytes_GET_SIZE(s.subject), s)
        if self.reaches_system(s.subject):
            self.system_interest -= 1
        if self.watchers:
            self.wake_watchers(s.subject)
        if self.border is not None:
            self.border.changed(s.subject, False)
        return 0

    cdef int forget(self, Connection c) except -1:
        cdef Subscription s
        for s in list(c.subscriptions.values()):
            self.unsubscribe(s)
        return 0

    def reaches_system(self, bytes subject) -> bool:
        """Whether a subscription could match a subject of a prefix sink (all of those start with ``$``)."""
        return subject[:1] == b"$" or subject[:2] in (b"*.", b">")

    def wake_watchers(self, bytes subject) -> None:
        """Interest has come or gone on a subject or pattern: tell who wants to know."""
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
        """The sink takes every message whose subject matches the pattern; ValueError when that is no subject."""
        p = pattern.encode("utf-8", "surrogateescape")
        if not subject_valid(PyBytes_AS_STRING(p), PyBytes_GET_SIZE(p)):
            raise ValueError(f"not a subject: {pattern!r}")
        self.trie.insert(PyBytes_AS_STRING(p), PyBytes_GET_SIZE(p), sink)

    def detach(self, str pattern, Sink sink) -> bool:
        """Undo attach(); False when it was not attached there."""
        p = pattern.encode("utf-8", "surrogateescape")
        return self.trie.discard(PyBytes_AS_STRING(p), PyBytes_GET_SIZE(p), sink)

    def share(self, str pattern, Sink sink) -> None:
        """As attach(), of what stands for subscribers elsewhere."""
        self.attach(pattern, sink)
        sink.elsewhere = True
        self.shared += 1
        if self.reaches_system(pattern.encode("utf-8", "surrogateescape")):
            self.system_interest += 1

    def unshare(self, str pattern, Sink sink) -> None:
        """Undo share()."""
        if self.detach(pattern, sink):
            self.shared -= 1
            if self.reaches_system(pattern.encode("utf-8", "surrogateescape")):
                self.system_interest -= 1

    def attach_prefix(self, str prefix, Sink sink) -> None:
        """The sink is asked first for every subject that starts with the prefix, which starts with ``$``."""
        if not prefix.startswith("$"):
            raise ValueError(f"a prefix sink's subjects start with $: {prefix!r}")
        self.prefixes.append(prefix.encode())
        self.prefix_sinks.append(sink)

    def detach_prefix(self, Sink sink) -> None:
        """Undo attach_prefix(), all of this sink's."""
        kept = [(p, s) for p, s in zip(self.prefixes, self.prefix_sinks, strict=True) if s is not sink]
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
        """Whether somebody is subscribed (in that queue group)."""
        s = subject.encode("utf-8", "surrogateescape")
        route = self.interest_in(PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s), queue.encode("utf-8", "surrogateescape"))
        return self.readiness(route, None) > 0

    def publish_message(self, str subject, bytes payload, str reply = "", bytes headers = b"") -> int:
        """A message from inside, to subscribers and sinks; how many took it."""
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
        """The Subscription objects of clients that match a literal subject, members of queue groups too."""
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
        """Patterns of subscribers, groups and sinks that are held."""
        return self.trie.count
