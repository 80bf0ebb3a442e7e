"""The loop of a load: an epoll set with many connections, and a role for each, in one thread.

    epoll_wait -> for each ready socket: recv, parse, role.take -> for each of these roles: role.turn, one send

A load must cost less per message than any server that it measures, so nothing here makes a Python object per message, unless a role is written
in Python: then ``message`` gets those that came. One call runs until a given time, so that the caller can show progress and hear signals.

Knows the protocol, and nothing of what the messages are for. A connection with TLS or in a WebSocket sends and reads through the object that
decrypts it.
"""
from cpython.buffer cimport PyBUF_READ
from cpython.exc cimport PyErr_CheckSignals
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t

from pelton.core.base.buffer cimport Out, out_free, out_put, out_reserve, out_waiting
from pelton.core.base.linux cimport (
    CLOCK_MONOTONIC, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLIN, EPOLLOUT, MSG_DONTWAIT, MSG_NOSIGNAL, clock_gettime, close,
    epoll_create1, epoll_ctl, epoll_event, epoll_wait, nanosleep, recv, send, timespec,
)
from pelton.core.protocol.wire cimport OP_ERR, OP_MORE, OP_MSG, OP_PING, OP_PONG, ROLE_CLIENT, Op, Parser, read_op

from array import array

cdef enum:
    EVENTS = 256                    # sockets handled at once
    READ_FIRST = 16384              # one recv; doubled when it is filled
    READ_MAX = 262144
    FINE_NS = 1000000               # waits below this are slept: epoll_wait counts in milliseconds
    NOTHING = 0

NEVER_NS = <int64_t>1 << 62
NEVER = NEVER_NS


cdef int64_t clock_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000000 + t.tv_nsec


cdef class Link:
    """A connection whose bytes the load writes and reads itself; see crowd.pyi."""

    def __init__(self, int fd, str inbox, int64_t max_payload, error_of, transport=None):
        self.fd = fd
        self.inbox = inbox
        self.max_payload = max_payload
        self.error_of = error_of
        self.transport = transport
        self.parser = Parser(ROLE_CLIENT)
        self.chunk = READ_FIRST

    def __dealloc__(self):
        out_free(&self.out)

    @property
    def blocked(self) -> bool:
        """Whether bytes are held that the kernel has not taken."""
        return self.held

    def write(self, data) -> None:
        """Send as much as the kernel takes, and hold the rest."""
        cdef const unsigned char[:] view = data
        if view.shape[0]:
            self.send(<const char*>&view[0], <size_t>view.shape[0])

    def subscribe(self, subject: str, sid: int, queue: str = "") -> None:
        """Subscribe under a number."""
        words = (subject, queue, str(sid)) if queue else (subject, str(sid))
        self.write(f"SUB {' '.join(words)}\r\n".encode())

    def operations(self) -> list:
        """The operations that have come, without waiting."""
        cdef Op op
        cdef int kind
        cdef list found = []
        while self.receive():
            while True:
                kind = read_op(&self.parser.reader, &op)
                if kind == OP_MORE:
                    break
                event = self.parser.event_of(&op) if kind > 0 else None
                if event is None:
                    self.parser.fail(kind, found)
                found.append(event)
        return found

    cdef int put(self, const char* p, size_t n) except -1:
        return out_put(&self.out, p, n)

    cdef char* room(self, size_t n) except NULL:
        return out_reserve(&self.out, n)

    cdef void wrote(self, size_t n) noexcept:
        self.out.len += n

    cdef int send(self, const char* p, size_t n) except -1:
        cdef size_t sent
        if not self.held and out_waiting(&self.out) == 0:
            while n:
                sent = self.some(p, n)
                if sent == 0:
                    self.held = True
                    break
                p += sent
                n -= sent
        out_put(&self.out, p, n)
        return 0 if self.held else self.push()

    cdef size_t some(self, const char* p, size_t n) except? 0:
        # How many bytes were taken; 0 also for a broken connection, which receive() detects.
        cdef ssize_t sent
        if self.transport is not None:
            return self.transport.send(PyMemoryView_FromMemory(<char*>p, <Py_ssize_t>n, PyBUF_READ))
        while True:
            sent = send(self.fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL)
            if sent >= 0:
                return <size_t>sent
            if errno != EINTR:
                return 0

    cdef int push(self) except -1:
        cdef size_t sent
        while out_waiting(&self.out):
            sent = self.some(self.out.data + self.out.off, out_waiting(&self.out))
            if sent == 0:
                self.held = True
                return 0
            self.out.off += sent
        self.out.off = self.out.len = 0
        self.held = False
        return 0

    cdef int receive(self) except -1:
        cdef ssize_t got
        if self.transport is not None:
            return self.receive_through()
        while True:
            got = recv(self.fd, self.parser.room(self.chunk), self.chunk, MSG_DONTWAIT)
            if got > 0:
                self.parser.received(<size_t>got)
                self.more = <size_t>got == self.chunk       # a short read emptied the socket
                if self.more and self.chunk < READ_MAX:
                    self.chunk *= 2
                return 1
            if got == 0:
                raise ConnectionResetError("the server closed the connection")
            if errno != EINTR:
                break
        if errno == EAGAIN:
            return 0
        raise ConnectionResetError("the connection to the server broke")

    cdef int receive_through(self) except -1:
        data = self.transport.read()
        if data is None:
            self.more = False
            return 0
        if not len(data):
            raise ConnectionResetError("the server closed the connection")
        self.parser.take_in(data)
        self.more = self.transport.more_is_here
        return 1


