"""The server's event loop: its own epoll set, one turn after the other (read, commit, deliver, send), and the sync threads.

    epoll_wait -> for each ready socket: recv, operate -> commits -> deliveries -> one send per connection with output

The epoll set is one descriptor that asyncio watches with ``loop.add_reader``. One call runs turns as long as there are events, so that one
commit serves all input that came during the turn before. fdatasync runs in threads that never touch Python: a request is 24 bytes through a
pipe, and so is the answer; the answers' read end is in the epoll set.

Knows nothing of what operations mean: it hands bytes to the ProtocolHandler (core/broker/session) and runs the reactor's work lists.
"""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from pelton.core.base.buffer cimport out_waiting
from pelton.core.base.clock cimport Clock, monotonic_ns
from pelton.core.base.linux cimport (
    CLOCK_MONOTONIC, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, MSG_DONTWAIT,
    MSG_NOSIGNAL, POLLIN, TFD_CLOEXEC, TFD_NONBLOCK, clock_gettime, close, epoll_create1, epoll_ctl, epoll_event, epoll_wait, fdatasync, free, give_back,
    itimerspec, malloc, poll, pollfd, pthread_create, pthread_detach, pthread_t, read, recv, send, timerfd_create, timerfd_settime, timespec, write,
)
from pelton.core.broker.reactor cimport Connection, Reactor, Synced
from pelton.core.broker.turn_budget cimport TimedBudget
from pelton.core.protocol.wire cimport ROLE_SERVER, Reader, reader_free, reader_init, reader_room

from pelton.core.broker.reactor import SLOW_PENDING

cdef enum:
    READ_CHUNK = 131072                    # one recv
    EVENTS = 512                           # sockets handled in one turn
    LINGER_MS = 1                          # after a turn with events, wait this long for the next ones here before returning to asyncio
    SPIN_NS = 30000                        # length of a try to catch the next event without sleeping
    SPINS_MAX = 64                         # at most this many tries are saved up
    SPIN_LOSS = 16                         # tries that one unsuccessful try costs
    SPIN_PAUSE = 256                       # turns without a try after the tries are used up
    STAY_NS = 4000000                      # asyncio runs after this long at the latest
    TICK_NS = 50000000                     # period of the timer while a connection is blocked
    STUCK_NS = 100000000                   # publishers wait this long for a subscriber that makes no progress
    KEEP_BYTES = 262144                    # an empty input buffer of a connection above this size is freed at once
    REST_TURNS = 100000
    REST_MS = 100
    DONE_EVENT = 1                         # data.u64 of the pipe; addresses of objects are never so small
    TIMER_EVENT = 2
    SYNCS_MAX = 1024                       # of the syncs that run or wait for a thread: a pipe takes twice as many requests
    LISTEN_EVENT = 3                       # low bits of data.u64 for a listening socket, the descriptor above them; no address has these bits
    LISTEN_BITS = 2

cdef struct SyncJob:
    uint64_t ticket
    uint64_t upto
    int32_t handle
    int32_t error

cdef struct SyncPipes:
    int requests
    int answers


cdef void* sync_thread(void* argument) noexcept nogil:
    """Run jobs from the pipe until it is closed. A job is smaller than PIPE_BUF, so each read and write transfers a whole one."""
    cdef SyncPipes pipes = (<SyncPipes*>argument)[0]
    cdef SyncJob job
    cdef ssize_t got
    free(argument)
    while True:
        got = read(pipes.requests, &job, sizeof(SyncJob))
        if got < 0 and errno == EINTR:
            continue
        if got != sizeof(SyncJob):
            break
        job.error = 0
        while fdatasync(job.handle) != 0:
            if errno != EINTR:
                job.error = errno
                break
        while write(pipes.answers, &job, sizeof(SyncJob)) < 0 and errno == EINTR:
            pass
    close(pipes.requests)
    close(pipes.answers)
    return NULL


cdef int start_sync_thread(int requests, int answers) except -1:
    """Start a thread with its own descriptors: it ends when the event loop closes the other ends."""
    import os
    cdef pthread_t thread
    cdef SyncPipes* pipes = <SyncPipes*>malloc(sizeof(SyncPipes))
    if pipes == NULL:
        raise MemoryError
    pipes.requests = os.dup(requests)
    pipes.answers = os.dup(answers)
    if pthread_create(&thread, NULL, sync_thread, pipes) != 0:
        close(pipes.requests)
        close(pipes.answers)
        free(pipes)
        raise RuntimeError("can't start a thread for syncing files")
    pthread_detach(thread)
    return 0


cdef object by_size(pair):
    return pair[0]


