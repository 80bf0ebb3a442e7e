"""A connection for asyncio: what ``connect`` opens.

The loop carries bytes between the transport and the state machine of ``client/connection.py``;
output is gathered and written once per turn of the loop. A lost connection is replaced in the
background: subscriptions go on, what is published meanwhile is kept up to a limit, requests under
way fail with ConnectionLost.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import (
    ConnectError,
    ConnectionLost,
    NoResponders,
    PenstockError,
    Timeout,
)
from penstock.nuid import Nuid

from . import connection as machine
from .aio_handlers import Handlers, Stats
from .aio_message import Message
from .aio_subscription import Subscription
from .aio_transport import Link
from .durations import to_seconds
from .jetstream import Headers, encode_header_map
from .message import BaseMessage
from .pool import ServerPool
from .tls import make_context

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from .aio_jetstream import JetStream
    from .durations import Duration
    from .info import ServerInfo
    from .options import Options, Server

OUTPUT_BYTES = 64 * 1024  # more than this is written at once instead of at the end of the turn
PENDING_MESSAGES_MAX = 524_288
PENDING_BYTES_MAX = 128 * 1024 * 1024
CLOSE_TIMEOUT_S = 2.0

Callback: TypeAlias = "Callable[[Message], object]"
"""What handles the messages of a subscription: a function or a coroutine function."""

logger = logging.getLogger(__name__)


class Client:
    """A connection for asyncio; made by ``connect``. Belongs to the loop it was made in."""

    def __init__(
        self, options: Options, handlers: Handlers, tls_context: ssl.SSLContext | None = None
    ) -> None:
        """Nothing is opened yet: ``open`` does."""
        self.options = options
        self.connection = machine.Connection(options, Message)
        self.reconnects = 0
        self.last_error: Exception | None = None
        self.watchers: set[Any] = set()
        """Objects whose ``lost(error)`` is called when the connection breaks."""
        self._handlers = handlers
        self._tls_context = tls_context
        self._pool = ServerPool(options, random.random)
        self._nuid = Nuid(random.SystemRandom())
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._handshake: asyncio.Future[None] | None = None
        self._flush_planned = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: set[asyncio.Task[Any]] = set()
        self._requests: dict[str, asyncio.Future[Message]] = {}
        self._request_count = 0
        self._inbox = ""
        self._ping_timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Client:
        """The client itself, already open."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    # -- state -------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now."""
        return self.connection.connected

    @property
    def closed(self) -> bool:
        """Whether the client was closed, by its owner or because no server was left."""
        return self.connection.state is machine.State.CLOSED

    @property
    def server_info(self) -> ServerInfo:
        """What the server said of itself last."""
        return self.connection.info

    @property
    def stats(self) -> Stats:
        """Messages and bytes both ways, and reconnects."""
        at = self.connection
        return Stats(
            at.messages_received,
            at.messages_sent,
            at.bytes_received,
            at.bytes_sent,
            self.reconnects,
        )

    # -- opening -----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect to the first server that takes us; ConnectError with every server's reason."""
        error: Exception | None = None
        for _ in self.options.servers:
            error = await self._try_next()
            if error is None:
                return
        self.connection.close()
        raise self._pool.error(error)

    async def _try_next(self) -> Exception | None:
        """One attempt at the next server; None when it took us. ConnectError when no server is
        left.
        """
        choice = self._pool.next()
        if choice is None:
            raise self._pool.error()
        server, wait = choice
        if wait:
            await asyncio.sleep(wait)
        try:
            async with asyncio.timeout(self.options.connect_timeout):
                await self._open_one(server)
        except TimeoutError:
            error: Exception = ConnectError(f"no answer in {self.options.connect_timeout} s")
        except (
            PenstockError,
            OSError,
            ValueError,
        ) as failure:  # ValueError: a host that is no name
            error = failure
        else:
            self._pool.succeeded()
            self._plan_ping()
            return None
        finally:
            self._handshake = None
        self._drop_link()
        self._pool.failed(error)
        return error

    async def _open_one(self, server: Server) -> None:
        first = self.options.tls is not None and self.options.tls.first
        self._handshake = self._loop.create_future()
        context = self._tls() if first else None
        self._link = link = Link(self, server, tls=first)
        hostname = self._tls_hostname(server) if first else None
        await self._loop.create_connection(
            lambda: link, server.host, server.port, ssl=context, server_hostname=hostname
        )
        await self._handshake

    def _tls(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = make_context(self.options.tls)
        return self._tls_context

    def _tls_hostname(self, server: Server) -> str:
        return (self.options.tls.hostname if self.options.tls else None) or server.host

    async def _start_tls(self, server: Server, link: Link) -> None:
        try:
            await link.start_tls(self._tls(), self._tls_hostname(server))
        except (OSError, PenstockError, ValueError) as error:  # ValueError: a host that is no name
            self._fail_handshake(ConnectError(f"TLS handshake failed: {error}"))
            return
        if link is self._link:
            self.connection.tls_established()
            self.flush_output()

    def _fail_handshake(self, error: Exception) -> None:
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(error)

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        self.connection.receive_eof()
        self._discard_events()

    def _discard_events(self) -> None:
        self.connection.events()

    async def _reconnect(self) -> None:
        try:
            while await self._try_next() is not None:
                pass
        except ConnectError as error:
            self.last_error = error
            self._shut(f"gave up reconnecting: {error}")
            return
        self.reconnects += 1
        self.tell(self._handlers.on_reconnect)

    # -- bytes -------------------------------------------------------------------------------------

    def link_made(self, link: Link) -> None:
        """The transport stands."""
        if link is self._link:
            self.connection.connected_to(link.server, tls=link.tls)

    def link_received(self, link: Link, data: bytes) -> None:
        """Bytes came."""
        if link is not self._link:
            return
        self.connection.receive_data(data)
        self._process()
        if self.connection.bytes_waiting:
            self.flush_output()

    def link_lost(self, link: Link, error: Exception | None) -> None:
        """The transport is gone."""
        if link is self._link:
            self.connection.receive_eof(error)
            self._process()

    def _process(self) -> None:
        for event in self.connection.events():
            if not isinstance(event, BaseMessage):
                self._on_event(event)
                continue
            try:
                event.interest.owner.receive(event)
            except (PenstockError, ValueError) as error:  # of this message; the others still count
                self.report(error)

    def _on_event(self, event: machine.Event) -> None:
        if isinstance(event, machine.Pong):
            future = event.waiter
            assert isinstance(future, asyncio.Future)
            if not future.done():
                future.set_result(None)
        elif isinstance(event, machine.Ended):
            event.interest.owner.end()
        elif isinstance(event, machine.ServerComplaint):
            self.report(event.error)
        elif isinstance(event, machine.TlsRequired):
            assert self._link is not None
            self.spawn(self._start_tls(event.server, self._link))
        elif isinstance(event, machine.Connected):
            self._pool.learn(event.info.connect_urls)
            if self._handshake is not None and not self._handshake.done():
                self._handshake.set_result(None)
        elif isinstance(event, machine.InfoChanged):
            self._pool.learn(event.info.connect_urls)
        elif isinstance(event, machine.LameDuck):
            self.tell(self._handlers.on_lame_duck)
        elif isinstance(event, machine.Disconnected):
            self._on_disconnected(event)

    def _on_disconnected(self, event: machine.Disconnected) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        error = event.error or ConnectionLost("the connection was closed")
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(error)
            return
        if self._handshake is not None:  # broke between the handshake and whoever waits for it
            self._handshake = None
        self.last_error = error
        self._stop_ping()
        lost = ConnectionLost(str(error))
        for waiter in event.waiters:
            if isinstance(waiter, asyncio.Future) and not waiter.done():
                waiter.set_exception(lost)
        self._fail_requests(lost)
        for watcher in list(self.watchers):
            watcher.lost(lost)
        self.tell(self._handlers.on_disconnect, event.error)
        if self.options.reconnect:
            self.spawn(self._reconnect())
        else:
            self._shut(f"the connection is lost, and reconnect is off: {error}")

    def _fail_requests(self, error: PenstockError) -> None:
        for future in self._requests.values():
            if not future.done():
                future.set_exception(error)

    def plan_flush(self) -> None:
        """Write what is queued at the end of this turn of the loop, or now when it is much."""
        if self.connection.bytes_waiting > OUTPUT_BYTES:
            self.flush_output()
        elif not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self.flush_output)

    def flush_output(self) -> None:
        """Hand what is queued to the transport."""
        self._flush_planned = False
        if self._link is not None and self.connection.bytes_waiting:
            self._link.write(self.connection.data_to_send())

    async def wait_writable(self) -> None:
        """Wait while the transport has more than enough to write."""
        link = self._link
        if link is not None and link.paused:
            await link.wait_writable()

    # -- keeping alive -----------------------------------------------------------------------------

    def _plan_ping(self) -> None:
        self._stop_ping()
        self._ping_timer = self._loop.call_later(self.options.ping_interval, self._keep_alive)

    def _stop_ping(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None

    def _keep_alive(self) -> None:
        if not self.connection.connected:
            return
        if self.connection.pings_outstanding >= self.options.pings_outstanding_max:
            self.connection.receive_eof(TimeoutError("stale: pings are not answered"))
            self._process()
            return
        self.connection.ping()
        self.plan_flush()
        self._plan_ping()

    # -- telling -----------------------------------------------------------------------------------

    def spawn(self, work: Any, *, finishes: bool = False) -> asyncio.Task[Any]:
        """Run a coroutine beside everything else; cancelled on close unless it ``finishes`` by
        itself.
        """
        task: asyncio.Task[Any] = self._loop.create_task(work)
        tasks = self._workers if finishes else self._tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def tell(self, handler: Callable[..., Any] | None, *arguments: object) -> None:
        """Call a handler; what it raises is logged."""
        if handler is None:
            return
        try:
            result = handler(*arguments)
        except Exception:
            logger.exception("a handler of the client failed")
            return
        if inspect.isawaitable(result):
            self.spawn(_await(result))

    def report(self, error: Exception) -> None:
        """An error that no call can raise: to ``on_error``, or to the log."""
        self.last_error = error
        if self._handlers.on_error is None:
            logger.warning("%s: %s", type(error).__name__, error, exc_info=error.__cause__)
        else:
            self.tell(self._handlers.on_error, error)

    # -- closing -----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send what is queued and close; a second time does nothing."""
        if self.closed:
            return
        self.flush_output()
        link = self._link
        self._shut()
        if link is not None:
            await link.wait_closed(CLOSE_TIMEOUT_S)

    def _shut(self, failure: str = "") -> None:
        """Everything ends; calls under way fail. ``failure``: why, unless the owner closes."""
        if self.closed:
            return
        if failure:
            logger.error("the client is closed: %s", failure)
        self._stop_ping()
        owners = [interest.owner for interest in self.connection.interests.values()]
        link, self._link = self._link, None
        self.connection.close(failure)
        error = self.connection.closed_error()
        for event in self.connection.events():
            if isinstance(event, machine.Disconnected):
                for waiter in event.waiters:
                    if isinstance(waiter, asyncio.Future) and not waiter.done():
                        waiter.set_exception(error)
        self._fail_requests(error)
        for watcher in list(self.watchers):
            watcher.lost(error)
        for owner in owners:
            owner.end()
        if link is not None:
            link.close()
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        handler = self._handlers.on_close
        if handler is not None:
            self.tell(handler)

    async def drain(self, timeout: Duration | None = None) -> None:
        """Take and handle what is on its way for every subscription, send what is queued, and
        close.
        """
        subscriptions = [
            interest.owner
            for interest in self.connection.interests.values()
            if isinstance(interest.owner, Subscription)
        ]
        seconds = self.timeout_of(timeout)
        try:
            async with asyncio.timeout(seconds):
                for subscription in subscriptions:
                    await subscription.drain()
                await self.flush()
        except TimeoutError:
            raise Timeout(f"not drained in {seconds} s") from None
        finally:
            await self.close()

    # -- verbs -------------------------------------------------------------------------------------

    def timeout_of(self, timeout: Duration | None) -> float:
        """The timeout that counts, in seconds: the one given, or that of the options."""
        return self.options.timeout if timeout is None else to_seconds(timeout)

    def new_inbox(self) -> str:
        """A subject nobody else uses."""
        return f"{self.options.inbox_prefix}.{self._nuid.next()}"

    async def publish(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: Headers | None = None
    ) -> None:
        """Send a message; waits only while the connection does not take more.

        Raises InvalidSubject, PayloadTooLarge, ConnectionClosed, and OutputFull when too much was
        published without a connection.
        """
        self.connection.publish(subject, data, reply, encode_header_map(headers))
        self.plan_flush()
        if self._link is not None and self._link.paused:
            await self.wait_writable()

    async def subscribe(
        self,
        subject: str,
        *,
        queue: str = "",
        callback: Callback | None = None,
        max_msgs: int = 0,
        pending_messages_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
    ) -> Subscription:
        """Ask for the messages of a subject, which may hold wildcards; a queue group shares them.

        Without a callback the subscription is iterated. With max_msgs it ends after that many.
        Messages over the pending limits are dropped, and SlowConsumer tells.
        """
        subscription = Subscription(self, callback, pending_messages_max, pending_bytes_max)
        self.attach(subject, subscription, queue)
        if max_msgs:
            self.connection.unsubscribe(subscription.interest, max_msgs)
        return subscription

    def attach(self, subject: str, owner: Any, queue: str = "") -> None:
        """Subscribe for an owner with ``interest``, ``receive(message)`` and ``end()``."""
        owner.interest = self.connection.subscribe(subject, queue, owner)
        self.plan_flush()

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        timeout: Duration | None = None,
        headers: Headers | None = None,
        raw_headers: bytes = b"",
    ) -> Message:
        """Publish and wait for one answer.

        Raises NoResponders, Timeout, ConnectionLost when the connection broke meanwhile, and what
        publish raises.
        """
        if not self._inbox:
            self._inbox = self.new_inbox()
            self.connection.subscribe(f"{self._inbox}.*", owner=_Answers(self._requests))
        self._request_count += 1
        reply = f"{self._inbox}.{self._request_count}"
        future: asyncio.Future[Message] = self._loop.create_future()
        self.connection.publish(subject, data, reply, raw_headers or encode_header_map(headers))
        self.plan_flush()
        self._requests[reply] = future
        seconds = self.timeout_of(timeout)
        timer = self._loop.call_later(seconds, _expire, future, subject, seconds)
        try:
            answer = await future
        finally:
            timer.cancel()
            del self._requests[reply]
        if answer.status == 503:
            raise NoResponders(subject)
        return answer

    async def flush(self, timeout: Duration | None = None) -> None:
        """Wait until the server has taken all that was sent; Timeout, ConnectionLost."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.connection.ping(future)
        self.flush_output()
        seconds = self.timeout_of(timeout)
        timer = self._loop.call_later(seconds, _expire, future, "PING", seconds)
        try:
            await future
        finally:
            timer.cancel()

    async def rtt(self) -> float:
        """Seconds the server takes to answer a ping."""
        start = time.perf_counter()
        await self.flush()
        return time.perf_counter() - start

    def jetstream(
        self,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: Duration | None = None,
    ) -> JetStream:
        """Streams and consumers over this connection."""
        from .aio_jetstream import JetStream

        return JetStream(self, domain=domain, prefix=prefix, timeout=self.timeout_of(timeout))


async def _await(result: Awaitable[Any]) -> None:
    try:
        await result
    except Exception:
        logger.exception("a handler of the client failed")


def _expire(future: asyncio.Future[Any], subject: str, seconds: float) -> None:
    if not future.done():
        future.set_exception(Timeout(f"no answer from {subject!r} in {seconds} s"))


class _Answers:
    """Owner of the inbox that all requests share."""

    def __init__(self, requests: dict[str, asyncio.Future[Message]]) -> None:
        """The futures by reply subject."""
        self._requests = requests

    def receive(self, message: Message) -> None:
        """An answer came."""
        future = self._requests.get(message.subject)
        if future is not None and not future.done():
            future.set_result(message)

    def end(self) -> None:
        """The client is closed; the requests were failed by it."""
