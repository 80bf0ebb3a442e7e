"""Log lines to syslog: the machine's own, or another one over UDP, TCP or a Unix socket.

    <29>Jan 31 14:05:09 pelton-server[4711]: Server is ready                        the machine's
    <29>2026-01-31T14:05:09+01:00 host pelton-server[4711]: Server is ready         another one

The server never waits for a syslog: a line that can't be sent at once is dropped, and a lost connection
is made again after some seconds.
"""

import os
import socket
import time
from urllib.parse import urlsplit

from pelton.server.errors import StartError

TAG = "pelton-server"
LOCAL_PATHS = ("/dev/log", "/var/run/syslog", "/var/run/log")
AGAIN_SECONDS = 5.0
CONNECT_SECONDS = 2.0
_DAEMON = 3 << 3
_SEVERITY = {"FTL": 2, "ERR": 3, "WRN": 4, "INF": 5, "TRC": 5, "DBG": 7}
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


class Syslog:
    """One syslog. ``write`` never blocks and never raises."""

    def __init__(self, address: str = "") -> None:
        """Connect to an address: udp://host:port, tcp://host:port or a path; an empty one is the
        machine's own syslog. StartError when the syslog is not reachable.
        """
        self.address = address
        self._host = socket.gethostname()
        self._pid = os.getpid()
        self._stream = False
        self._retry_at = 0.0
        self._socket: socket.socket | None = None
        try:
            self._connect()
        except (OSError, ValueError) as problem:
            where = f"syslog at {address}" if address else "the syslog of this machine"
            raise StartError(f"can't reach {where}: {problem}") from None

    def _connect(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme in ("udp", "tcp"):
            self._stream = parts.scheme == "tcp"
            kind = socket.SOCK_STREAM if self._stream else socket.SOCK_DGRAM
            if not parts.hostname or not parts.port:
                raise ValueError(f'"{self.address}" has no host and port')
            found = socket.getaddrinfo(parts.hostname, parts.port, type=kind)[0]
            self._socket = self._opened(found[0], kind, found[4])
            return
        if self.address and parts.scheme not in ("", "unix", "unixgram"):
            raise ValueError("the address has to be udp://host:port, tcp://host:port or a path")
        paths = (parts.path,) if self.address else LOCAL_PATHS
        problem: OSError = FileNotFoundError(f"no socket at {' or '.join(paths)}")
        for path in paths:
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                try:
                    self._socket = self._opened(socket.AF_UNIX, kind, path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    problem = error
                    continue
                self._stream = kind == socket.SOCK_STREAM
                return
        raise problem

    def _opened(
        self, family: int, kind: socket.SocketKind, to: tuple[object, ...] | str
    ) -> socket.socket:
        opened = socket.socket(family, kind)
        try:
            opened.settimeout(CONNECT_SECONDS)
            opened.connect(to)
        except OSError:
            opened.close()
            raise
        opened.setblocking(False)
        return opened

    def write(self, level: str, text: str) -> None:
        """Send a line; drop it when it can't be sent at once."""
        now = time.time()
        if self._socket is None and not self._again(now):
            return
        data = self._line(level, text, now).encode("utf-8", "backslashreplace")
        try:
            assert self._socket is not None
            self._socket.send(data + b"\n" if self._stream else data)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            self._retry_at = now + AGAIN_SECONDS

    def _again(self, now: float) -> bool:
        if now < self._retry_at:
            return False
        self._retry_at = now + AGAIN_SECONDS
        try:
            self._connect()
        except (OSError, ValueError):
            return False
        return True

    def _line(self, level: str, text: str, now: float) -> str:
        priority = _DAEMON | _SEVERITY[level]
        parts = time.localtime(now)
        if self.address:
            zone = time.strftime("%z", parts)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", parts) + f"{zone[:3]}:{zone[3:]}"
            return f"<{priority}>{stamp} {self._host} {TAG}[{self._pid}]: {text}"
        stamp = f"{_MONTHS[parts.tm_mon - 1]} {parts.tm_mday:2d} {time.strftime('%H:%M:%S', parts)}"
        return f"<{priority}>{stamp} {TAG}[{self._pid}]: {text}"

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
