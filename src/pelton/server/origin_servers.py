"""Connections to origin servers: other NATS servers whose streams this server follows.

    down --(time)--> connecting --INFO--> [TLS] --CONNECT, PING--> PONG --> up --(lost)--> down

An OriginLink is a link (`engine.sources.links`) for streams whose `external.api` is `$JS.<name>.API`,
where `<name>` is the key in `jetstream.remotes`. Requests to `$JS.API...` go to that server, and the
link subscribes there to the subjects of answers and messages. Received messages are handled at once,
and the turn is finished, as for clients.

The connection is an ordinary client connection. A lost connection is made again after a growing pause;
then the users of the link are notified and subscribe again.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable
from random import Random
from typing import cast
from urllib.parse import unquote, urlsplit

from pelton.core.broker.event_loop import EventLoop
from pelton.core.protocol import wire
from pelton.engine.sources.links import Receive, Subscribed
from pelton.server.logs.log import Log
from pelton.server.settings import OriginServer

FIRST_PAUSE_S = 0.25
LAST_PAUSE_S = 10.0
HANDSHAKE_S = 10.0
PING_S = 30.0
PINGS_OUT = 2
DEFAULT_PORT = 4222
PAYLOAD_MAX = 1 << 30  # the origin server has its own limit


class OriginLink:
    """The link to one origin server, or to one of several equivalent ones."""

    def __init__(
        self, settings: OriginServer, event_loop: EventLoop, log: Log, random: Random
    ) -> None:
        """No connection is made before `open`."""
        self.prefix = f"$JS.{settings.name}.API"
        self._settings = settings
        self._event_loop = event_loop
        self._log = log
        self._random = random
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._session: _Session | None = None
        self._watchers: list[Callable[[], None]] = []
        self._next = 0  # index of the next URL
        self._fails = 0

    # -- life cycle

    def open(self) -> None:
        """Connect, and reconnect after each loss, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._stay())

    def close(self) -> None:
        """Close the connection and do not reconnect."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._session is not None:
            self._session.abort()
            self._session = None

    async def _stay(self) -> None:
        while True:
            urls = self._settings.urls
            url = urls[self._next % len(urls)]
            self._next += 1
            try:
                await self._connect(url)
            except Exception as problem:  # after any error: try again
                self._say(url, str(problem) or type(problem).__name__)
            pause_s = min(FIRST_PAUSE_S * 2 ** min(self._fails, 10), LAST_PAUSE_S)
            self._fails += 1
            await asyncio.sleep(pause_s * (0.75 + self._random.random() / 2))

    def _say(self, url: str, problem: str) -> None:
        if self._fails in (0, 10):  # not every failure is logged
            self._log.warn(f"remote {self._settings.name}: {without_secret(url)}: {problem}")

    async def _connect(self, url: str) -> None:
        """Run one connection from connect to close."""
        assert self._loop is not None
        parts = urlsplit(url)
        session = _Session(self, self._settings, url)
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                tls = self._settings.tls
                first = tls is not None and tls.handshake_first
                await self._loop.create_connection(
                    lambda: session,
                    parts.hostname or "",
                    parts.port or DEFAULT_PORT,
                    ssl=session.context() if first else None,
                )
                asked = (tls is not None or parts.scheme == "tls") and not first
                await session.shake_hands(self._loop, asked=asked, secured=first)
        except BaseException:
            session.abort()
            raise
        self._fails = 0
        self._session = session
        self._log.info(f"remote {self._settings.name}: connected to {without_secret(url)}")
        self._changed()
        pings = self._loop.create_task(session.keep_pinging())
        try:
            reason = await session.ended
        finally:
            pings.cancel()
            self._session = None
            session.abort()
            self._changed()
        self._log.warn(f"remote {self._settings.name}: {without_secret(url)}: {reason}")

    def _changed(self) -> None:
        self._event_loop.now_ns = self._event_loop.clock.now()
        for watcher in list(self._watchers):
            watcher()
        self._event_loop.kick()

    # -- the Link interface

    @property
    def up(self) -> bool:
        """See Link."""
        return self._session is not None

    def publish(self, subject: str, reply: str, headers: bytes, payload: bytes) -> None:
        """See Link; ignored while the link is down."""
        if self._session is not None:
            self._session.write(wire.pub(subject, reply, headers, payload))

    def subscribe(self, subject: str, receive: Receive) -> Subscribed:
        """See Link; the subscription ends with the connection."""
        return _Subscription(self._session, subject, receive)

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """See Link."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def received(self, work: Callable[[], None]) -> None:
        """Process received messages as a turn; the session calls it."""
        self._event_loop.now_ns = self._event_loop.clock.now()
        try:
            work()
        finally:
            self._event_loop.kick()


