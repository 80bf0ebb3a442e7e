"""The state that all connections and streams of a server share: time, work lists of the turn, limits, counters; and the connection.

A turn has four phases, each with a work list: *commits* (streams write the accepted messages, and release the acks of durable ones),
*deliveries* (consumers deliver messages), *output* (each connection with new output is flushed once) and *last* (queued requests). Slow work
has a budget in each turn: a connection that used it up pauses until the next one.

A Reactor without sockets is a whole server for tests and simulations: the test feeds and drains the connections, syncs happen in place, or
the test ends them (`on_sync`). core/broker/event_loop adds the epoll set, sends, and the sync threads. Knows nothing of subjects, streams
or the API.

Memory of a connection: an idle one holds no buffers. Output buffers come from a small pool and go back when drained;
input is parsed in a buffer that all connections share, and a connection keeps only an incomplete operation.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport Out, out_free, out_reserve, out_waiting
from pelton.core.base.clock cimport Clock
from pelton.core.broker.turn_budget cimport TurnBudget
from pelton.core.protocol.wire cimport ROLE_SERVER, reader_free, reader_init, reader_room

cdef extern from "<unistd.h>" nogil:
    int fdatasync(int)

cdef enum:
    LOW_WATER = 262144             # a blocked connection with less waiting output takes deliveries again
    SPARE_MAX = 64                 # output buffers kept without an owner
    SPARE_BYTES = 262144           # larger ones are freed
    FIRST_OUT = 4096               # a new output buffer
    FLUSH_NOW = 131072             # output above this is flushed before the end of the turn

DEF_MAX_PENDING = 64 * 1024 * 1024     # nats-server's default: max_pending
DEF_MAX_PAYLOAD = 1024 * 1024          # nats-server's default: max_payload
DEF_MAX_LINE = 4096                    # nats-server's default: max_control_line

SLOW_PENDING = "Slow Consumer (Pending Bytes)"


cdef class Task:
    """Work for the end of the turn (a stream to commit, a consumer to deliver)."""

    cdef int run(self) except -1:
        return 0

    cdef int wake(self) except -1:
        return 0


cdef class CallbackTask(Task):
    """A Task in Python for ``Router.watch``: callback() is called when interest comes or goes."""

    cdef object callback

    def __init__(self, callback) -> None:
        self.callback = callback

    cdef int wake(self) except -1:
        self.callback()
        return 0


cdef class Synced(Task):
    """A task whose data needs an fsync; synced() is called when the fsync has ended."""

    cdef int synced(self, uint64_t upto, int error) except -1:
        return 0


cdef class HandedSync:
    """A requested fsync that runs until `end` is called."""

    def end(self, error: int = 0) -> None:
        """End the fsync with an errno (0: success). Raises RuntimeError when it had ended already."""
        if self.ended:
            raise RuntimeError("this sync has ended already")
        self.ended = True
        try:
            self.owner.synced(self.upto, error)
        except Exception as failure:
            self.reactor.report(failure)


cdef class ProtocolHandler:
    """Executes a client's operations (core/broker/session): the reactor hands it the bytes of a connection."""

    cdef int operate(self, Connection c, Reader* r) except -1:
        return 0


cdef class Owner:
    """Holds the subscriptions of a connection (core/broker/router)."""

    cdef int forget(self, Connection c) except -1:
        return 0


cdef class Trace:
    """A traced message and its events, in order."""

    def __init__(self, only: bool = False) -> None:
        self.only = only
        self.events = []


