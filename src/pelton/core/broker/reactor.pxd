"""The state that all connections and streams of a server share: time, work lists of the turn, limits, counters; and the connection.

A Reactor without sockets is a whole server for tests and simulations: the test feeds and drains the connections, syncs happen in
place. core/broker/event_loop adds the epoll set, sends, and the sync threads. Knows nothing of subjects, streams or the API.
"""
cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from pelton.core.base.buffer cimport Out
from pelton.core.base.clock cimport Clock
from pelton.core.broker.turn_budget cimport TurnBudget
from pelton.core.protocol.permissions cimport ConnectionPermissions
from pelton.core.protocol.wire cimport Reader


cdef class Task:
    """Work for the end of the turn (a stream to commit, a consumer to deliver)."""
    cdef bint queued                       # on a work list of the reactor
    cdef int run(self) except -1           # 1: run again in the next turn
    cdef int wake(self) except -1          # called when room or interest has come that the task waits for; usually puts the task on a work list


cdef class Synced(Task):
    """A task whose data needs an fsync; synced() is called when the fsync has ended."""
    cdef int synced(self, uint64_t upto, int error) except -1


cdef class HandedSync:
    """An fsync that a test ends by hand (Reactor.on_sync)."""
    cdef Reactor reactor
    cdef Synced owner
    cdef uint64_t upto
    cdef readonly int handle
    cdef readonly bint ended


cdef class ProtocolHandler:
    """Executes a client's operations (core/broker/session): the reactor hands it the bytes of a connection."""
    # Execute the complete operations in r (the connection's own reader, or a shared one); stop when c is stalled or closed.
    cdef int operate(self, Connection c, Reader* r) except -1


cdef class Owner:
    """Holds the subscriptions of a connection (core/broker/router)."""
    cdef int forget(self, Connection c) except -1       # the connection is closed: drop its subscriptions


cdef class Trace:
    """A traced message and its events, in order. Set as Reactor.trace while the message is published."""
    cdef public bint only                  # record what would happen; deliver and store nothing
    cdef public list events                # tuples; the first item names the kind of event (reactor.pyi)