class _Session(asyncio.Protocol):
    """One connection."""

    def __init__(self, remote: OriginLink, settings: OriginServer, url: str) -> None:
        self._remote = remote
        self._settings = settings
        self._url = url
        self._transport: asyncio.Transport | None = None
        self._parser = wire.Parser(wire.ROLE_CLIENT, None, PAYLOAD_MAX)
        loop = asyncio.get_running_loop()
        self._info: asyncio.Future[bytes] = loop.create_future()
        self._pong: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[str] = loop.create_future()
        self._pings_out = 0
        self._last_sid = 0
        self.receivers: dict[int, Receive] = {}

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error is not None else "the server closed the connection")

    def data_received(self, data: bytes) -> None:
        try:
            events = self._parser.feed(data)
        except wire.WireError as error:
            read = error.events
            self._remote.received(lambda: self._do(read))
            self._end(f"the server violated the protocol: {error}")
            return
        self._remote.received(lambda: self._do(events))

    # -- connect

    def context(self) -> ssl.SSLContext:
        """The TLS context: how the origin server is checked, and the own certificate. StartError
        when a file can't be used.
        """
        from pelton.server.transports.tls import client_context

        return client_context(self._settings.tls, f"remote {self._settings.name}")

    async def shake_hands(
        self, loop: asyncio.AbstractEventLoop, *, asked: bool, secured: bool
    ) -> None:
        """Exchange INFO, CONNECT, PING and PONG.

        `asked`: TLS is required; `secured`: the connection has TLS already. OSError or ValueError
        when the other side does not follow the protocol.
        """
        info = json.loads(await self._info)
        wanted = info.get("tls_required")
        if asked and not (wanted or info.get("tls_available")):
            raise ConnectionError("the server does not support TLS")
        if not secured and (asked or wanted):
            assert self._transport is not None
            host = urlsplit(self._url).hostname
            encrypted = await loop.start_tls(
                self._transport, self, self.context(), server_hostname=host
            )
            if encrypted is None:
                raise ConnectionError("the server closed the connection during the TLS handshake")
            self._transport = encrypted
        hello = {
            "verbose": False,
            "pedantic": False,
            "echo": True,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "python",
            "version": "1",
            "name": f"pelton remote {self._settings.name}",
            **self._credentials(),
        }
        self.write(b"CONNECT %s\r\nPING\r\n" % json.dumps(hello).encode())
        await self._pong

    def _credentials(self) -> dict[str, str]:
        settings, parts = self._settings, urlsplit(self._url)
        if settings.token:
            return {"auth_token": settings.token}
        if settings.user:
            return {"user": settings.user, "pass": settings.password}
        if parts.username and parts.password is None:
            return {"auth_token": unquote(parts.username)}
        if parts.username:
            return {"user": unquote(parts.username), "pass": unquote(parts.password or "")}
        return {}

    async def keep_pinging(self) -> None:
        """Send pings, and close the connection when answers stay out."""
        while True:
            await asyncio.sleep(PING_S)
            self._pings_out += 1
            if self._pings_out > PINGS_OUT:
                self._end("the server did not answer PING")
                return
            self.write(b"PING\r\n")

    # -- operations

    def write(self, data: bytes) -> None:
        """Send bytes to the origin server."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def subscribe(self, subject: str, receive: Receive) -> int:
        """Subscribe; returns the subscription's number."""
        self._last_sid += 1
        self.receivers[self._last_sid] = receive
        self.write(b"SUB %s %d\r\n" % (subject.encode("utf-8", "surrogateescape"), self._last_sid))
        return self._last_sid

    def unsubscribe(self, sid: int) -> None:
        """Remove the subscription."""
        if self.receivers.pop(sid, None) is not None:
            self.write(b"UNSUB %d\r\n" % sid)

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _do(self, events: list[tuple[object, ...]]) -> None:
        for event in events:
            kind = event[0]
            if kind == wire.OP_MSG:
                _, subject, sid, reply, headers, payload = cast(
                    tuple[int, str, int, str, bytes, bytes], event
                )
                receive = self.receivers.get(sid)
                if receive is not None:
                    receive(subject, reply, headers, payload)
            elif kind == wire.OP_PING:
                self.write(b"PONG\r\n")
            elif kind == wire.OP_PONG:
                self._pings_out = 0
                if not self._pong.done():
                    self._pong.set_result(None)
            elif kind == wire.OP_INFO:
                if not self._info.done():
                    self._info.set_result(cast(bytes, event[1]))
            elif kind == wire.OP_ERR:
                self._complaint(cast(bytes, event[1]).decode("utf-8", "replace"))

    def _complaint(self, text: str) -> None:
        """Handle -ERR: after most errors the other side closes the connection."""
        if not text.lower().startswith(("permissions violation", "invalid")):
            self._end(f"the server reports: {text}")

    def _end(self, reason: str) -> None:
        problem = ConnectionError(reason)
        for waiting in (self._info, self._pong):
            if not waiting.done():
                with contextlib.suppress(asyncio.InvalidStateError):
                    waiting.set_exception(problem)
                waiting.exception()  # marks the exception as retrieved
        if not self.ended.done():
            self.ended.set_result(reason)


class _Subscription:
    """A subscription of one connection; it ends with that connection."""

    def __init__(self, session: _Session | None, subject: str, receive: Receive) -> None:
        self._session = session
        self._sid = session.subscribe(subject, receive) if session is not None else 0

    def close(self) -> None:
        """See Subscribed."""
        if self._session is not None:
            self._session.unsubscribe(self._sid)


def without_secret(url: str) -> str:
    """A URL for the log, without its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
