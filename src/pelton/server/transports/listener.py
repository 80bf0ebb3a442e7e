"""Listening sockets: binds them, listens when connections can be served, accepts connections in batches
within the core's turns, and gives each descriptor to a callback.
"""

import errno
import os
import socket
from collections.abc import Callable
from functools import partial

from pelton.core.broker.event_loop import EventLoop
from pelton.server.errors import StartError
from pelton.server.logs.log import Log
from pelton.server.units import join_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

ACCEPT_BATCH = 256  # connections accepted in one turn, before other connections get their turn
BACKLOG = 4096
NO_ROOM_PAUSE_SECONDS = 0.2
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def open_sockets(host: str, port: int, option: str = "-p") -> list[socket.socket]:
    """Bound sockets for a host.

    ``0.0.0.0`` and ``::`` both mean all addresses, IPv4 and IPv6; a name may have several
    addresses. The sockets refuse connections until a Listener is opened on them. port -1 or 0 takes
    a free port, the same on every address. StartError names the address that is not available, and
    the reason.
    """
    wanted = max(port, 0)
    opened: list[socket.socket] = []
    for family, address in _addresses(host, wanted):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # "::" accepts IPv4 too; an explicit address only its own family
                listening.setsockopt(
                    socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1
                )
            listening.bind((address, wanted))
        except OSError as problem:
            listening.close()
            for other in opened:
                other.close()
            shown = f"[{address}]" if ":" in address else address
            raise StartError(_refusal(problem, f"{shown}:{wanted}", option)) from None
        listening.setblocking(False)
        wanted = listening.getsockname()[1]
        opened.append(listening)
    return opened


def listen(bound: socket.socket, option: str = "-p") -> None:
    """Listen on a bound socket. StartError when another process has listened on its port since it
    was bound.
    """
    try:
        bound.listen(BACKLOG)
    except OSError as problem:
        where = join_address(*bound.getsockname()[:2])
        raise StartError(_refusal(problem, where, option)) from None


def _refusal(problem: OSError, where: str, option: str) -> str:
    if problem.errno == errno.EADDRINUSE:
        return (
            f"can't listen on {where}: the port is taken; stop the process that uses it "
            f"or choose another with {option} (-1: any free one)"
        )
    if problem.errno == errno.EACCES:
        return f"can't listen on {where}: not allowed; choose a port above 1023 with {option}"
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"can't listen on {where}: this machine has no such address; choose another with -a"
    return f"can't listen on {where}: {problem.strerror}"


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    if host in ("", "0.0.0.0", "::"):  # all addresses: one socket for both families, as in Go
        return [(socket.AF_INET6, "::") if _has_ipv6() else (socket.AF_INET, "0.0.0.0")]
    if ":" in host:
        return [(socket.AF_INET6, host)]
    if host.replace(".", "").isdigit():
        return [(socket.AF_INET, host)]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise StartError(
            f'unknown host "{host}" to listen on: {problem.strerror}; choose another with -a'
        ) from None
    unique = dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found)
    return [
        (family, address)
        for family, address in unique
        if family in (socket.AF_INET, socket.AF_INET6)
    ]


def _has_ipv6() -> bool:
    """Whether this machine has IPv6; a kernel may be built without."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


class Listener:
    """Accepts connections from bound sockets while it is open."""

    def __init__(
        self,
        sockets: list[socket.socket],
        accepted: Callable[[socket.socket, str, int], None],
        event_loop: EventLoop,
        log: Log,
    ) -> None:
        """accepted(socket, host, port) gets the connected non-blocking socket, and detaches or
        closes it. It is called within a turn, which sends its output.
        """
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sockets = sockets
        self._accepted = accepted
        self._event_loop = event_loop
        self._log = log

    def open(self, loop: "asyncio.AbstractEventLoop | None" = None) -> None:
        """Listen and accept connections; called again when the event loop exists.

        StartError when another process has listened on a port since it was bound.
        """
        self._loop = loop
        for listening in self._sockets:
            listen(listening)
            self._event_loop.ignore(listening.fileno())
            self._event_loop.listen(listening.fileno(), partial(self._accept_batch, listening))

    def close(self) -> None:
        """Stop accepting and close the sockets."""
        for listening in self._sockets:
            self._event_loop.ignore(listening.fileno())
            listening.close()
        self._sockets = []

    def _accept_batch(self, listening: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                connected, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                self._pause(listening, problem)
                return
            try:
                connected.setblocking(False)
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._accepted(connected, plain_address(address[0]), address[1])
            except OSError:
                connected.close()

    def _pause(self, listening: socket.socket, problem: OSError) -> None:
        """Stop watching the socket for a moment; without an event loop, until there is one.

        Without free descriptors the socket stays readable, and the loop would spin.
        """
        hint = "; raise the limit of open files" if problem.errno in _NO_ROOM else ""
        self._log.error(f"Cannot accept a connection: {os.strerror(problem.errno or 0)}{hint}")
        self._event_loop.ignore(listening.fileno())
        if self._loop is not None:
            self._loop.call_later(NO_ROOM_PAUSE_SECONDS, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._event_loop.listen(listening.fileno(), partial(self._accept_batch, listening))


def plain_address(host: str) -> str:
    """The usual form of an address: IPv4 seen through an IPv6 socket loses its ``::ffff:``."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host
