"""The profile port: an HTTP server with its own threads, because a profile takes seconds and observes the
event loop from outside. A client of this port can slow the server down: do not expose it.
"""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from pelton.server.monitor.profile import answer
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState
from pelton.server.transports.listener import open_sockets

READ_SECONDS = 10


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    server_state: ServerState


class _Handler(BaseHTTPRequestHandler):
    timeout = READ_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Answer with one profile."""
        target = urlsplit(self.path)
        found = answer(self.server.server_state, target.path, Query(parse_qsl(target.query)))
        self.send_response(found.status)
        self.send_header("Content-Type", found.kind)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        self.wfile.write(found.body)

    def log_message(self, *args: object) -> None:
        """Do not log requests."""


class ProfilePort:
    """The profile port; it listens until close()."""

    def __init__(self, host: str, port: int, server_state: ServerState) -> None:
        """Listen on a port; -1: any free port. Raises StartError."""
        bound, *others = open_sockets(host, port, "--profile")
        for each in others:  # a name with several addresses: listen on the first one
            each.close()
        self.port: int = bound.getsockname()[1]
        self._server = _Server((host, self.port), _Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = bound
        self._server.server_state = server_state
        self._server.server_activate()
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="profile port", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Accept no further connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
