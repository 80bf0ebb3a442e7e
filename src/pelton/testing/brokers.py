"""The broker of a test: the real server in this process, with a clock, faults and assertions."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from pelton.client import sync
from pelton.client.aio import Connecting
from pelton.client.aio.backend import Handlers
from pelton.client.base.durations import to_nanoseconds
from pelton.client.protocol.options import make_options
from pelton.core.protocol.subjects import valid
from pelton.errors import InvalidSubjectError, PeltonError

from . import expectations, states
from .clock import BrokerClock
from .expectations import Data, Expected, Facts
from .faults import Fault, Faults, Refusal, answer_of
from .pull_timeouts import PullTimeouts
from .recording import Recorder, client_name
from .running import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pelton.client.aio.connection import Client
    from pelton.client.base.durations import Duration
    from pelton.client.protocol.options import ConnectOptions
    from pelton.embedded import ServerOptions
    from pelton.server.app import Server

    from .recording import Acked, Delivered, Published
    from .simulated_disk import SimDisk
    from .states import Snapshot


class NoSimulatedDiskError(PeltonError):
    """The broker's store is a folder of the machine, whose disk does not fail on demand."""

    def __init__(self) -> None:
        """Says how to get another disk."""
        super().__init__('this broker stores in a folder: faults of the disk need store="memory"')


