"""The event bus: events published to a NATS server and received from it, with the asyncio client.

::

    async with connect(url) as client:
        bus = EventBus(client)
        await bus.publish(message, owner="a")              # a PubAck: the stream has it
        async with bus.subscribe(named_filter("changed")) as received:
            async for item in received:                    # item.event, or item.error

With ``jetstream=False`` events are published as plain messages, without acks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pelton.errors import NoRespondersError, PeltonError, PeltonTimeoutError, PublishFailedError

from .codec import Encoded, Event, decode, encode, encode_registration
from .kinds import Kind, type_of
from .reasons import UndecodableEventError
from .subjects import Era, LeadType

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from pelton.client.aio.connection import Client
    from pelton.client.aio.messages import Message
    from pelton.client.aio.subscription import Subscription
    from pelton.client.base.models import PubAck

WAITING_MAX = 4096


class NoEventStreamError(PeltonError):
    """No stream takes the subject of an event, so nothing was stored."""

    def __init__(self, subject: str) -> None:
        """``subject`` is that of the event."""
        super().__init__(
            f"no stream takes {subject!r}; create one: pelton stream add EVENTS --subjects 'plgd.>'"
        )
        self.subject = subject


class Publishable(Protocol):
    """An event as bytes: `Encoded`, or a delivery of a made-up fleet."""

    @property
    def subject(self) -> str:
        """The subject."""

    @property
    def payload(self) -> bytes:
        """The payload."""

    @property
    def message_id(self) -> str:
        """The message id; with it the stream recognizes a repeated publish."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of the bus: its event, or the error if it is no event."""

    subject: str
    payload: bytes
    event: Event | None = None
    error: UndecodableEventError | None = None


def read(subject: str, payload: bytes) -> Received:
    """A message as event or error."""
    try:
        return Received(subject, payload, decode(subject, payload))
    except UndecodableEventError as bad:
        return Received(subject, payload, error=bad)


class EventBus:
    """Publishes and receives events over a connection that it does not own."""

    def __init__(
        self,
        client: Client,
        *,
        jetstream: bool = True,
        era: Era = Era.HREF,
        lead: LeadType | None = None,
    ) -> None:
        """``era`` and ``lead`` say how subjects are made."""
        self.client = client
        self.jetstream = client.jetstream() if jetstream else None
        self.era = era
        self.lead = lead

    def encoded(self, message: Any, owner: str) -> Encoded:
        """An event as this bus publishes it; ``owner`` is the owner claim."""
        if type_of(message).kind is Kind.REGISTRATIONS:
            return encode_registration(message)
        return encode(message, owner=owner, era=self.era, lead=self.lead)

    async def publish(self, message: Any, *, owner: str = "") -> PubAck | None:
        """Publish an event; the stream's ack, or None without JetStream.

        A registration has its owner itself. Raises NoEventStreamError when no stream takes it.
        """
        return await self.send(self.encoded(message, owner))

    async def send(self, item: Publishable) -> PubAck | None:
        """Publish an encoded event; the same message id again is the same message."""
        if self.jetstream is None:
            await self.client.publish(item.subject, item.payload)
            return None
        try:
            return await self.jetstream.publish(item.subject, item.payload, msg_id=item.message_id)
        except (NoRespondersError, PeltonTimeoutError) as error:
            await self._explain(item.subject, error)
            raise

    async def send_all(self, items: Iterable[Publishable]) -> int:
        """Publish many encoded events, with many acks outstanding; the number of them.

        Raises NoEventStreamError, or PublishFailedError with those that no stream acknowledged.
        """
        count = 0
        if self.jetstream is None:
            for item in items:
                await self.client.publish(item.subject, item.payload)
                count += 1
            return count
        try:
            async with self.jetstream.publisher() as publisher:
                for item in items:
                    await publisher.publish(item.subject, item.payload, msg_id=item.message_id)
                    count += 1
        except PublishFailedError as error:
            await self._explain(error.failures[0][0], error)
            raise
        return count

    async def _explain(self, subject: str, error: Exception) -> None:
        """Raise NoEventStreamError if that is why a publish failed."""
        assert self.jetstream is not None
        try:
            found = await self.jetstream.stream_names(subject)
        except PeltonError:
            return
        if not found:
            raise NoEventStreamError(subject) from error

    def subscribe(
        self, patterns: str | Iterable[str] = "plgd.owners.>", *, queue: str = ""
    ) -> Events:
        """The messages of one or more patterns from now on; use it in ``async with``.

        Members of a queue group share the messages. `named_filter` makes patterns.
        """
        return Events(
            self.client, [patterns] if isinstance(patterns, str) else list(patterns), queue
        )


class Events:
    """Messages of several patterns in one sequence; made by `EventBus.subscribe`."""

    def __init__(self, client: Client, patterns: list[str], queue: str) -> None:
        """Subscribes to nothing before it is entered."""
        self.client = client
        self.patterns = patterns
        self.queue = queue
        self._waiting: asyncio.Queue[Message] = asyncio.Queue(WAITING_MAX)
        self._subscriptions: list[Subscription] = []

    async def __aenter__(self) -> Events:
        """Subscribe; messages that come from now on are kept."""
        for pattern in self.patterns:
            subscription = await self.client.subscribe(
                pattern, queue=self.queue, callback=self._waiting.put
            )
            self._subscriptions.append(subscription)
        await self.client.flush()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Unsubscribe."""
        for subscription in self._subscriptions:
            await subscription.unsubscribe()

    def __aiter__(self) -> Events:
        """The messages, as they come."""
        return self

    async def __anext__(self) -> Received:
        """The next message."""
        return await self.next()

    async def next(self) -> Received:
        """Wait for the next message."""
        message = await self._waiting.get()
        return read(message.subject, message.data)