cdef class Connection(Task):
    """One client: its input and output buffers, the options of its CONNECT, its counters.

    Made by ``Sessions.accept`` and ``EventLoop.adopt``. The flags start with the protocol's defaults before CONNECT.
    """

    def __cinit__(self):
        memset(&self.out, 0, sizeof(Out))
        reader_init(&self.reader, ROLE_SERVER)
        self.fd = -1

    def __init__(self, Reactor reactor, object transport=None):
        self.reactor = reactor
        self.transport = transport
        reactor.next_id += 1
        self.id = reactor.next_id
        self.subscriptions = {}
        self.verbose = self.pedantic = self.echo = True
        self.max_subscriptions = -1
        self.reason = ""
        self.reader.max_line = reactor.max_line
        self.reader.max_payload = reactor.max_payload
        self.start_ns = self.last_ns = self.progress_ns = reactor.now_ns
        reactor.connections[self.id] = self

    def __dealloc__(self):
        out_free(&self.out)
        reader_free(&self.reader)

    cdef char* reserve(self, size_t n) except NULL:
        if self.out.data == NULL:
            self.reactor.lend(&self.out)
        return out_reserve(&self.out, n)

    cdef int commit(self, size_t n) except -1:
        cdef size_t waiting
        self.out.len += n
        if self.reactor.trace_log is not None:
            self.reactor.trace_log.sent(self, PyBytes_FromStringAndSize(self.out.data + self.out.len - n, n))
        if not self.dirty:
            self.dirty = True
            self.reactor.dirty.append(self)
        waiting = out_waiting(&self.out)
        if waiting > FLUSH_NOW:
            if not self.blocked:
                self.reactor.flush(self)
                waiting = out_waiting(&self.out)
            if waiting > <size_t>self.reactor.max_pending and not self.closed:
                self.reactor.slow_consumers += 1
                self.reactor.hang_up(self, SLOW_PENDING)
        return 0

    cdef int put(self, const char* p, size_t n) except -1:
        if self.closed:
            return 0
        memcpy(self.reserve(n), p, n)
        return self.commit(n)

    cdef bint congested(self) noexcept:
        return self.blocked and out_waiting(&self.out) > LOW_WATER

    cdef int await_room(self, Task t) except -1:
        if self.waiters is None:
            self.waiters = [t]
        elif t not in self.waiters:
            self.waiters.append(t)
        return 0

    cdef int drained(self) except -1:
        cdef Task t
        if self.waiters is None or (not self.closed and out_waiting(&self.out) > LOW_WATER):
            return 0
        waiters, self.waiters = self.waiters, None
        for t in waiters:
            t.wake()
        return 0

    cdef int finish(self, str reason) except -1:
        if self.closed or self.closing:
            return 0
        self.closing = True
        self.reason = reason
        if self.fd < 0 and self.transport is None:
            return 0                   # without a socket: take() closes the connection once the output is taken
        self.reactor.flush(self)
        if not self.closed and not self.blocked and out_waiting(&self.out) == 0:
            self.reactor.hang_up(self, reason)
        return 0

    cdef int wake(self) except -1:
        if self.stalled and not self.closed and not self.awaiting and self.held == 0:
            self.stalled = False
            self.reactor.resumed.append(self)
        return 0

    cdef void use_socket(self, int fd) noexcept:
        self.fd = fd

    cdef int refuse(self) except -1:
        self.reactor.connections.pop(self.id, None)
        self.fd = -1
        self.closed = True
        return 0

    cdef void mark_blocked(self, bint blocked) noexcept:
        self.blocked = blocked

    cdef void progressed(self) noexcept:
        self.progress_ns = self.reactor.now_ns

    cdef int release_input(self) except -1:
        cdef uint32_t line = self.reader.max_line
        cdef int64_t payload = self.reader.max_payload
        cdef int role = self.reader.role
        reader_free(&self.reader)
        reader_init(&self.reader, role)
        self.reader.max_line = line
        self.reader.max_payload = payload
        return 0

    cdef int free_publishers(self) except -1:
        waiters, self.waiters = self.waiters, None
        for t in waiters or ():
            if isinstance(t, Connection):
                (<Connection>t).wake()
            else:
                self.await_room(t)
        return 0

    cdef int serve_with(self, ProtocolHandler handler, int role, uint32_t max_line) except -1:
        self.handler = handler
        self.reader.role = role
        self.reader.headers = True
        self.reader.max_line = max_line
        self.ready = False
        self.verbose = self.pedantic = self.echo = False
        self.headers = True
        return 0

    cdef int enter(self, Owner router, bint ready) except -1:
        self.router = router
        self.ready = ready
        return 0

    cdef int change_router(self, Owner router) except -1:
        self.router.forget(self)
        self.router = router
        return 0

    cdef void limit_subscriptions(self, int64_t most) noexcept:
        self.max_subscriptions = most

    cdef void await_decision(self) noexcept:
        self.awaiting = self.stalled = not (self.closed or self.closing)

    cdef void decided(self) noexcept:
        self.awaiting = False

    cdef void accepted(self) noexcept:
        self.connected = True

    cdef void stall(self) noexcept:
        self.stalled = True

    cdef void hold(self) noexcept:
        self.held += 1
        self.stalled = not self.closed

    cdef int release(self) except -1:
        self.held -= 1
        return self.wake()

    cdef int pause(self) except -1:
        self.stalled = True
        self.reactor.paused.append(self)
        return 0

    cdef void time_connect(self) noexcept:
        if not self.rtt_ns and self.reactor.now_ns > self.start_ns:
            self.rtt_ns = self.reactor.now_ns - self.start_ns

    cdef bint first_ping(self) noexcept:
        if not self.connected or self.ponged:
            return False
        self.ponged = True
        return True

    cdef void note_pong(self) noexcept:
        self.pings_out = 0
        if self.ping_ns:
            self.rtt_ns = max(self.reactor.now_ns - self.ping_ns, 1)
            self.ping_ns = 0

    cdef void note_partial(self, bint whole) noexcept:
        if whole or self.partial_ns == 0:
            self.partial_ns = self.last_ns

    cdef void no_partial(self) noexcept:
        self.partial_ns = 0

    cdef int keep(self, bytes sid, object subscription) except -1:
        self.subscriptions[sid] = subscription
        return 0

    cdef void reckon(self, int64_t cost) noexcept:
        self.subscription_bytes += cost
        self.reactor.subscription_bytes += cost

    cdef int set_permissions(self, ConnectionPermissions value) except -1:
        self.allowed = value
        if value is None:
            self.filtered = self.guarded = False
        else:
            self.check_deliveries(len(self.subscriptions) > 0)
        return 0

    cdef void check_deliveries(self, bint filtered) noexcept:
        self.filtered = filtered
        self.guarded = filtered or (self.allowed is not None and self.allowed.responses_max != 0)

    @property
    def permissions(self) -> ConnectionPermissions | None:
        """The permissions; None: everything is allowed. A new value holds from now on; Sessions.recheck checks the existing subscriptions."""
        return self.allowed

    @permissions.setter
    def permissions(self, ConnectionPermissions value) -> None:
        self.set_permissions(value)

    def pending_bytes(self) -> int:
        """Output bytes that wait for this client."""
        return out_waiting(&self.out)

    def buffered(self) -> int:
        """Bytes of memory that its buffers hold now."""
        return self.out.cap + self.reader.cap

    def subscription_count(self) -> int:
        """Subscriptions it holds."""
        return len(self.subscriptions)

    def all_subscriptions(self) -> list:
        """Its Subscription objects, in the order of subscribing."""
        return list(self.subscriptions.values())

    def write(self, bytes data) -> None:
        """Append protocol bytes to this client's output."""
        self.put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    def take(self) -> bytes:
        """For adapters and tests: remove the waiting output from the buffer and return it."""
        data = PyBytes_FromStringAndSize(self.out.data + self.out.off, out_waiting(&self.out)) if self.out.data != NULL else b""
        self.reactor.returned(&self.out)
        self.progress_ns = self.reactor.now_ns
        if self.closing and not self.closed:
            self.reactor.hang_up(self, self.reason)
        else:
            self.drained()
        return data

    def fail(self, bytes text, str reason) -> None:
        """Write ``-ERR 'text'``, flush, and close for that reason."""
        if not self.closing and not self.closed:
            self.write(b"-ERR '" + text + b"'\r\n")
            self.finish(reason)

    def limit(self, max_line: int, max_payload: int) -> None:
        """Limits of this connection alone (a user's or an account's)."""
        self.reader.max_line = max_line
        self.reader.max_payload = max_payload

    def set_blocked(self, bint blocked) -> None:
        """For adapters: the transport takes no more bytes (True), or takes bytes again (False)."""
        self.blocked = blocked
        if not blocked:
            self.progress_ns = self.reactor.now_ns
            self.reactor.flush(self)
            self.drained()
            if self.closing and not self.closed:
                self.reactor.hang_up(self, self.reason)