class Broker:
    """A server of this process for tests; made by ``pelton.testing.broker``.

    Example::

        with pelton.testing.broker() as broker, broker.connect_sync() as nc:
            nc.publish("news", b"sunny")
            broker.assert_published("news", times=1)

    It runs in a thread of its own, so that blocking clients of the test's thread, asyncio clients of
    any loop and clients of other processes (with a port) use it alike, and it outlives the loop of a
    single test. ``with`` and ``async with`` start and stop it. Its methods may be called from any
    thread; they wait until the server has handled everything that clients have sent.
    """

    def __init__(
        self,
        *,
        clock: Literal["system", "manual"] = "system",
        store: str = "memory",
        port: int | None = None,
        name: str = "",
        **options: Unpack[ServerOptions],
    ) -> None:
        """Checks the options; see ``pelton.testing.broker``."""
        if clock not in ("system", "manual"):
            raise ValueError(f'clock must be "system" or "manual", got {clock!r}')
        manual = clock == "manual"
        self._runner = Runner(manual=manual, store=store, port=port, name=name, options=options)
        self._faults = Faults(None if manual else self._later)
        self._recorder = Recorder()
        self._timeouts = PullTimeouts(self._runner.soon) if manual else None
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self.clock = BrokerClock(self._call, self._runner.clock, self._faults, manual=manual)

    # -- life

    def start(self) -> None:
        """Start; ready on return. StartFailedError: the options, a port or the store don't serve."""
        self._runner.start(self._install)

    def stop(self) -> None:
        """Stop cleanly. A store in memory stays until the broker is gone; `start` serves it again."""
        self._runner.stop()

    def _install(self, app: Server) -> None:
        self._faults.install(app)
        if self._timeouts is not None:
            self._timeouts.install(app)
        self._recorder.install(app)

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    async def __aenter__(self) -> Self:
        """Start."""
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._runner.running

    @property
    def url(self) -> str:
        """The URL for clients: of the port if there is one, or over memory, for Pelton's clients."""
        return self._runner.host.url or self.memory_url

    @property
    def memory_url(self) -> str:
        """The URL over memory."""
        return f"memory://{self._runner.host.name}"

    @property
    def port(self) -> int:
        """The port; 0 without one."""
        return self._runner.host.app.port

    def _call(self, function: Callable[[Server], Any]) -> Any:
        """Call a function in the server's thread, with what clients have queued sent before."""
        self._flush_clients()
        return self._runner.call(lambda app: self._settled(app, function))

    def _settled(self, app: Server, function: Callable[[Server], Any]) -> Any:
        app.event_loop.now_ns = app.event_loop.clock.now()
        app.event_loop.rest()
        found = function(app)
        app.event_loop.rest()
        return found

    def _later(self, delay_ns: int, function: Callable[[], None]) -> None:
        self._runner.soon(delay_ns / 1_000_000_000, function)

    # -- clients

    def connect(self, **options: Unpack[ConnectOptions]) -> Connecting:
        """An asyncio client over memory, as of ``pelton.client.connect``.

        What it counts from now (the ``delay`` of a schedule) counts by the broker's clock.
        """
        settings, context = make_options(self.memory_url, None, options)
        return _Connecting(self._adopt, settings, Handlers(), context)

    def connect_sync(self, **options: Unpack[ConnectOptions]) -> sync.Client:
        """A blocking client over memory, as of ``pelton.sync.connect``; see ``connect``."""
        client = sync.connect(self.memory_url, **options)
        client._now_ns = lambda: self.clock.now_ns
        return client

    def _adopt(self, client: Client) -> None:
        client._now_ns = lambda: self.clock.now_ns
        self._clients.add(client)

    def _flush_clients(self) -> None:
        """Send what asyncio clients of the running loop have queued. Blocking clients write at once."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        for client in list(self._clients):
            if client._loop is running and client.connected:
                client._flush_output()

    # -- faults

    def drop(self, subject: str, *, times: int | None = 1) -> None:
        """Lose messages that clients publish to a subject or pattern, silently; ``times`` None: all.

        Raises InvalidSubjectError for what can be no subject, and ValueError for ``times`` below 1. ::

            broker.drop("orders.new")  # the next message there is lost
        """
        self._add(Fault("drop", subject, _times(times)))

    def delay(self, subject: str, by: Duration, *, times: int | None = None) -> None:
        """Hold such messages back for a time of the broker's clock.

        Raises InvalidSubjectError, and ValueError for a wrong duration or ``times`` below 1. ::

            broker.delay("orders.>", "5s")
            broker.clock.advance(5)  # those that were published before arrive now
        """
        self._add(Fault("delay", subject, _times(times), delay_ns=int(to_nanoseconds(by))))

    def fail_next(self, subject: str, error: Refusal, *, times: int | None = 1) -> None:
        """Answer such messages with an error, and let nothing come of them.

        ``subject``: of an API call ("$JS.API.STREAM.CREATE.*"), of a publish to a stream, or of any
        request. ``error``: an ``ApiError``, an ``err_code`` such as 10059, a text, or NoRespondersError.
        Raises TypeError and ValueError for another error, and InvalidSubjectError. ::

            broker.fail_next("$JS.API.STREAM.INFO.*", 10059)  # stream not found
        """
        self._add(Fault("fail", subject, _times(times), answer=answer_of(error)))

    def _add(self, fault: Fault) -> None:
        if not valid(fault.pattern):
            raise InvalidSubjectError(f"faults need a subject or a pattern, got {fault.pattern!r}")
        self._call(lambda _: self._faults.add(fault))

    def disconnect(self, client: str = "") -> int:
        """Break the connections of clients with a name, or all; return how many. Clients may reconnect."""
        return int(self._call(lambda app: _disconnect(app, client)))

    def partition(self) -> None:
        """Break all connections, and refuse new ones until ``heal``."""

        def part(app: Server) -> None:
            app.refuses = True
            _disconnect(app, "")

        self._call(part)

    def heal(self) -> None:
        """End all faults: of the network, of subjects (held messages are published), of the disk."""

        def mend(app: Server) -> None:
            app.refuses = False
            self._faults.clear()
            if self._runner.disk is not None:
                self._runner.disk.heal()
                self._runner.disk.room = None

        self._call(mend)

    def fill_disk(self, room: int = 0) -> None:
        """Let the disk take only ``room`` more bytes, until ``heal``. NoSimulatedDiskError.

        The message that finds the disk full gets no answer until there is room; later ones are refused.
        """
        disk = self._disk()

        def fill(_: Server) -> None:
            disk.room = disk.used() + room

        self._call(fill)

    def fail_disk(self, verb: str, error: int, path: str = "*", *, times: int | None = 1) -> None:
        """Let calls of the disk fail with an errno: `sync`, `write`, `read`, `open`, `rename` and others.

        ``path``: a pattern such as "*.seg"; ``times`` None: until ``heal``. NoSimulatedDiskError, and
        ValueError for another call. ::

            broker.fail_disk("sync", errno.EIO)
        """
        disk = self._disk()
        self._call(lambda _: disk.fail(verb, error, path, times=times))

    def _disk(self) -> SimDisk:
        if self._runner.disk is None:
            raise NoSimulatedDiskError
        return self._runner.disk

    # -- state

    def snapshot(self) -> Snapshot:
        """The state of JetStream now: all streams and consumers."""
        found: Snapshot = self._call(lambda app: states.take(app, self._runner))
        return found

    def rollback(self, snapshot: Snapshot) -> None:
        """Return to a snapshot of this broker, and end all faults.

        A manual clock goes back to the time of the snapshot, and the record of messages is empty
        afterwards. Connections and their subscriptions stay; pull requests under way end.
        """

        if not isinstance(snapshot, states.Snapshot):
            raise TypeError(f"give what snapshot() returned, not {type(snapshot).__name__}")

        def back(app: Server) -> None:
            app.refuses = False
            self._faults.forget()
            states.bring_back(app, self._runner, snapshot, rewind=self.clock.manual)
            self._recorder.clear()

        self._call(back)

    # -- record and assertions

    @property
    def published(self) -> Sequence[Published]:
        """What clients have published, oldest first, acks of consumers left out; at most 100,000."""
        return tuple(self._call(lambda _: list(self._recorder.published)))

    @property
    def delivered(self) -> Sequence[Delivered]:
        """What consumers have delivered, oldest first."""
        return tuple(self._call(lambda _: list(self._recorder.delivered)))

    @property
    def acked(self) -> Sequence[Acked]:
        """The acks of clients of any kind, oldest first."""
        return tuple(self._call(lambda _: list(self._recorder.acked)))

    def forget_record(self) -> None:
        """Empty the record: assertions see what comes from now on."""
        self._call(lambda _: self._recorder.clear())

    def assert_published(
        self,
        subject: str,
        data: Data = None,
        headers: Mapping[str, str] | None = None,
        *,
        times: int | None = None,
    ) -> None:
        """Some client has published a message to a subject or pattern; AssertionError if not.

        ``data``: bytes, text, or a function of the payload. ``headers``: these are among the
        message's. ``times``: exactly so often; None: at least once.
        """
        __tracebackhide__ = True
        expected, published = Expected(subject, data, headers), self.published
        found = len(expectations.find(expected, published))
        if found != times if times is not None else not found:
            raise AssertionError(
                expectations.missing(expected, found, times, published, self._recorder.lost)
            )

    def assert_not_published(
        self, subject: str, data: Data = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """No client has published such a message; AssertionError if one has."""
        __tracebackhide__ = True
        expected = Expected(subject, data, headers)
        found = expectations.find(expected, self.published)
        if found:
            raise AssertionError(expectations.unwanted(expected, found))

    def assert_acked(self, stream: str, consumer: str, seq: int) -> None:
        """The consumer's message of this stream sequence is acknowledged; AssertionError if not."""
        __tracebackhide__ = True
        facts = self._facts(stream, consumer, seq)
        if not facts.is_acked:
            raise AssertionError(expectations.not_acked(facts))

    def assert_redelivered(
        self, stream: str, consumer: str, seq: int, *, times: int | None = None
    ) -> None:
        """The message was delivered again: exactly so many ``times``, or at least once."""
        __tracebackhide__ = True
        facts = self._facts(stream, consumer, seq)
        again = max(len(facts.delivered) - 1, 0)
        if again != times if times is not None else not again:
            raise AssertionError(expectations.not_redelivered(facts, times))

    def _facts(self, stream: str, consumer: str, seq: int) -> Facts:
        __tracebackhide__ = True
        facts: Facts = self._call(lambda app: _facts(app, self._recorder, stream, consumer, seq))
        return facts


