"""The server's event loop: its own epoll set, one turn after the other (read, commit, deliver, send), and the sync threads."""

from collections.abc import Callable

from pelton.core.base.clock import Clock
from pelton.core.broker.reactor import Connection, Reactor

class EventLoop(Reactor):
    """A Reactor with sockets. Its epoll set is one descriptor that asyncio watches with ``loop.add_reader(turn.fileno(), turn.poll_once)``."""

    def __init__(self, clock: Clock, seed: int = 1, sync_threads: int = 2) -> None: ...
    def fileno(self) -> int: ...
    def start(self, sessions: object, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Set the sessions, and call_soon: the event loop calls it to be run again at once when it has more work than one call does."""
    def adopt(self, fd: int) -> Connection:
        """Take over a connected non-blocking socket's descriptor, which the event loop closes; greet the client with connection.write()."""
    def listen(self, fd: int, accept: Callable[[], object]) -> None:
        """Call accept() in each turn that finds a client waiting at a listening socket (non-blocking; its owner closes it).

        accept() accepts the waiting clients, calls `adopt` for each and returns. The turn sends what accept() wrote. An exception is reported.
        Raises OSError when the socket can't be watched.
        """
    def ignore(self, fd: int) -> None:
        """Stop watching a listening socket, before it is closed or for a while. Does nothing when the socket is not watched."""
    def hand_back(self) -> None:
        """Tell the event loop that asyncio has work: poll_once returns after this turn instead of looking for more events."""
    def attach(self, connection: Connection, fd: int) -> None:
        """Watch the socket of a connection that has a transport (Sessions.accept).

        The turn calls transport.readable() and transport.writable() when the socket is ready; the transport reads, writes and closes it.
        Raises OSError when the socket can't be watched. Does nothing when the connection is closed already.
        """
    def take_in(self, connection: Connection, data: bytes | bytearray | memoryview) -> None:
        """For transports: process bytes that were read for a connection, split anywhere. The event loop keeps no reference to them."""
    def hold(self, connection: Connection, full: bool) -> None:
        """For transports: say that output waits because the kernel takes no bytes (True; again at each progress), or that none waits (False)."""
    write_deadline_ns: int
    syncs_max: int
    """How many fsyncs may run or wait for a thread; another one waits until one of them has ended."""
    def kick(self) -> None:
        """Finish a turn now, after work from outside the epoll set (a timer, an adapter). Does nothing within accept() of `listen`."""
    def poll_once(self) -> None:
        """Run turns as long as events come; wait one millisecond for more, and stay a few milliseconds at most."""
    def run(self, timeout_ms: int) -> None:
        """Block for events up to timeout_ms, then do as poll_once: for a program without asyncio, and for tests."""
    def rest(self) -> None: ...
    def end_input(self) -> None:
        """Carry out nothing more that clients have sent."""
    def shutdown(self) -> None:
        """Finish outstanding syncs, flush what the sockets take, close every connection and the epoll set."""
