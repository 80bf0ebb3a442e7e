"""What differs between the halves of the client, for asyncio: how bytes are carried, how a call waits, and what
handles events.

The loop carries bytes between the transport and the state machine of ``client/protocol/connection.py``;
output is gathered and written once per turn of the loop. The client replaces a lost connection in the
background: subscriptions go on, messages published meanwhile are kept up to a limit, and requests
under way fail with ConnectionLostError.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import math
import random
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from pelton.errors import ConnectError, ConnectionLostError, PeltonError

from ..base.addresses import Server, open_socket
from ..base.arguments import refuse
from ..base.mailbox import Mailbox, Owner
from ..base.message import BaseMessage, HeadersLike, encode_header_map
from ..protocol import events
from ..protocol.options import Options, begins_with_tls, make_context
from ..session.session import OUTPUT_BYTES, PENDING_BYTES_MAX, PENDING_MESSAGES_MAX, Session
from .attempts import connect_again, connect_first
from .subscription import Subscription
from .transport import Link, open_through
from .waiting import Waits, clock_of, until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Coroutine

    from ..protocol.events import OnProtocol
    from ..session.status import Status
    from .connection import Client
    from .messages import Message

CLOSE_TIMEOUT_S = 2.0

T = TypeVar("T")

Callback: TypeAlias = "Callable[[Message], object]"
"""A handler of the messages of a subscription: a function or a coroutine function."""

logger = logging.getLogger(__name__)


class Backend(Session):
    """The transport, the waits and the tasks of a client."""

    _stays_open = True

    def __init__(
        self,
        options: Options,
        message_type: type[BaseMessage],
        handlers: Handlers,
        tls_context: ssl.SSLContext | None = None,
    ) -> None:
        """Opens no connection: ``_open`` does."""
        self._loop = asyncio.get_running_loop()
        self._waits = Waits(self._loop, clock_of(self._loop))
        # Nobody may guess the subjects of answers, so the usual random numbers will not do.
        super().__init__(options, message_type, self._waits.clock, random.SystemRandom())
        self._handlers = handlers
        self._listen(handlers.on_status, handlers.on_protocol, handlers.on_error)
        self._tls_context = tls_context
        self._link: Link | None = None
        self._handshake: asyncio.Future[None] | None = None
        self._flush_planned = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self._workers: set[asyncio.Task[Any]] = set()
        self._ping_timer: asyncio.TimerHandle | None = None
        # Weak: finalizers of handles refer to the connection, and must not keep the client alive by it.
        self._connection.on_abandoned = functools.partial(
            _call_soon, self._loop, weakref.WeakMethod(self._settle_abandoned)
        )

    # -- opening -----------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Connect to the first server that accepts; ConnectError with every server's reason."""
        try:
            await connect_first(self)
        except ConnectError:
            self._connection.close()
            raise

    async def _dial(self, server: Server) -> None:
        """Connect to a server.

        A failure raises PeltonError, OSError or ValueError, and drops the link.
        """
        try:
            async with asyncio.timeout(self.options.connect_timeout):
                await self._open_one(server)
        except TimeoutError:
            self._drop_link()
            raise ConnectError(f"no answer in {self.options.connect_timeout} s") from None
        except BaseException:
            self._drop_link()
            raise
        finally:
            self._handshake = None
        self._plan_ping()

    async def _open_one(self, server: Server) -> None:
        first = begins_with_tls(server, self.options.tls)
        # Before the transport opens: INFO, and even the end, may arrive before create_connection returns.
        self._handshake = self._loop.create_future()
        context = self._tls() if first else None
        self._link = link = Link(self, server, tls=first)
        hostname = self._tls_hostname(server) if first else None
        if server.memory or self.options.socks_proxy:
            connected = (
                open_socket(server.host, waits=False)
                if server.memory
                else await open_through(self._loop, self.options.socks_proxy, server)
            )
            await self._loop.create_connection(
                lambda: link, sock=connected, ssl=context, server_hostname=hostname
            )
        else:
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
        except (OSError, PeltonError, ValueError) as error:  # ValueError: an invalid host name
            self._fail_handshake(ConnectError(f"TLS handshake failed: {error}"))
            return
        # The attempt may have been given up during the handshake.
        if link is self._link:
            self._connection.tls_established()
            self._flush_output()

    def _fail_handshake(self, error: Exception) -> None:
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(error)

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        # The state machine must be ready for the next attempt. Its events are dropped, because ``_dial``
        # raises the reason itself.
        self._connection.receive_eof()
        self._connection.events()

    def _release_socket(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.release()

    async def _reconnect(self) -> None:
        try:
            await connect_again(self, math.inf)
        except ConnectError as error:
            self.last_error = error
            self._shut(f"gave up reconnecting: {error}")
            return
        self._tell(self._handlers.on_reconnect)

    # -- bytes -------------------------------------------------------------------------------------

    def _link_made(self, link: Link) -> None:
        """The transport is open."""
        if link is self._link:
            self._connection.connected_to(link.server, tls=link.tls)

    def _link_received(self, link: Link, data: bytes | memoryview) -> None:
        """Bytes arrived. The calls that wait for them go on, and what they send is written at once."""
        # A transport that was left may still deliver; its bytes belong to a connection that is over.
        if link is not self._link:
            return
        self._connection.receive_data(data)
        # Tasks that these messages wake go on at the end, all of them within this turn of the loop.
        self._waits.hold()
        try:
            self._process()
        finally:
            # Tasks that go on need not plan a flush: it follows below, with the output of all of them.
            self._flush_planned = True
            try:
                self._waits.resume()
            finally:
                self._flush_output()

    def _link_lost(self, link: Link, error: Exception | None) -> None:
        """The transport is gone."""
        if link is self._link:
            self._connection.receive_eof(error)
            self._process()

    def _changed(self, event: events.Event) -> None:
        if isinstance(event, events.TlsRequired):
            assert self._link is not None
            self._spawn(self._start_tls(event.server, self._link))
        elif isinstance(event, events.Connected):
            if self._handshake is not None and not self._handshake.done():
                self._handshake.set_result(None)
        elif isinstance(event, events.LameDuck):
            self._tell(self._handlers.on_lame_duck)
        elif isinstance(event, events.Disconnected):
            self._on_disconnected(event)

    def _on_disconnected(self, event: events.Disconnected) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.abort()
        error = event.error or ConnectionLostError("the connection was closed")
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(error)
            return
        if self._handshake is not None:
            if self._handshake.cancelled() or self._handshake.exception() is not None:
                return  # it failed before, and ``dial`` says so
            self._handshake = None  # broke between the handshake and the call that waits for it
        self.last_error = error
        # ``_dial`` starts it again with the next connection.
        self._stop_ping()
        self._tell_lost(ConnectionLostError(str(error)), event.waiters)
        self._tell(self._handlers.on_disconnect, event.error)
        if self.options.reconnect:
            self._spawn(self._reconnect())
        else:
            self._shut(f"the connection is lost, and reconnect is off: {error}")

    def _plan_flush(self) -> None:
        """Write queued output at the end of this turn of the loop, or now if there is much."""
        if self._connection.bytes_waiting > OUTPUT_BYTES:
            self._flush_output()
        elif not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush_output)

    def _flush_for_wait(self) -> None:
        """Write queued output, because a task is about to wait.

        At once if a single request is outstanding: no other task is likely to add to it, and a turn of the
        loop costs more than what it would collect.
        """
        if len(self._requests.outstanding) == 1:
            self._flush_output()
        else:
            self._plan_flush()

    def _flush_output(self) -> None:
        """Pass queued output to the transport."""
        self._flush_planned = False
        if self._link is not None and self._connection.bytes_waiting:
            self._link.write(self._connection.data_to_send())

    @property
    def _much_waits(self) -> bool:
        """Whether the transport has more than enough to write."""
        return self._link is not None and self._link.paused

    async def _wait_writable(self) -> None:
        """Wait while the transport has more than enough to write."""
        link = self._link
        if link is not None and link.paused:
            await link.wait_writable()

    # -- keeping alive -----------------------------------------------------------------------------

    def _plan_ping(self) -> None:
        self._stop_ping()
        self._ping_timer = self._loop.call_later(self.options.ping_interval, self._on_ping_timer)

    def _stop_ping(self) -> None:
        if self._ping_timer is not None:
            self._ping_timer.cancel()
            self._ping_timer = None

    def _on_ping_timer(self) -> None:
        if self._connection.connected and self._keep_alive():
            self._plan_flush()
            self._plan_ping()

    # -- waiting: what the calls of both halves are made of ----------------------------------------

    _until = until

    def _write_queued(self) -> None:
        """Write queued output soon, and do not wait for a transport that takes no more."""
        self._plan_flush()

    def _send_now(self) -> None:
        """Send queued output now, because the next wait may be far away."""
        self._flush_output()

    async def _send_ack(self, reply: str, payload: bytes) -> None:
        """Send an ack soon; waits while the transport has more than enough to write."""
        self._connection.answer(reply, payload)
        self._plan_flush()
        if self._much_waits:
            await self._wait_writable()

    async def _ready(self, seconds: float | None = None) -> None:
        """Nothing: a lost connection is replaced in the background."""

    async def _send_queued(self) -> None:
        """Send queued output soon; waits while the transport has more than enough to write."""
        self._plan_flush()
        if self._much_waits:
            await self._wait_writable()

    async def _pause(self, seconds: float) -> None:
        """Let time pass while there is no connection."""
        await asyncio.sleep(seconds)

    async def _sleep(self, seconds: float) -> None:
        """Let time pass, also when the client is closed meanwhile: the next call raises the error then."""
        await self._until(Mailbox(), _never, seconds)

    async def _work(self, function: Callable[[], T], *, finishes: bool = True) -> T:
        """Call a function that may block, such as a read from a file, in another thread.

        A thread cannot be stopped: a cancelled task first waits for its end, unless it does not ``finish``
        by itself, as a read from a pipe.
        """
        result: T = await worked(self._loop.run_in_executor(None, function), finishes)
        return result

    async def _awaited(self, awaitable: Awaitable[T]) -> T:
        """The result of what a user gave to await."""
        return await awaitable

    # -- tasks and handlers ------------------------------------------------------------------------

    def _spawn(self, work: Any, *, finishes: bool = False) -> asyncio.Task[Any]:
        """Run a coroutine in the background.

        It is cancelled on close, unless it ``finishes`` without that.
        """
        task: asyncio.Task[Any] = self._loop.create_task(work)
        tasks = self._workers if finishes else self._tasks
        # The loop itself refers to tasks only weakly.
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _tell(self, handler: Callable[..., Any] | None, *arguments: object) -> None:
        """Call a handler; its exceptions are logged."""
        if handler is None:
            return
        try:
            result = handler(*arguments)
        except Exception:
            logger.exception("a handler of the client failed")
            return
        if inspect.isawaitable(result):
            task = self._spawn(_await(result))
            if inspect.iscoroutine(result):
                task.add_done_callback(functools.partial(_close, result))

    # -- closing -----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Send queued output and close; a second call does nothing."""
        if self.closed:
            return
        self._leave_consumers()
        self._flush_output()
        # Kept here, because ``_shut`` forgets it.
        link = self._link
        self._shut()
        if link is not None:
            await link.wait_closed(CLOSE_TIMEOUT_S)

    def _shut(self, failure: str = "") -> None:
        """End everything; calls under way fail. ``failure``: why, unless the owner closes."""
        if self.closed:
            return
        self._stop_ping()
        link, self._link = self._link, None
        # Asked before ``_end_all``, which closes the state machine.
        connected = self.connected
        self._end_all(failure)
        if link is not None and connected:
            link.close()
        elif link is not None:
            link.abort()
        # The task that gave up reconnecting, or a handler, may be the one that gets here: it goes on.
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        self._tell(self._handlers.on_close)

    # -- publishing --------------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        data: bytes = b"",
        *,
        reply: str = "",
        headers: HeadersLike | None = None,
    ) -> None:
        """Send a message; waits only while the connection does not take more.

        Raises InvalidSubjectError, PayloadTooLargeError, ConnectionClosedError, and OutputFullError when too much was
        published without a connection.
        """
        self._connection.publish(subject, data, reply, encode_header_map(headers))
        self._plan_flush()
        # As ``_send_queued``, written out: a program may publish millions of messages.
        if self._link is not None and self._link.paused:
            await self._wait_writable()

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
        """Subscribe to a subject, which may have wildcards; a queue group shares the messages.

        Without a callback, iterate over the subscription. With max_msgs it ends after that many messages.
        Messages over the pending limits are dropped, and SlowConsumerError reports it.
        """
        if callback is not None and not callable(callback):
            refuse("callback", "a function", callback)
        client = cast("Client", self)
        subscription = Subscription(client, callback, pending_messages_max, pending_bytes_max)
        self._subscribe(subject, subscription, queue, max_msgs)
        return subscription

    def _attach(self, subject: str, owner: Owner, queue: str = "") -> None:
        """Subscribe for an owner with ``interest``, ``receive(message)`` and ``end()``."""
        owner._interest = self._connection.subscribe(subject, queue, owner)
        self._plan_flush()


