"""Listening sockets: binds them, listens when a connection can be served, accepts connections in batches
within the core's turns, and gives each descriptor to a callback.
"""

import errno
import os
import socket
from collections.abc import Callable
from functools import partial

from penstock.core.broker.event_loop import EventLoop
from penstock.server.errors import StartError
from penstock.server.logs.log import Log
from penstock.server.units import join_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

ACCEPT_BATCH = 256  # connections taken in one turn, before the others get their turn again
BACKLOG = 4096
NO_ROOM_PAUSE_SECONDS = 0.2
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def open_sockets(host: str, port: int, option: str = "-p") -> list[socket.socket]:
    """Bound sockets for a host (``0.0.0.0`` and ``::`` both mean all addresses, IPv4 and IPv6; a
    name may have several addresses). They refuse connections until a Listener is opened on them.

    port -1 or 0 takes a free one, the same on every address. StartError says which address can't be
    had and why.
    """
    wanted = max(port, 0)
    opened: list[socket.socket] = []
    for family, address in _addresses(host, wanted):
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                # "::" takes IPv4 as well; an explicit address takes what it names
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
    """Let connections come to a bound socket. StartError when somebody else listens on its port
    since it was bound.
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
    if host in ("", "0.0.0.0", "::"):  # all addresses: one socket for both, as Go's listeners
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
    """Whether this machine has IPv6 at all: a kernel may be without."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


class Listener:
    """Takes connections from bound sockets as long as it is open."""

    def __init__(
        self,
        sockets: list[socket.socket],
        accepted: Callable[[socket.socket, str, int], None],
        event_loop: EventLoop,
        log: Log,
    ) -> None:
        """accepted(socket, host, port) takes the connected non-blocking socket over (and detaches
        or closes it). It is called within a turn, which sends what it writes.
        """
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sockets = sockets
        self._accepted = accepted
        self._event_loop = event_loop
        self._log = log

    def open(self, loop: "asyncio.AbstractEventLoop | None" = None) -> None:
        """Listen, and accept whenever somebody comes; said again when there is a loop at last.
        StartError when somebody else listens on a port since it was bound.
        """
        self._loop = loop
        for listening in self._sockets:
            listen(listening)
            self._event_loop.ignore(listening.fileno())
            self._event_loop.listen(listening.fileno(), partial(self._accept_batch, listening))

    def close(self) -> None:
        """Stop accepting and give the ports back."""
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
        """Without descriptors the socket stays readable: look away for a moment instead of
        spinning; without a loop, until there is one.
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
    """An address as people write it: IPv4 seen through an IPv6 socket loses its ``::ffff:``."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host
