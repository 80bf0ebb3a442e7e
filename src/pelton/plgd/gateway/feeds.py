"""The bus for the gateway's subscribers: for each owner one subscription, and one log with many
readers.

::

    bus ──► subscription of an owner ──► log   41  42  43  44  45
                                               ▲ a reader   ▲ another

A log holds the messages that its slowest reader has not read yet, so its memory depends on the
slowest reader and not on the number of readers. A full log waits a moment for its readers, and then
drops the slowest ones: these get `TooSlowError`, the others get all events. An event is decoded once for
readers that keep up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pelton.errors import ConnectionClosedError, PeltonError, SlowConsumerError

from ..codec import Event, decode
from ..ids import owner_id

if TYPE_CHECKING:
    from pelton.client.aio.connection import Client, StatusEvents
    from pelton.client.aio.subscription import Subscription

    from ..subjects import Subject

LOG_BYTES_MAX = 64 << 20
"""Bytes of the log of one owner, at most."""

LOGS_BYTES_MAX = 256 << 20
"""Bytes of all logs together, at most; beyond it the largest log loses readers."""

PATIENCE_S = 2.0
"""How long a full log waits for its readers to read half of it."""

OVERHEAD_BYTES = 512
DECODED_MAX = 256
"""Messages of a log whose events are kept decoded."""


class TooSlowError(PeltonError):
    """The reader was too slow, and the log no longer keeps events for it."""


class BusLostError(PeltonError):
    """Events were lost before they reached the log."""


class Heard:
    """A message of the bus in a log."""

    __slots__ = ("cost", "data", "event", "readers", "subject")

    def __init__(self, subject: str, data: bytes, readers: int) -> None:
        """``readers`` have it still to read."""
        self.subject = subject
        self.data = data
        self.readers = readers
        self.cost = OVERHEAD_BYTES + len(subject) + len(data)
        self.event: Event | None = None


class Link:
    """A place between two messages. It refers to the next message, so a reader keeps all that follow its place."""

    __slots__ = ("heard", "next")

    def __init__(self) -> None:
        """The end of a log."""
        self.heard: Heard | None = None
        self.next: Link | None = None


class Reader:
    """A place in a log. `take` gives the next message; `woken` is set when there may be one, or the end."""

    def __init__(self, log: Log) -> None:
        """It reads the messages from now on."""
        self.log = log
        self.place = log.end_link
        self.number = log.count
        self.failure: PeltonError | None = None
        self.woken = asyncio.Event()

    def take(self) -> Heard | None:
        """The next message, None if there is none yet; raises what ended the log, or TooSlowError."""
        if self.failure is not None:
            raise self.failure
        found = self.place.heard
        if found is None:
            return None
        assert self.place.next is not None
        self.place = self.place.next
        self.number += 1
        self.log.passed(found)
        return found

    def fail(self, failure: PeltonError) -> None:
        """End the reader with an error."""
        self.failure = failure
        self.drop()
        self.woken.set()

    def drop(self) -> None:
        """Release the messages that it has not read, and its place."""
        while self.place.heard is not None and self.place.next is not None:
            self.log.passed(self.place.heard)
            self.place = self.place.next
        self.place = Link()


class Log:
    """The messages for an owner that at least one reader has still to read; no I/O."""

    def __init__(self) -> None:
        """An empty log without readers."""
        self.end_link = Link()
        self.count = 0
        self.bytes = 0
        self.readers: set[Reader] = set()
        self.shrunk = asyncio.Event()
        self.failure: PeltonError | None = None
        self._decoded: deque[Heard] = deque()

    def join(self) -> Reader:
        """A reader of the messages from now on; raises the error that ended the log."""
        if self.failure is not None:
            raise self.failure
        reader = Reader(self)
        self.readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """A reader has gone."""
        if reader in self.readers:
            self.readers.remove(reader)
            reader.drop()

    def add(self, subject: str, data: bytes) -> None:
        """A message for every reader."""
        self.count += 1
        if not self.readers:
            return
        heard = Heard(subject, data, len(self.readers))
        self.bytes += heard.cost
        filled, self.end_link = self.end_link, Link()
        filled.heard, filled.next = heard, self.end_link
        for reader in self.readers:
            reader.woken.set()

    def passed(self, heard: Heard) -> None:
        """A reader has read a message, or given it back."""
        heard.readers -= 1
        if not heard.readers:
            self.bytes -= heard.cost
            self.shrunk.set()

    def event(self, heard: Heard, subject: Subject) -> Event:
        """The event of a message with this subject; raises UndecodableEventError."""
        if heard.event is None:
            heard.event = decode(subject, heard.data)
            self._decoded.append(heard)
            if len(self._decoded) > DECODED_MAX:
                self._decoded.popleft().event = None
        return heard.event

    def cut(self) -> int:
        """Drop the readers that are more than half as far behind as the slowest; returns their number."""
        behind = max((self.count - one.number for one in self.readers), default=0)
        slow = [one for one in self.readers if 2 * (self.count - one.number) > behind]
        for reader in slow:
            waiting = self.count - reader.number
            self.readers.remove(reader)
            reader.fail(
                TooSlowError(
                    f"{waiting} events wait for this subscriber, and the gateway keeps no more"
                )
            )
        return len(slow)

    def end(self, failure: PeltonError) -> None:
        """Nothing follows."""
        self.failure = failure
        for reader in list(self.readers):
            self.readers.remove(reader)
            reader.fail(failure)


class Feed:
    """The log of an owner while it has readers, and the subscription that fills it."""

    def __init__(self, feeds: Feeds, owner: str) -> None:
        """Begins to subscribe; await ``opened``."""
        self.feeds = feeds
        self.owner = owner
        self.log = Log()
        self.waiting = 0
        self.opened = asyncio.ensure_future(self._open())
        self.tasks: list[asyncio.Future[Any]] = []
        self.subscription: Subscription | None = None

    async def _open(self) -> None:
        client = self.feeds.client
        self.subscription = await client.subscribe(f"plgd.owners.{owner_id(self.owner)}.>")
        await client.flush()
        works = (self._received(self.subscription), self._connected(client.status()))
        self.tasks = [asyncio.ensure_future(self._until_it_fails(work)) for work in works]

    async def _until_it_fails(self, work: Any) -> None:
        """Run a task; when it ends, end the readers with its error."""
        try:
            await work
        except PeltonError as error:
            self.feeds.forget(self)
            self.log.end(error)
            await self.close()

    async def _received(self, subscription: Subscription) -> None:
        """Fill the log."""
        try:
            async for message in subscription:
                self.log.add(message.subject, message.data)
                if self.log.bytes > LOG_BYTES_MAX:
                    await self._shorten()
                elif self.feeds.bytes > LOGS_BYTES_MAX:
                    largest = max(self.feeds.open.values(), key=lambda feed: feed.log.bytes)
                    await largest._shorten()
        except SlowConsumerError as error:
            raise BusLostError(f"this gateway is too slow: {error}") from error
        raise ConnectionClosedError("its connection was closed")

    async def _shorten(self) -> None:
        """Wait a moment until the log is half as large; then drop the slowest readers."""
        log = self.log
        half = log.bytes // 2
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while log.bytes > half:
                    log.shrunk.clear()
                    await log.shrunk.wait()
        if log.bytes > half:
            log.cut()

    async def _connected(self, status: StatusEvents) -> None:
        """Raise ConnectionClosedError when the connection breaks: events are lost, and the readers have to know."""
        async for event in status:
            if event.type in ("disconnected", "closed"):
                raise ConnectionClosedError(str(event.error or "its connection was closed"))
        raise ConnectionClosedError("its connection was closed")

    async def close(self) -> None:
        """End the subscription."""
        others = [task for task in (self.opened, *self.tasks) if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self.subscription is not None and not self.feeds.client.closed:
            with suppress(PeltonError):
                await self.subscription.unsubscribe()


class Feeds:
    """The feeds of all owners who have a reader."""

    def __init__(self, client: Client) -> None:
        """``client`` of the bus, in the same loop."""
        self.client = client
        self.open: dict[str, Feed] = {}
        self._closing: set[asyncio.Future[None]] = set()

    @property
    def bytes(self) -> int:
        """The memory of all logs."""
        return sum(feed.log.bytes for feed in self.open.values())

    async def join(self, owner: str) -> Reader:
        """A reader of an owner's events; raises errors of the bus. `leave` must follow."""
        feed = self.open.get(owner)
        if feed is None:
            feed = self.open[owner] = Feed(self, owner)
        feed.waiting += 1
        try:
            await asyncio.shield(feed.opened)
            return feed.log.join()
        finally:
            feed.waiting -= 1
            self._end_unread(feed)

    def leave(self, reader: Reader) -> None:
        """A reader has gone; the feed of its owner ends with the last one."""
        reader.log.leave(reader)
        for feed in list(self.open.values()):
            if feed.log is reader.log:
                self._end_unread(feed)

    def _end_unread(self, feed: Feed) -> None:
        """Close a feed that has no reader, and that no reader is about to join."""
        if self.open.get(feed.owner) is feed and not feed.waiting and not feed.log.readers:
            self.forget(feed)
            closing = asyncio.ensure_future(feed.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def forget(self, feed: Feed) -> None:
        """The next reader gets a new feed."""
        if self.open.get(feed.owner) is feed:
            del self.open[feed.owner]