cdef class Connection(Task):
    """One client: its input and output buffers, the options of its CONNECT, its counters.

    As a Task it resumes its own input: wake() makes the reactor read from a stalled connection again.
    """
    cdef Reactor reactor
    cdef readonly uint64_t id
    cdef int fd                            # -1: fed and drained by an adapter (TLS, WebSocket, tests)
    cdef Reader reader
    cdef Out out
    cdef public object transport           # adapter: an object with write(bytes) and close(); None for sockets and tests
    cdef public object session             # state that the control plane keeps with the connection; never touched per message
    cdef Owner router                      # the account's Router (core/broker/router), set when accepted
    cdef ProtocolHandler handler                 # executes its operations; None: the reactor's. A connection to another server has its own (core/broker/leaf)
    cdef dict subscriptions                # sid: bytes -> Subscription
    cdef public int64_t max_subscriptions  # of this connection; below 0: no limit
    cdef readonly int64_t subscription_bytes  # memory that its subscriptions may take (counted in core/broker/router)
    cdef readonly uint64_t partial_ns      # since when an operation is incomplete; 0: none is
    cdef ConnectionPermissions allowed     # None: everything is allowed; set it through `permissions`
    cdef bint guarded                      # each delivery is checked: `filtered` is set, or a delivery permits a response
    cdef bint filtered                     # a subscription overlaps a denied subject
    cdef bint connected                    # it has sent a CONNECT that was accepted
    cdef readonly bint ponged              # ... and a PING after that was answered
    cdef bint awaiting                     # the authenticator has not decided about its CONNECT: nothing is read until Sessions.admit
    # from CONNECT (before it: the defaults of the protocol)
    cdef public bint verbose, pedantic, echo, headers, no_responders
    cdef public bint ready                 # may publish and subscribe: no authentication is required, or it has succeeded
    cdef bint dirty                        # on the reactor's list of connections with output
    cdef bint blocked                      # the kernel takes no more output now
    cdef int held                          # requests of it that wait for their turns: nothing is read meanwhile (core/broker/request_queue)
    cdef readonly bint stalled             # not read from: a subscriber of its messages is congested, or `awaiting` or `held` is set, or it paused
    cdef readonly bint closed
    cdef readonly bint closing             # output is flushed, then it is closed
    cdef readonly str reason               # why it was closed
    cdef list waiters                      # Tasks to wake when output has drained; None when there are none
    cdef readonly uint64_t in_msgs, out_msgs, in_bytes, out_bytes
    cdef public uint64_t start_ns, last_ns # connected; last activity
    cdef uint64_t progress_ns              # the kernel last took bytes
    cdef public int pings_out              # PINGs not answered yet
    cdef public uint64_t ping_ns           # when the last PING went out that is not answered yet; 0: none
    cdef public uint64_t rtt_ns            # how long the last answer to a PING took; 0: not known
    cdef readonly uint64_t stalls          # how often the server stopped reading from it because a subscriber was congested
    cdef char* reserve(self, size_t n) except NULL  # room in out; then commit(n)
    cdef int commit(self, size_t n) except -1  # count n bytes written at reserve()'s address as output; closes a slow consumer
    cdef int put(self, const char* p, size_t n) except -1
    cdef bint congested(self) noexcept     # blocked, with more than LOW_WATER waiting: messages that can wait are not sent to it
    cdef int await_room(self, Task t) except -1  # t is woken when the output has drained, or the connection has closed
    cdef int drained(self) except -1       # the output fell to LOW_WATER or less: wakes the waiters
    cdef int finish(self, str reason) except -1  # flush the waiting output, then close
    # --- its socket and its output
    cdef void use_socket(self, int fd) noexcept            # -1: it has none any more
    cdef int refuse(self) except -1                        # its socket cannot be watched: it is closed and was never open
    cdef void mark_blocked(self, bint blocked) noexcept
    cdef void progressed(self) noexcept                    # output has left just now, or begins to wait: the write deadline starts here
    cdef int release_input(self) except -1                 # free the input buffer, which is empty; its limits stay
    cdef int free_publishers(self) except -1               # read again from the publishers that wait for its output; consumers keep waiting
    # --- what CONNECT and its user decide
    cdef int serve_with(self, ProtocolHandler handler, int role, uint32_t max_line) except -1   # the other end is a server
    cdef int enter(self, Owner router, bint ready) except -1
    cdef int change_router(self, Owner router) except -1   # the old router forgets its subscriptions
    cdef void limit_subscriptions(self, int64_t most) noexcept
    cdef void await_decision(self) noexcept                # the authenticator decides later; nothing is read until then
    cdef void decided(self) noexcept                       # ... it has; wake() reads again
    cdef void accepted(self) noexcept                      # its CONNECT was accepted
    cdef int set_permissions(self, ConnectionPermissions value) except -1
    cdef void check_deliveries(self, bint filtered) noexcept    # `filtered`: a subscription overlaps a denied subject
    # --- what it has sent
    cdef void stall(self) noexcept                         # do not read from it until wake()
    cdef void hold(self) noexcept                          # ... until release()
    cdef int release(self) except -1
    cdef int pause(self) except -1                         # ... until the next turn
    cdef void time_connect(self) noexcept                  # a first round trip, until the first PONG: from INFO to CONNECT
    cdef bint first_ping(self) noexcept                    # whether this PING is the first one after the CONNECT
    cdef void note_pong(self) noexcept
    cdef void note_partial(self, bint whole) noexcept      # an operation is incomplete; `whole`: others before it were not
    cdef void no_partial(self) noexcept                    # no operation is incomplete
    # --- its subscriptions
    cdef int keep(self, bytes sid, object subscription) except -1
    cdef void reckon(self, int64_t cost) noexcept          # its subscriptions take so many bytes more (below 0: fewer)

    # --- once per message or per read
    @cython.final
    cdef inline void heard(self) noexcept:
        # The client has sent something.
        self.last_ns = self.reactor.now_ns

    @cython.final
    cdef inline void count_in(self, uint64_t n) noexcept:
        # It has published a message of n bytes.
        self.in_msgs += 1
        self.in_bytes += n
        self.reactor.in_msgs += 1
        self.reactor.in_bytes += n

    @cython.final
    cdef inline void count_out(self, uint64_t n) noexcept:
        # A message of n bytes was delivered to it.
        self.out_msgs += 1
        self.out_bytes += n
        self.reactor.out_msgs += 1
        self.reactor.out_bytes += n

    @cython.final
    cdef inline void took(self, size_t n) noexcept:
        # The kernel took n bytes of its output.
        self.out.off += n
        self.progress_ns = self.reactor.now_ns

    @cython.final
    cdef inline int wait_for(self, Connection subscriber) except -1:
        # Its message went to a congested subscriber: do not read from it until that output has drained.
        self.stalled = True
        self.stalls += 1
        self.reactor.stalls += 1
        return subscriber.await_room(self)


