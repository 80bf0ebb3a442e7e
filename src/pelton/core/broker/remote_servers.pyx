"""The other servers that one account is connected to: which servers get a message, and which are told of interest.

A message goes to a server once, however many of its subscriptions match, with the names of the queue groups that the server is to serve.
A queue group is served here if it has a member here, else by one of the servers that have members, chosen by their number of members.

A message from a server goes to all others except those of its cluster; queue groups take part when the message names them.

A consumer's message is delivered to one subject and shows another. Between servers it travels under the first; the second follows the reply,
`$JS.ACK...@subject`, and is removed before the delivery to a client. Other replies travel as they are: flow control requests, for example, show
the subject to which they are delivered.

Knows nothing of the protocol between servers (core/broker/leaf), nor of how a server was found.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memset
from pelton.core.base.buffer cimport Out, out_free, out_put
from pelton.core.broker.reactor cimport Connection, ProtocolHandler
from pelton.core.broker.router cimport UNSERVED_MAX, Message, Neighbours, QueueGroup, RemoteSubscription, Router, Sink, Subscription
from pelton.core.broker.service_imports cimport is_ack
from pelton.core.protocol.subjects cimport Route

cdef enum:
    NAME_DOTS = 6              # an ack subject has no more names behind so many dots, only numbers; names may contain `@`


cdef class RemoteServer(ProtocolHandler):
    """The server at the other end of a connection."""

    def __init__(self, Connection connection) -> None:
        self.connection = connection
        self.cluster = b""

    cdef int pass_on(self, Connection source, Message* m, bytes queues) except -1:
        return 0

    cdef int interest(self, bytes subject, bytes queue, int delta, Connection source) except -1:
        return 0

    cdef bint may_send(self, const char* subject, size_t n) noexcept:
        return True


cdef inline RemoteServer server_of(Connection c):
    return <RemoteServer>c.handler if c is not None and isinstance(c.handler, RemoteServer) else None


cdef inline bint of_one_cluster(RemoteServer a, RemoteServer b):
    return a is not None and PyBytes_GET_SIZE(a.cluster) > 0 and a.cluster == b.cluster


cdef const char* shown_at(Message* m) noexcept:
    """The `@` behind the reply that is an ack subject; the subject to show follows. NULL: there is none."""
    cdef const char* p = m.reply
    cdef const char* end = p + m.reply_len
    cdef int dots = 0
    if not is_ack(m.reply, m.reply_len):
        return NULL
    while p < end:
        if p[0] == c'.':
            dots += 1
        elif p[0] == c'@' and dots >= NAME_DOTS:
            return p if p + 1 < end else NULL
        p += 1
    return NULL


cdef bint is_named(const char* names, uint32_t n, bytes name) noexcept:
    # Whether one of the words is the name.
    cdef const char* p = names
    cdef const char* end = names + n
    cdef const char* stop
    cdef Py_ssize_t size = PyBytes_GET_SIZE(name)
    while p < end:
        while p < end and (p[0] == c' ' or p[0] == c'\t'):
            p += 1
        stop = p
        while stop < end and stop[0] != c' ' and stop[0] != c'\t':
            stop += 1
        if stop - p == size and memcmp(p, PyBytes_AS_STRING(name), size) == 0:
            return True
        p = stop
    return False


cdef int add_present(list present, list subscriptions) except -1:
    """Add the subscriptions of one connection; a weight may change later."""
    cdef Subscription s
    if subscriptions and type(subscriptions[0]) is Subscription:
        present.extend(subscriptions)
        return 0
    for s in subscriptions:
        present.append((s, (<RemoteSubscription>s).weight))
    return 0


cdef class RemoteServers(Neighbours):
    """The neighbours of one account's router."""

    def __cinit__(self):
        memset(&self.scratch, 0, sizeof(Out))

    def __init__(self, Router router) -> None:
        self.router = router
        self.members = []
        self.loop_subject = b""
        self.at_once = 1000

    def __dealloc__(self):
        out_free(&self.scratch)

    # --- messages ------------------------------------------------------------------------------------------------------
    cdef RemoteSubscription choose(self, QueueGroup group, Connection source, Message* m):
        """A server's member of the group that may have the message, by weight; None: there is none."""
        cdef RemoteSubscription s, found = None
        cdef RemoteServer origin = server_of(source), server
        cdef uint64_t total = 0
        for s in group.remote or ():
            server = <RemoteServer>s.connection.handler
            if (s.connection is source or s.connection.closed or s.connection.closing or of_one_cluster(origin, server)
                    or not server.may_send(m.subject, m.subject_len)):
                continue
            total += s.weight
            # replace the choice with the probability of the new weight: each server gets its share
            if (self.router.reactor.random() >> 33) % total < s.weight:
                found = s
        return found

    cdef int send(self, Route route, Connection source, Message* m, PyObject** unserved, int n) except -1:
        cdef int i, took = 0
        cdef uint64_t mark
        cdef RemoteServer server, first = None
        cdef RemoteSubscription s
        cdef list others = None
        cdef dict names = None
        cdef bytes queues
        self.marks += 1
        mark = self.marks
        # Find all servers before sending: sending may close a connection, and its clean-up may call this method again.
        for i in range(route.n if route is not None else 0):
            item = <object>route.items[i]
            if type(item) is RemoteSubscription and (<RemoteSubscription>item).connection is not source:
                server = <RemoteServer>(<RemoteSubscription>item).connection.handler
                if server.mark != mark:
                    server.mark = mark
                    if first is None:
                        first = server
                    elif others is None:
                        others = [server]
                    else:
                        others.append(server)
        if n:
            names = {}
            for i in range(n):
                s = self.choose(<QueueGroup>unserved[i], source, m)
                if s is not None:
                    server = <RemoteServer>s.connection.handler
                    names[server] = names.get(server, b"") + s.queue + b" "
                    if server.mark != mark:
                        server.mark = mark
                        others = [] if others is None else others
                        others.append(server)
        if first is not None:
            took = first.pass_on(source, m, names.get(first, b"") if names is not None else b"")
        if others is not None:
            for server in others:
                took += server.pass_on(source, m, names.get(server, b"") if names is not None else b"")
        return took

    cdef int hand(self, Route route, Message* m, bytes target, PyObject** unserved, int n) except -1:
        cdef Message shown = m[0]
        self.scratch.off = self.scratch.len = 0
        if is_ack(m.reply, m.reply_len):
            out_put(&self.scratch, m.reply, m.reply_len)
            out_put(&self.scratch, b"@", 1)
            out_put(&self.scratch, m.subject, m.subject_len)
            shown.reply = self.scratch.data
            shown.reply_len = <uint32_t>self.scratch.len
        shown.subject = PyBytes_AS_STRING(target)
        shown.subject_len = <uint32_t>PyBytes_GET_SIZE(target)
        return self.send(route, None, &shown, unserved, n)

    cdef int arrive(self, RemoteServer server, Message* m, const char* queues, uint32_t queues_len) except -1:
        cdef Router router = self.router
        cdef Connection source = server.connection
        cdef Message plain = m[0], shown
        cdef int i, took = 0, n = 0
        cdef PyObject* unserved[UNSERVED_MAX]
        cdef bint remote = False
        cdef const char* at = shown_at(m)
        cdef Route route
        cdef object item
        shown = plain
        if at != NULL:
            plain.reply_len = shown.reply_len = <uint32_t>(at - m.reply)
            shown.subject = at + 1
            shown.subject_len = <uint32_t>(m.reply + m.reply_len - at - 1)
        if m.subject[0] == c'$' and router.first_asked(source, &plain, &took):
            return took
        route = router.trie.route(m.subject, m.subject_len)
        for i in range(route.n):
            item = <object>route.items[i]
            if type(item) is Subscription:
                took += router.deliver(<Subscription>item, source, &shown)
            elif type(item) is QueueGroup:
                if queues_len == 0 or not is_named(queues, queues_len, (<QueueGroup>item).queue):
                    continue
                if router.deliver_group(<QueueGroup>item, source, &shown):
                    took += 1
                elif (<QueueGroup>item).remote is not None and n < UNSERVED_MAX:
                    unserved[n] = route.items[i]
                    n += 1
            elif type(item) is RemoteSubscription:
                remote = remote or (<RemoteSubscription>item).connection is not source
            elif at != NULL and (<Sink>item).elsewhere:
                bound = (<Sink>item).bound(m.subject, m.subject_len, b"")
                if bound is not None:
                    took += (<Sink>bound).take(source, &plain if bound is item else &shown)
            else:
                took += (<Sink>item).take(source, &shown if (<Sink>item).as_client else &plain)
        if remote or n:
            took += self.send(route if remote else None, source, m, unserved, n)
        return took

    # --- interest ------------------------------------------------------------------------------------------------------
    cdef int changed(self, bytes subject, bytes queue, int delta, Connection source) except -1:
        cdef RemoteServer server
        for server in self.members:
            if server.connection is not source:
                server.interest(subject, queue, delta, source)
        return 0

    cdef int subscribe(self, RemoteServer server, bytes sid, bytes subject, bytes queue, uint32_t weight) except -1:
        """The server is interested in a subject, or its weight in a queue group has changed."""
        cdef Connection c = server.connection
        cdef RemoteSubscription s = c.subscriptions.get(sid)
        cdef int delta
        if s is None:
            s = RemoteSubscription(c, sid, subject, queue)
            s.set_weight(weight)
            c.keep(sid, s)
            self.router.enlist(s)
        elif s.weight != weight:
            delta = <int>weight - <int>s.weight
            s.set_weight(weight)
            self.changed(subject, queue, delta, c)
        return 0

    cdef list join(self, RemoteServer server):
        cdef Connection c
        cdef Subscription s
        cdef list present = []
        self.router.set_neighbours(self)
        server.remote_servers = self
        self.members.append(server)
        if self.loop_subject:
            present.append((self.loop_subject, 1))
        for pattern, n in self.router.sinks.items():
            present.append((pattern, n))
        for announcer in self.router.announcers:
            for pattern in announcer():
                present.append((pattern, 1))
        for left in self.router.leaving:
            add_present(present, left)
        for c in self.router.reactor.connections.values():
            if c.router is self.router and c is not server.connection:
                add_present(present, list(c.subscriptions.values()))
        return present

    def leave(self, RemoteServer server) -> None:
        """The server is gone."""
        if server in self.members:
            self.members.remove(server)
        if not self.members:
            self.router.set_neighbours(None)