cdef class EventLoop(Reactor):
    """A Reactor with sockets. asyncio runs it through ``loop.add_reader(turn.fileno(), turn.poll_once)``."""

    def __cinit__(self):
        self.epoll_fd = self.timer_fd = self.request_fd = self.done_fd = -1
        reader_init(&self.shared, ROLE_SERVER)

    def __init__(self, Clock clock, seed: int = 1, sync_threads: int = 2) -> None:
        import os
        cdef int fds[2]
        super().__init__(clock, seed)
        self.budget = TimedBudget()
        self.blocked = {}
        self.listening = {}
        self.syncs = {}
        self.syncs_max = SYNCS_MAX
        self.spins = 1
        self.write_deadline_ns = 10_000_000_000        # nats-server's default: write_deadline
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        self.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.epoll_fd < 0 or self.timer_fd < 0:
            raise OSError(errno, os.strerror(errno))
        requests, self.request_fd = os.pipe()
        self.done_fd, answers = os.pipe()
        os.set_blocking(self.done_fd, False)
        for _ in range(sync_threads):
            start_sync_thread(requests, answers)
        os.close(requests)
        os.close(answers)
        self.watch_fd(self.done_fd, DONE_EVENT)
        self.watch_fd(self.timer_fd, TIMER_EVENT)

    def __dealloc__(self):
        reader_free(&self.shared)

    def watch_fd(self, int fd, uint64_t tag) -> None:
        """Put one of the event loop's own descriptors into the epoll set."""
        cdef epoll_event ev
        ev.events = EPOLLIN
        ev.data.u64 = tag
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0:
            raise OSError(errno, "epoll_ctl")

    def fileno(self) -> int:
        """The epoll set's descriptor: readable when there are events."""
        return self.epoll_fd

    def start(self, object sessions, object call_soon) -> None:
        """Set the sessions, and call_soon: the event loop calls it to be run again at once when it has more work than one call does."""
        self.sessions = sessions
        self.call_soon = call_soon

    def adopt(self, int fd) -> Connection:
        """Take over a connected non-blocking socket's descriptor: the event loop reads, writes and closes it."""
        cdef Connection c = Connection(self)
        cdef epoll_event ev
        c.use_socket(fd)
        ev.events = EPOLLIN
        ev.data.ptr = <void*>c
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0:
            c.refuse()
            raise OSError(errno, "epoll_ctl")
        self.sessions.welcome(c)
        return c

    def listen(self, int fd, object accept) -> None:
        """Call accept() in each turn that finds a client waiting at a listening socket. accept() must not block; the turn sends what it wrote."""
        self.watch_fd(fd, <uint64_t>fd << LISTEN_BITS | LISTEN_EVENT)
        self.listening[fd] = accept

    def ignore(self, int fd) -> None:
        """Stop watching a listening socket, before it is closed or for a while. Does nothing when the socket is not watched."""
        if self.listening.pop(fd, None) is not None and self.epoll_fd >= 0:
            epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, fd, NULL)

    def hand_back(self) -> None:
        """Tell the event loop that asyncio has work: poll_once returns after this turn instead of looking for more events."""
        self.wanted = True

    def attach(self, Connection c, int fd) -> None:
        """Watch the socket of a connection that has a transport (Sessions.accept). The turn calls transport.readable() and
        transport.writable(); the transport reads, writes and closes.
        """
        cdef epoll_event ev
        if c.closed:
            return
        ev.events = (0 if c.stalled else EPOLLIN) | (EPOLLOUT if c.blocked else 0)
        ev.data.ptr = <void*>c
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0:
            raise OSError(errno, "epoll_ctl")
        c.use_socket(fd)

    def take_in(self, Connection c, const unsigned char[::1] data) -> None:
        """For transports: process bytes that were read for a connection, split anywhere. Complete operations run from the shared buffer,
        as when the socket is read, so that an idle connection holds no buffer.
        """
        cdef Reader* own = &c.reader
        cdef Reader* r = own
        cdef size_t n = <size_t>data.shape[0]
        if c.closed or c.closing or n == 0:
            return
        if own.pos == own.end and not c.stalled:
            r = self.borrow(c)
        memcpy(reader_room(r, n), &data[0], n)
        r.end += n
        if not c.stalled:
            self.serve(c, r)
            self.keep_rest(c, r)

    def hold(self, Connection c, bint full) -> None:
        """For transports: output waits because the kernel takes no bytes (full), or none waits. The write deadline starts here."""
        c.progressed()
        c.mark_blocked(full)
        if full:
            self.blocked[c.id] = c
            self.arm_timer(True)
            self.arm(c)
            return
        self.blocked.pop(c.id, None)
        self.flush(c)
        if c.closed:
            return
        if c.closing and not c.blocked:
            self.hang_up(c, c.reason)
            return
        if not c.blocked:
            self.arm(c)
        c.drained()

    # --- output --------------------------------------------------------------------------------------------------------
    cdef int flush(self, Connection c) except -1:
        cdef ssize_t sent
        cdef size_t n
        if c.fd < 0 or c.transport is not None:
            return Reactor.flush(self, c)
        if c.closed or c.blocked:
            return 0
        while True:
            n = out_waiting(&c.out)
            if n == 0:
                break
            sent = send(c.fd, c.out.data + c.out.off, n, MSG_NOSIGNAL | MSG_DONTWAIT)
            if sent < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    c.mark_blocked(True)
                    self.blocked[c.id] = c
                    self.arm(c)
                    self.arm_timer(True)
                    return 0
                self.hang_up(c, "Write Error")
                return 0
            c.took(<size_t>sent)
        self.returned(&c.out)
        if c.closing:
            self.hang_up(c, c.reason)
        return 0

    cdef int on_writable(self, Connection c) except -1:
        if c.transport is not None:
            return self.ask(c, c.transport.writable)
        c.mark_blocked(False)
        self.blocked.pop(c.id, None)
        self.flush(c)
        if not c.closed:
            if not c.blocked:
                self.arm(c)
            c.drained()
        return 0

    cdef int arm(self, Connection c) except -1:
        cdef epoll_event ev
        if c.fd < 0 or c.closed:
            return 0
        ev.events = (0 if c.stalled or c.closing else EPOLLIN) | (EPOLLOUT if c.blocked else 0)
        ev.data.ptr = <void*>c
        epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, c.fd, &ev)
        return 0

    cdef int ask(self, Connection c, object call) except -1:
        """Tell a transport that its socket is ready. An exception of the transport closes only this connection."""
        try:
            call()
        except Exception as error:
            self.report(error)
            self.hang_up(c, "Internal Error")
        return 0

    cdef int hang_up(self, Connection c, str reason) except -1:
        cdef int left = 64
        if c.closed:
            return 0
        self.blocked.pop(c.id, None)
        if c.fd >= 0:
            epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, c.fd, NULL)
            if c.transport is None:
                # with unread input, close() would send a reset, and the client would lose the -ERR before it
                while left and c.closing and recv(c.fd, reader_room(&self.shared, READ_CHUNK), READ_CHUNK, MSG_DONTWAIT) > 0:
                    left -= 1
                close(c.fd)
        self.freed += c.reader.cap + c.out.cap
        Reactor.hang_up(self, c, reason)
        c.use_socket(-1)
        return 0

    # --- input ---------------------------------------------------------------------------------------------------------
    cdef int serve(self, Connection c, Reader* r) except -1:
        Reactor.serve(self, c, r)
        if c.held == 0:
            (<TimedBudget>self.budget).note_other()
        return 0

    cdef int on_readable(self, Connection c) except -1:
        cdef Reader* r = &c.reader
        cdef Reader* own = &c.reader
        cdef size_t want = READ_CHUNK
        cdef ssize_t got
        if c.stalled or c.closing:
            self.arm(c)
            return 0
        if c.transport is not None:
            self.ask(c, c.transport.readable)
            if c.stalled:
                self.arm(c)
            return 0
        if own.pos == own.end:
            r = self.borrow(c)
        elif own.need > own.end - own.pos + READ_CHUNK:
            want = own.need - (own.end - own.pos)
        got = recv(c.fd, reader_room(r, want), want, MSG_DONTWAIT)
        if got <= 0:
            if got == 0 or (errno != EAGAIN and errno != EINTR):
                self.hang_up(c, "Client Closed" if got == 0 else "Read Error")
            return 0
        r.end += got
        self.serve(c, r)
        self.keep_rest(c, r)
        if c.stalled:
            self.arm(c)
        return 0

    cdef Reader* borrow(self, Connection c) noexcept:
        """The shared input buffer, for a connection whose own buffer is empty."""
        cdef Reader* r = &self.shared
        r.pos = r.end = 0
        r.need = 0
        r.role = c.reader.role
        r.max_line = c.reader.max_line
        r.max_payload = c.reader.max_payload
        return r

    cdef int keep_rest(self, Connection c, Reader* r) except -1:
        """Move the incomplete rest of the shared buffer into the connection's own buffer; free an empty large one."""
        cdef Reader* own = &c.reader
        cdef size_t left
        if r != own and not c.closed:
            left = r.end - r.pos
            if left:
                memcpy(reader_room(own, left), r.data + r.pos, left)
                own.end += left
                own.need = r.need
        elif own.pos == own.end and own.cap > KEEP_BYTES:
            c.release_input()
        return 0

    cdef int resume(self) except -1:
        cdef Connection c
        resumed, self.resumed = self.resumed, []
        if self.ending:
            return 0
        for c in resumed:
            if c.closed or c.stalled:
                continue
            self.serve(c, &c.reader)
            if not c.stalled:
                self.arm(c)
        return 0

    cdef int on_arrival(self, int fd) except -1:
        """A client waits at a listening socket, which may have been closed in this turn."""
        accept = self.listening.get(fd)
        if accept is None:
            return 0
        self.accepting = True
        try:
            accept()
        except Exception as error:
            self.report(error)
        finally:
            self.accepting = False
        return 0

    # --- syncs ---------------------------------------------------------------------------------------------------------
    cdef int submit_sync(self, Synced owner, int handle, uint64_t upto) except -1:
        cdef SyncJob job
        while <Py_ssize_t>len(self.syncs) >= self.syncs_max:
            self.await_sync()
        self.sync_runs += 1
        self.next_ticket += 1
        job.ticket = self.next_ticket
        job.upto = upto
        job.handle = handle
        job.error = 0
        self.syncs[job.ticket] = owner
        while write(self.request_fd, &job, sizeof(SyncJob)) < 0:
            if errno != EINTR:
                del self.syncs[job.ticket]
                raise OSError(errno, "can't hand a file to the sync thread")
        return 0

    cdef int await_sync(self) except -1:
        """Wait until at least one sync has ended. Each has an open file, and a full pipe to the threads would stop them and this one."""
        cdef pollfd wanted
        wanted.fd = self.done_fd
        wanted.events = POLLIN
        with nogil:
            poll(&wanted, 1, -1)
        self.one_sync()
        return 0

    cdef int on_synced(self) except -1:
        while self.one_sync():
            pass
        return 0

    # --- the timer -----------------------------------------------------------------------------------------------------
    cdef int arm_timer(self, bint on) except -1:
        cdef itimerspec spec
        if on == self.timer_armed:
            return 0
        memset(&spec, 0, sizeof(spec))
        if on:
            spec.it_interval.tv_nsec = spec.it_value.tv_nsec = TICK_NS
        timerfd_settime(self.timer_fd, 0, &spec, NULL)
        self.timer_armed = on
        return 0

    cdef int on_timer(self) except -1:
        """Some connection is blocked: free the publishers of stuck subscribers, close connections that exceed the write deadline."""
        cdef uint64_t expirations, quiet
        cdef Connection c
        read(self.timer_fd, &expirations, sizeof(expirations))
        for c in list(self.blocked.values()):
            quiet = self.now_ns - c.progress_ns
            if quiet > self.write_deadline_ns:
                self.slow_consumers += 1
                self.hang_up(c, "Slow Consumer (Write Deadline)")
            elif quiet > STUCK_NS and c.waiters is not None:
                c.free_publishers()
        if self.max_output_bytes:
            self.relieve()
        if not self.blocked:
            self.arm_timer(False)
        return 0

    cdef int relieve(self) except -1:
        """The waiting output of all blocked connections together exceeds its limit: close those with the most output."""
        cdef Connection c
        cdef int64_t total = 0
        for c in self.blocked.values():
            total += c.out.cap
        if total <= self.max_output_bytes:
            return 0
        for _, held in sorted([((<Connection>each).out.cap, each) for each in self.blocked.values()], key=by_size, reverse=True):
            c = held
            total -= c.out.cap
            self.slow_consumers += 1
            self.hang_up(c, SLOW_PENDING)
            if total <= self.max_output_bytes:
                break
        return 0

    # --- turns ---------------------------------------------------------------------------------------------------------
    cdef int events(self, int timeout_ms) except -1:
        cdef epoll_event ready[EVENTS]
        cdef int n, i
        cdef Connection c
        if timeout_ms:
            with nogil:
                n = epoll_wait(self.epoll_fd, ready, EVENTS, timeout_ms)
        else:
            n = epoll_wait(self.epoll_fd, ready, EVENTS, 0)
        self.now_ns = self.clock.now_ns()
        for i in range(n):
            if ready[i].data.u64 == DONE_EVENT:
                self.on_synced()
                continue
            if ready[i].data.u64 == TIMER_EVENT:
                self.on_timer()
                continue
            if ready[i].data.u64 & LISTEN_EVENT == LISTEN_EVENT:
                self.on_arrival(<int>(ready[i].data.u64 >> LISTEN_BITS))
                continue
            c = <Connection>ready[i].data.ptr
            if c.closed:
                continue
            if ready[i].events & EPOLLOUT:
                self.on_writable(c)
            if not c.closed and ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR):
                if (c.stalled or c.closing) and ready[i].events & (EPOLLHUP | EPOLLERR):
                    self.hang_up(c, "Client Closed")
                else:
                    self.on_readable(c)
        return n if n > 0 else 0

    def poll_once(self) -> None:
        """Run turns as long as events come; blocks for LINGER_MS after the last one, and stays no longer than STAY_NS.

        A client that waits for its answer sends again within microseconds: waiting here saves the way through asyncio.
        """
        cdef int n = self.events(0)
        cdef bint more = self.finish_turn()
        cdef uint64_t until = monotonic_ns() + STAY_NS
        while n or more:
            if self.wanted or monotonic_ns() > until:
                self.wanted = False
                if not self.scheduled and self.call_soon is not None:
                    self.scheduled = True
                    self.call_soon(self.again)
                return
            n = self.events(0) if more or self.spin() else self.events(LINGER_MS)
            more = self.finish_turn() if n or more else False
        if self.freed > 16 * KEEP_BYTES:   # buffers of closed connections; the allocator may have kept the memory
            self.freed = give_back()

    cdef bint spin(self) noexcept:
        """Look for events without sleeping, for SPIN_NS at most; True when there are some.

        A processor that sleeps takes longer to wake up than a client on the same machine takes to answer. The event loop learns whether a try pays:
        a try that finds an event earns more tries, an unsuccessful one costs some, and from time to time the event loop tries anew.
        """
        cdef epoll_event ready[1]
        cdef uint64_t until
        if self.spins <= 0:
            self.spins += 1
            return False
        until = monotonic_ns() + SPIN_NS
        while True:
            if epoll_wait(self.epoll_fd, ready, 1, 0) > 0:
                if self.spins < SPINS_MAX:
                    self.spins += 1
                return True
            if monotonic_ns() > until:
                self.spins -= SPIN_LOSS
                if self.spins <= 0:
                    self.spins = -SPIN_PAUSE
                return False

    def again(self) -> None:
        """The continuation: call_soon runs it."""
        self.scheduled = False
        self.poll_once()

    def kick(self) -> None:
        """Finish a turn now, after work from outside the epoll set (a timer, an adapter). Within a turn it does nothing: the turn goes on."""
        if self.accepting:
            return
        self.now_ns = self.clock.now_ns()
        if self.finish_turn() and not self.scheduled and self.call_soon is not None:
            self.scheduled = True
            self.call_soon(self.again)

    def run(self, int timeout_ms) -> None:
        """Block for events up to timeout_ms, then run turns until nothing is left: for a program without asyncio, and for tests."""
        self.events(timeout_ms)
        while self.finish_turn():
            self.events(0)

    def rest(self) -> None:
        """Run turns until no event, no work and no sync is left, or REST_TURNS are over because clients go on sending."""
        cdef int n, left = REST_TURNS
        cdef bint more
        while left:
            left -= 1
            n = self.events(0)
            more = self.finish_turn()
            if n or more:
                continue
            if not self.syncs:
                return
            self.events(REST_MS)
            self.finish_turn()

    def end_input(self) -> None:
        """Carry out nothing more that clients have sent: once JetStream is closed, it would be answered with "no responders"."""
        self.ending = True

    def shutdown(self) -> None:
        """Finish outstanding syncs, flush what the sockets take, close every connection and the epoll set."""
        import os
        cdef Connection c
        if self.epoll_fd < 0:
            return
        os.set_blocking(self.done_fd, True)
        while self.syncs:
            self.one_sync()
            self.finish_turn()
        self.finish_turn()
        for c in list(self.connections.values()):
            self.flush(c)
            self.hang_up(c, "Server Shutdown")
        self.graveyard.clear()
        for fd in (self.request_fd, self.done_fd, self.timer_fd, self.epoll_fd):
            os.close(fd)
        self.epoll_fd = self.timer_fd = self.request_fd = self.done_fd = -1

    cdef bint one_sync(self) except -1:
        """Take the answer of one sync thread; False: there is none."""
        cdef SyncJob job
        cdef Synced owner
        if read(self.done_fd, &job, sizeof(SyncJob)) != sizeof(SyncJob):
            return False
        owner = self.syncs.pop(job.ticket)
        try:
            owner.synced(job.upto, job.error)
        except Exception as error:
            self.report(error)
        return True