cdef class Reactor:
    cdef readonly Clock clock
    cdef public uint64_t now_ns            # the time of this turn
    cdef uint64_t freed                    # bytes of closed connections' buffers and abandoned batches since memory was last returned to the system
    cdef uint64_t random_state
    cdef public int64_t max_pending        # a connection with more waiting output is a slow consumer and is closed
    cdef public int64_t max_payload
    cdef public uint32_t max_line
    cdef public int64_t max_output_bytes   # of all blocked connections together; above it those with the most output are closed; 0: no limit
    cdef public int64_t max_subscription_bytes  # of all connections; one may have half of it; 0: no limit
    cdef readonly int64_t subscription_bytes
    cdef public bint drop_for_slow         # a congested subscriber misses messages instead of stalling the publisher
    cdef ProtocolHandler handler                 # set once at start
    cdef public object on_close            # None, or called with each connection that was closed
    cdef public object on_error            # None, or called with each exception that a task raises
    cdef public object on_sync             # None: syncs happen in place; or called with each HandedSync (never on an EventLoop)
    cdef public object trace_log           # None, or the trace log, which is called for the traffic of clients: received(), sent()
    cdef list dirty                        # Connections with output
    cdef list resumed                      # Connections to be read from again
    cdef Out spare[64]                     # output buffers without an owner
    cdef int spares
    cdef list commits                      # Tasks of the commit phase (streams)
    cdef list deliveries                   # Tasks of the delivery phase (consumers)
    cdef list last                         # Tasks that run when the output of the turn is sent (queued requests)
    cdef list paused                       # Connections that go on in the next turn
    cdef readonly TurnBudget budget        # of slow work in this turn
    cdef dict connections                  # id -> Connection
    cdef list graveyard                    # closed in this turn: kept alive until its end
    cdef uint64_t next_id
    cdef readonly uint64_t in_msgs, in_bytes, out_msgs, out_bytes, slow_consumers, turns
    cdef readonly uint64_t stalls          # how often a publisher waited for a congested subscriber
    cdef readonly uint64_t commit_runs     # tasks run in commit phases
    cdef readonly uint64_t sync_runs       # fsyncs that were requested
    cdef public Trace trace                # None, or the trace of the message that is being published
    cdef void set_trace(self, Trace trace) noexcept
    cdef void use_handler(self, ProtocolHandler handler) noexcept
    cdef uint64_t random(self) noexcept    # seeded xorshift: picks queue members; not for secrets
    cdef int enlist_commit(self, Task t) except -1
    cdef int enlist_delivery(self, Task t) except -1
    cdef int enlist_last(self, Task t) except -1
    # EventLoop overrides these three: they are what a reactor with sockets does otherwise. A work list for the loop would not do instead of
    # the calls. flush() is called in the middle of a turn, because a large output must leave memory and the caller looks at once whether the
    # socket took it; hang_up() must close the socket before the next operation of the same connection is parsed.
    cdef int flush(self, Connection c) except -1  # pass waiting output to the kernel (here: to the transport, if any)
    cdef int hang_up(self, Connection c, str reason) except -1  # close now: end the subscriptions, close the socket
    cdef int submit_sync(self, Synced owner, int handle, uint64_t upto) except -1  # fdatasync(handle), then owner.synced(upto, errno)
    cdef int lend(self, Out* out) except -1  # an output buffer from the pool
    cdef int returned(self, Out* out) except -1  # drained: back into the pool
    cdef void count_freed(self, uint64_t n) noexcept  # so many bytes of memory are free again
    cdef int report(self, object error) except -1
    cdef int resume(self) except -1
    cdef int serve(self, Connection c, Reader* r) except -1  # run the operations; an exception closes only that connection
    # the end of a turn: commits, deliveries, output; True when there is more to do at once
    cdef bint finish_turn(self) except -1
