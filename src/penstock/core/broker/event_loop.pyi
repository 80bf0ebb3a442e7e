"""One turn of the server: its own epoll set, reads, commit, acks, consumers, sends; sync threads."""

from collections.abc import Callable

from penstock.core.base.clock import Clock
from penstock.core.broker.reactor import Connection, Reactor

class EventLoop(Reactor):
    """A Reactor with sockets. Its epoll set is one file descriptor that asyncio watches with ``loop.add_reader(turn.fileno(), turn.poll_once)``."""

    def __init__(self, clock: Clock, seed: int = 1, sync_threads: int = 2) -> None: ...
    def fileno(self) -> int: ...
    def start(self, sessions: object, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """call_soon is how the turn asks to be run again at once when it has more to do than one call should."""
    def adopt(self, fd: int) -> Connection:
        """Take over a connected non-blocking socket's descriptor (the turn closes it); write its greeting with connection.write()."""
    def listen(self, fd: int, accept: Callable[[], object]) -> None:
        """Call accept() in each turn that finds somebody waiting at a listening socket (non-blocking; its owner closes it).

        accept takes who waits, `adopt`s them, and returns; what it writes is sent by the turn, an exception is reported.
        OSError when it can't be watched.
        """
    def ignore(self, fd: int) -> None:
        """Look away from a listening socket: before it is closed, or for a while. Nothing happens when it isn't listened to."""
    def hand_back(self) -> None:
        """Something waits for asyncio: poll_once returns after this turn instead of looking for more events."""
    def attach(self, connection: Connection, fd: int) -> None:
        """Watch the socket of a connection that has a transport (Sessions.accept).

        The turn calls transport.readable() and transport.writable() when the socket is; the transport reads, writes and closes it.
        OSError when it can't be watched; nothing happens when the connection is closed already.
        """
    def take_in(self, connection: Connection, data: bytes | bytearray | memoryview) -> None:
        """For transports: what was read for a connection; any split. Its bytes are not kept."""
    def hold(self, connection: Connection, full: bool) -> None:
        """For transports: output waits that the kernel does not take yet (True; said again at each progress), or none waits any more."""
    write_deadline_ns: int
    def kick(self) -> None:
        """Finish a turn now, after work that came from outside the epoll set (a timer, an adapter); nothing within accept of `listen`."""
    def poll_once(self) -> None:
        """Run turns as long as events come; waits a millisecond for more, stays a few at most."""
    def run(self, timeout_ms: int) -> None:
        """Block up to timeout_ms for events, then as poll_once: for a loop without asyncio, and tests."""
    def shutdown(self) -> None:
        """Finish outstanding syncs, flush what can be flushed, close every connection and the epoll set."""
