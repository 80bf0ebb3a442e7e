"""Opening a socket, and encrypting it, for the blocking client.

Nothing here blocks but the look-up of a host's name: the client's bell ends each wait, so that ``close``
in another thread ends an attempt to connect at once. Called with the client's guard, which waits give
away.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
from typing import TYPE_CHECKING

from pelton.errors import ConnectError

from ..protocol.socks import talk
from .locks import READABLE, WRITABLE, Bell, Guard, new_poll

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..protocol.socks import Proxy

# Windows has a number of its own for it.
_UNDER_WAY = {errno.EINPROGRESS, getattr(errno, "WSAEWOULDBLOCK", errno.EINPROGRESS)}
_WAIT_MAX_S = 3600.0  # poll() takes milliseconds in a C int


class Patience:
    """How long an attempt to connect may wait, and what ends it sooner."""

    def __init__(self, guard: Guard, bell: Bell, over: Callable[[], bool], deadline: float) -> None:
        """``over`` tells whether the client is closed; who closes it wakes the bell."""
        self.deadline = deadline
        self._guard = guard
        self._bell = bell
        self._over = over

    def wait(self, waited: socket.socket, events: int, deadline: float) -> None:
        """Wait until the socket is ready; TimeoutError at the deadline, ConnectError after ``close``."""
        poll = new_poll()
        poll.register(waited, events)
        poll.register(self._bell, READABLE)
        fileno, bell = waited.fileno(), self._bell
        while True:
            bell.attend()
            self.check()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            if not bell.begin_wait():
                continue
            given: list[object] = []
            try:
                self._guard.give_away(given)
                ready = poll.poll(min(left, _WAIT_MAX_S) * 1000)
            finally:
                if given:
                    self._guard.regain(given[0])
                bell.end_wait()
            self.check()
            if any(number == fileno for number, _ in ready):
                return

    def check(self) -> None:
        """Raise ConnectError when the client was closed."""
        if self._over():
            raise ConnectError("the client was closed while it connected")

    def connect(self, host: str, port: int) -> socket.socket:
        """A connected socket that does not block; OSError with the last address's reason."""
        found = self._guard.without(socket.getaddrinfo, host, port, 0, socket.SOCK_STREAM)
        error = OSError(f"{host} has no address")
        for number, (family, kind, protocol, _, address) in enumerate(found):
            self.check()
            now = time.monotonic()
            share = (self.deadline - now) / (len(found) - number)
            opened = socket.socket(family, kind, protocol)
            try:
                opened.setblocking(False)
                code = opened.connect_ex(address)
                if code in _UNDER_WAY:
                    self.wait(opened, WRITABLE, now + share)
                    code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
            except OSError as reason:
                opened.close()
                error = reason
            except BaseException:
                opened.close()
                raise
            else:
                return opened
        raise error

    def connect_through(self, proxy: Proxy, host: str, port: int) -> socket.socket:
        """The same behind a SOCKS proxy; ConnectError when the proxy refuses."""
        try:
            opened = self.connect(proxy.host, proxy.port)
        except OSError as error:
            raise ConnectError(f"the proxy {proxy}: {error}") from None
        try:
            conversation = talk(proxy, host, port)
            data, wanted = next(conversation)
            while True:
                self._send(opened, data)
                data, wanted = conversation.send(self._receive(opened, wanted))
        except StopIteration:
            return opened
        except BaseException:
            opened.close()
            raise

    def _send(self, opened: socket.socket, data: bytes) -> None:
        while data:
            try:
                data = data[opened.send(data) :]
            except BlockingIOError:
                self.wait(opened, WRITABLE, self.deadline)

    def _receive(self, opened: socket.socket, size: int) -> bytes:
        while True:
            try:
                return opened.recv(size)
            except BlockingIOError:
                self.wait(opened, READABLE, self.deadline)

    def shake_hands(self, encrypted: ssl.SSLSocket) -> None:
        """The handshake of TLS; OSError (also ssl.SSLError) when it fails."""
        while True:
            self.check()
            try:
                encrypted.do_handshake()
            except ssl.SSLWantReadError:
                self.wait(encrypted, READABLE, self.deadline)
            except ssl.SSLWantWriteError:
                self.wait(encrypted, WRITABLE, self.deadline)
            else:
                return