cdef class Pace:
    """How many messages of one client may go, and when: a pause after each, or so many a second."""

    def __init__(self, int64_t sleep_ns=0, double per_second=0.0):
        self.sleep_ns = sleep_ns
        self.per_second = per_second

    cpdef int64_t allowed(self, int64_t sent, int64_t wanted, int64_t now):
        """How many of the wanted messages may go now."""
        cdef int64_t may
        if self.per_second > 0:
            if self.start == 0:
                self.start = now
            may = <int64_t>(<double>(now - self.start) * self.per_second / 1e9) + 1 - sent
            if may < wanted:
                wanted = may
        if self.sleep_ns:
            may = 1 if now >= self.next else 0
            if may < wanted:
                wanted = may
        return wanted if wanted > 0 else 0

    cpdef int64_t due(self, int64_t sent):
        """When the next message may go."""
        cdef int64_t at = self.next
        cdef int64_t by_rate
        if self.per_second > 0:
            by_rate = self.start + <int64_t>(<double>sent * 1e9 / self.per_second) + 1
            if by_rate > at:
                at = by_rate
        return at

    cpdef sent(self, int64_t now):
        """Messages went now."""
        if self.sleep_ns:
            self.next = now + self.sleep_ns


cdef class Role:
    """What one client of a load does; see crowd.pyi."""

    def __init__(self, Link link, int64_t quota):
        self.link = link
        self.quota = quota

    def __dealloc__(self):
        out_free(&self.times)

    @property
    def latencies(self):
        """Nanoseconds of single operations, in an array."""
        found = array("q")
        if self.times.len:
            found.frombytes(PyMemoryView_FromMemory(self.times.data, <Py_ssize_t>self.times.len, PyBUF_READ))
        return found

    cpdef int64_t turn(self, int64_t now) except -1:
        """Write what may be written; the time of the next turn (``now`` means at once)."""
        return NEVER_NS

    cpdef message(self, tuple operation):
        """Called for a message that the role does not count."""

    cpdef settle(self, int64_t now):
        """Called when bytes were taken."""

    cpdef pong(self, int64_t now):
        """Called when the server has handled all that was written before ``ping``."""
        self.finish(now)

    cpdef ping(self):
        """Let ``pong`` be called when all is handled; once."""
        if not self.asked_pong:
            self.asked_pong = True
            self.link.put(b"PING\r\n", 6)

    cpdef finish(self, int64_t now):
        """The role is over."""
        self.over = True
        self.end_ns = now

    cpdef note(self, int64_t ns):
        """An operation took so long."""
        out_put(&self.times, <const char*>&ns, sizeof(ns))

    cdef int take(self, Op* op, int64_t now) except -1:
        if op.kind == OP_PONG:
            self.pong(now)
            return 0
        return self.heed(op)

    cdef int heed(self, Op* op) except -1:
        if op.kind == OP_MSG:
            event = self.link.parser.event_of(op)
            if event is None:
                self.link.parser.fail(NOTHING, [])
            self.message(event)
        elif op.kind == OP_PING:
            self.link.put(b"PONG\r\n", 6)
        elif op.kind == OP_ERR:
            raise self.link.error_of(self.link.parser.event_of(op)[1].decode("utf-8", "replace"))
        return 0