def _never() -> bool:
    return False


def _call_soon(
    loop: asyncio.AbstractEventLoop, method: weakref.WeakMethod[Callable[[], None]]
) -> None:
    """Call a method in its loop, from any thread; nothing when the loop is closed."""
    alive = method()
    if alive is not None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(alive)


def _close(work: Coroutine[Any, Any, Any], _: object) -> None:
    """Close a coroutine whose task has ended.

    The task may have been cancelled before it began, and Python warns of what was never awaited.
    """
    work.close()


async def _await(result: Awaitable[Any]) -> None:
    try:
        await result
    except Exception:
        logger.exception("a handler of the client failed")


async def worked(work: asyncio.Future[Any], finishes: bool) -> Any:
    """The result of what a thread does. A thread cannot be stopped: a cancelled task waits for its end."""
    if not finishes:
        return await work
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # A second cancel must not end the wait either: the thread still uses the file.
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # taken note of
        raise


class Handlers(NamedTuple):
    """Handlers of the client's events; plain functions or coroutine functions, None for none."""

    on_error: Callable[[Exception], Any] | None = None
    """An error of the server, a slow subscription, an exception in a callback."""
    on_disconnect: Callable[[PeltonError | None], Any] | None = None
    on_reconnect: Callable[[], Any] | None = None
    on_close: Callable[[], Any] | None = None
    on_lame_duck: Callable[[], Any] | None = None
    """The server is about to stop."""
    on_status: Callable[[Status], Any] | None = None
    """Any event of the connection."""
    on_protocol: OnProtocol | None = None
    """A line of the protocol; a plain function."""