cdef class Reactor:
    """The shared state of a server without sockets: tests and simulations use it as it is."""

    def __init__(self, Clock clock, seed: int = 1) -> None:
        self.clock = clock
        self.now_ns = clock.now_ns()
        self.random_state = (seed & 0xFFFFFFFFFFFFFFFF) or 1
        self.max_pending = DEF_MAX_PENDING
        self.max_payload = DEF_MAX_PAYLOAD
        self.max_line = DEF_MAX_LINE
        self.dirty = []
        self.resumed = []
        self.commits = []
        self.deliveries = []
        self.last = []
        self.paused = []
        self.budget = TurnBudget()
        self.graveyard = []
        self.connections = {}

    def __dealloc__(self):
        while self.spares:
            self.spares -= 1
            out_free(&self.spare[self.spares])

    cdef int lend(self, Out* out) except -1:
        if self.spares:
            self.spares -= 1
            out[0] = self.spare[self.spares]
        else:
            out_reserve(out, FIRST_OUT)
        return 0

    cdef int returned(self, Out* out) except -1:
        if out.data == NULL:
            return 0
        if self.spares < SPARE_MAX and out.cap <= SPARE_BYTES:
            out.off = out.len = 0
            self.spare[self.spares] = out[0]
            self.spares += 1
            memset(out, 0, sizeof(Out))
        else:
            out_free(out)
        return 0

    cdef uint64_t random(self) noexcept:
        cdef uint64_t x = self.random_state
        x ^= x >> 12
        x ^= x << 25
        x ^= x >> 27
        self.random_state = x
        return x * 2685821657736338717u

    cdef int enlist_commit(self, Task t) except -1:
        if not t.queued:
            t.queued = True
            self.commits.append(t)
        return 0

    cdef int enlist_delivery(self, Task t) except -1:
        if not t.queued:
            t.queued = True
            self.deliveries.append(t)
        return 0

    cdef int enlist_last(self, Task t) except -1:
        if not t.queued:
            t.queued = True
            self.last.append(t)
        return 0

    cdef int flush(self, Connection c) except -1:
        cdef size_t n = out_waiting(&c.out)
        if c.closed or c.blocked or n == 0 or c.transport is None:
            return 0
        data = PyBytes_FromStringAndSize(c.out.data + c.out.off, n)
        self.returned(&c.out)
        c.progress_ns = self.now_ns
        c.transport.write(data)
        if c.closing and not c.blocked:
            self.hang_up(c, c.reason)
        return 0

    cdef int hang_up(self, Connection c, str reason) except -1:
        if c.closed:
            return 0
        c.closed = True
        c.reason = reason
        self.connections.pop(c.id, None)
        self.graveyard.append(c)
        if self.on_close is not None:
            self.on_close(c)               # called while the connection still has its subscriptions and its output
        if c.router is not None:
            c.router.forget(c)
        c.out.off = c.out.len = 0          # the buffers live as long as the object: a caller may be writing into them now
        c.stalled = False
        c.drained()
        if c.transport is not None:
            c.transport.close()
        return 0

    cdef int submit_sync(self, Synced owner, int handle, uint64_t upto) except -1:
        cdef int error = 0
        cdef HandedSync sync
        self.sync_runs += 1
        if self.on_sync is not None:
            sync = HandedSync.__new__(HandedSync)
            sync.reactor = self
            sync.owner = owner
            sync.handle = handle
            sync.upto = upto
            self.on_sync(sync)
            return 0
        if fdatasync(handle) != 0:
            error = errno
        return owner.synced(upto, error)

    cdef void set_trace(self, Trace trace) noexcept:
        self.trace = trace

    cdef void use_handler(self, ProtocolHandler handler) noexcept:
        self.handler = handler

    cdef void count_freed(self, uint64_t n) noexcept:
        self.freed += n

    cdef int report(self, object error) except -1:
        """Report the exception of a task; the server goes on."""
        if self.on_error is not None:
            self.on_error(error)
        else:
            import sys
            import traceback
            traceback.print_exception(error, file=sys.stderr)
        return 0

    cdef int resume(self) except -1:
        """Process the input of connections that were stalled."""
        cdef Connection c
        if not self.resumed:
            return 0
        resumed, self.resumed = self.resumed, []
        for c in resumed:
            if not c.closed and not c.stalled:
                self.serve(c, &c.reader)
        return 0

    cdef int serve(self, Connection c, Reader* r) except -1:
        try:
            if c.handler is None:
                self.handler.operate(c, r)
            else:
                c.handler.operate(c, r)
        except Exception as error:
            self.report(error)
            self.hang_up(c, "Internal Error")
        return 0

    cdef bint finish_turn(self) except -1:
        cdef Task t
        cdef Connection c
        self.turns += 1
        if self.resumed:
            self.resume()
        if self.commits:
            work, self.commits = self.commits, []
            self.commit_runs += <uint64_t>len(work)
            for t in work:
                t.queued = False
                try:
                    if t.run():
                        self.enlist_commit(t)
                except Exception as error:
                    self.report(error)
        if self.deliveries:
            work, self.deliveries = self.deliveries, []
            for t in work:
                t.queued = False
                try:
                    if t.run():
                        self.enlist_delivery(t)
                except Exception as error:
                    self.report(error)
        if self.dirty:
            work, self.dirty = self.dirty, []
            for c in work:
                c.dirty = False
                self.flush(c)
        if self.last:
            work, self.last = self.last, []
            for t in work:
                t.queued = False
                try:
                    if t.run():
                        self.enlist_last(t)
                except Exception as error:
                    self.report(error)
        if self.paused:
            work, self.paused = self.paused, []
            for c in work:
                c.wake()
        if self.budget.slow:
            self.budget.next_turn()
        if self.graveyard:
            self.graveyard.clear()
        return (
            len(self.deliveries) > 0 or len(self.commits) > 0 or len(self.resumed) > 0 or len(self.dirty) > 0 or len(self.last) > 0
        )

    def all_connections(self) -> list:
        """Every open connection, oldest first."""
        return list(self.connections.values())

    def turn(self) -> bool:
        """Take the clock's time and finish a turn: commits, deliveries, output. True when there is more to do at once."""
        self.now_ns = self.clock.now_ns()
        return self.finish_turn()

    def settle(self, limit: int = 1000) -> int:
        """Run turns until nothing is left to do; return how many. Raises RuntimeError when the limit is reached: a task asks for turns without end."""
        for count in range(1, limit + 1):
            if not self.turn():
                return count
        raise RuntimeError(f"still busy after {limit} turns")

    def rewind(self, uint64_t now_ns) -> None:
        """Move the clock back, which must not be the machine's: afterwards no time of a connection lies in the future."""
        cdef Connection c
        self.clock.rewind(now_ns)
        self.now_ns = now_ns
        for c in self.connections.values():
            c.start_ns = min(c.start_ns, now_ns)
            c.last_ns = min(c.last_ns, now_ns)
            c.progress_ns = min(c.progress_ns, now_ns)
            c.partial_ns = min(c.partial_ns, now_ns)
            c.ping_ns = min(c.ping_ns, now_ns)

    def disconnect(self, Connection connection, str reason) -> None:
        """Close a connection now, for that reason."""
        self.hang_up(connection, reason)