cdef class Crowd:
    """All clients of a load; see crowd.pyi."""

    def __cinit__(self, roles, beside=()):
        self.roles = list(roles)
        self.unfinished = len(self.roles)
        self.roles += beside
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise OSError(errno, "no epoll set")
        for role in self.roles:
            self.watch(role, (<Role>role).link.held, EPOLL_CTL_ADD)

    def __dealloc__(self):
        if self.epoll >= 0:
            close(self.epoll)

    cdef int watch(self, Role role, bint writable, int how) except -1:
        cdef epoll_event event
        event.events = <uint32_t>(EPOLLIN | (EPOLLOUT if writable else 0))
        event.data.ptr = <void*>role
        if epoll_ctl(self.epoll, how, role.link.fd, &event):
            raise OSError(errno, "a socket cannot be watched")
        return 0

    def run(self, int64_t until_ns) -> bool:
        """Until all roles are over, or this time of the monotonic clock; see crowd.pyi."""
        cdef epoll_event[EVENTS] events
        cdef Role role
        cdef timespec pause
        cdef int64_t now = clock_ns()
        cdef int64_t wait
        cdef bint lively = False
        cdef bint waits = True
        cdef int found, i, milliseconds
        while self.unfinished and now < until_ns:
            if self.first <= now:
                self.turns(now)
            lively = lively or self.first != NEVER_NS
            wait = (self.first if self.first < until_ns else until_ns) - now
            if now < self.first < until_ns:
                wait -= clock_ns() - now            # the turns took time
            milliseconds = 0
            if 0 < wait < FINE_NS and self.first < until_ns:
                pause.tv_sec = 0
                pause.tv_nsec = wait
                with nogil:
                    nanosleep(&pause, NULL)
            elif wait > 0:
                milliseconds = <int>(wait // 1000000)
                if self.first >= until_ns:
                    milliseconds += 1
            with nogil:
                found = epoll_wait(self.epoll, events, EVENTS, milliseconds)
            now = clock_ns()
            if found < 0:
                PyErr_CheckSignals()
                continue
            lively = lively or found > 0
            for i in range(found):
                role = <Role>events[i].data.ptr
                if events[i].events & EPOLLOUT:
                    role.link.push()
                    if not role.link.held:
                        self.watch(role, False, EPOLL_CTL_MOD)
                if events[i].events & ~<uint32_t>EPOLLOUT:
                    self.feed(role, now)
            for i in range(found):
                self.turn_of(<Role>events[i].data.ptr, clock_ns())      # the work on what was read took time
        return lively

    cdef int feed(self, Role role, int64_t now) except -1:
        cdef Op op
        cdef int kind
        cdef bint before = role.over
        while role.link.receive():
            while True:
                kind = read_op(&role.link.parser.reader, &op)
                if kind == OP_MORE:
                    break
                if kind < 0:
                    role.link.parser.fail(kind, [])
                role.take(&op, now)
            role.settle(clock_ns())  # after the work on what was read: all may have come at once
            if not role.link.more:
                break
        self.unfinished -= role.over and not before
        return 0

    cdef int turns(self, int64_t now) except -1:
        cdef Role role
        cdef int64_t first = NEVER_NS
        for role in self.roles:
            if role.due <= now:
                self.turn_of(role, now)
            if role.due < first:
                first = role.due
        self.first = first
        return 0

    cdef int turn_of(self, Role role, int64_t now) except -1:
        # Give a role its turn, and send what it wrote.
        cdef bint before = role.over
        cdef bint held = role.link.held
        role.due = NEVER_NS if role.over else role.turn(now)
        if role.due < self.first:
            self.first = role.due
        if not held:
            role.link.push()
            if role.link.held:
                self.watch(role, True, EPOLL_CTL_MOD)
        self.unfinished -= role.over and not before
        return 0