class _Connecting(Connecting):
    """A connect() whose client the broker knows."""

    def __init__(self, adopt: Callable[[Client], None], *settings: Any) -> None:
        super().__init__(*settings)
        self._adopt = adopt

    async def _open(self) -> Client:
        client = await super()._open()
        self._adopt(client)
        return client


def _times(times: int | None) -> int | None:
    if times is not None and times < 1:
        raise ValueError(f"times must be at least 1, or None for all, got {times}")
    return times


def _disconnect(app: Server, name: str) -> int:
    found = [
        each for each in app.event_loop.all_connections() if not name or client_name(each) == name
    ]
    for connection in found:
        app.event_loop.disconnect(connection, "Kicked")
    return len(found)


def _facts(app: Server, recorder: Recorder, stream: str, consumer: str, seq: int) -> Facts:
    accounts = app.jetstream.accounts() if app.jetstream is not None else []
    found = [account.streams[stream] for account in accounts if stream in account.streams]
    if not found:
        there = sorted(name for account in accounts for name in account.streams)
        raise AssertionError(
            f"there is no stream {stream}; there are: {', '.join(there) or 'none'}"
        )
    entry = found[0].consumers.get(consumer)
    if entry is None:
        there = sorted(found[0].consumers)
        raise AssertionError(
            f"stream {stream} has no consumer {consumer}; it has: {', '.join(there) or 'none'}"
        )

    def same(each: Delivered | Acked) -> bool:
        ack = each.ack
        return (ack.stream, ack.consumer, ack.stream_seq) == (stream, consumer, seq)

    return Facts(
        stream,
        consumer,
        seq,
        entry.core.state(),
        [each for each in recorder.delivered if same(each)],
        [each for each in recorder.acked if same(each)],
    )
