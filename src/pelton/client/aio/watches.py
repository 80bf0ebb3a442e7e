"""Watches of buckets: first what is there, then every change, in order and once.

A watch is an ordered consumer that knows when the messages that it began with are over
(``consume/ordered.py``). It goes on after reconnects, restarts of servers and the loss of its consumer.
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from pelton.errors import (
    BucketNotFoundError,
    BucketReplacedError,
    ConnectionClosedError,
    ObjectDamagedError,
    PeltonError,
    PeltonTimeoutError,
    StreamNotFoundError,
)

from ..base.durations import Duration, seconds_of
from ..consume.ordered import WatchIntake, WatchPosition
from ..objects.models import ObjectInfo, decode_meta
from .consumers import OrderedUpkeep
from .upkeep import OwnConsumers

if TYPE_CHECKING:
    from ..base.models import ConsumerInfo
    from ..keyvalue.entries import KvEntry
    from .connection import Client
    from .jetstream import JetStream
    from .keyvalue import KeyValue
    from .messages import Message

T = TypeVar("T")
V = TypeVar("V")


class Watch(ABC, Generic[T]):
    """What a watch of keys and one of objects have in common."""

    def __init__(
        self, js: JetStream, bucket: str, position: WatchPosition, *, ignore_deletes: bool
    ) -> None:
        """``_begin`` follows."""
        self.client: Client = js.client
        """The client that it belongs to."""
        self._js = js
        self._bucket_name = bucket
        self._position = position
        self._ignore_deletes = ignore_deletes
        self._consumers = OwnConsumers(js, position.stream)
        self._intake = WatchIntake(self.client, position, self._consumers)
        self._upkeep = self._make_upkeep()
        self._held: list[T] = []  # taken by a call that did not end
        self._stopped = False
        self.had = position.next_seq - 1
        """The last sequence of the stream that the watch has delivered, or left out."""

    def _make_upkeep(self) -> OrderedUpkeep:
        return OrderedUpkeep(self._js, self._intake, self._consumers)

    @abstractmethod
    def _make(self, message: Message, *, is_update: bool) -> T | None:
        """What the watch delivers for a message; None when it leaves it out."""

    @property
    def caught_up(self) -> bool:
        """Whether the watch has delivered everything that it began with."""
        queue = self._intake.queue
        # A watch of updates has nothing to catch up with, but must have begun.
        arrived = self._position.caught_up and self._position.starts > 0
        return arrived and not self._held and (not queue or queue[0].is_update)

    async def __aenter__(self) -> Self:
        """The watch itself, which has begun."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    def __aiter__(self) -> Self:
        """The watch itself."""
        return self

    async def __anext__(self) -> T:
        """The next one; waits for it without a limit. Ends when the watch is stopped."""
        found = await self._take(math.inf)
        if found is None:
            raise StopAsyncIteration
        return found

    async def next(self, timeout: Duration | None = None) -> T | None:
        """The next one, or None when none came in ``timeout``; without it waits without end.

        Raises ConnectionClosedError when the watch was stopped, BucketNotFoundError when the bucket was deleted,
        and for keys BucketReplacedError when it was also created again. Nothing is lost when the call is cancelled.
        """
        seconds = math.inf if timeout is None else seconds_of("timeout", timeout)
        found = await self._take(seconds)
        if found is None and self._intake.over:
            raise ConnectionClosedError("the watch is stopped, nothing follows")
        return found

    async def initial(self, timeout: Duration | None = None) -> list[T]:
        """What the watch begins with, without what it has delivered already.

        An empty list for a watch of updates. After this call the watch delivers updates only, and every one.
        PeltonTimeoutError when not all of it arrives in time, that of the client if none is given; the next
        call goes on where this one ended.
        """
        deadline = self.client._clock() + self._seconds(timeout)
        found: list[T] = []
        try:
            while not self.caught_up and not self._intake.over:
                one = await self._take(deadline - self.client._clock(), initial=True)
                if one is not None:
                    found.append(one)
                elif self.client._clock() >= deadline and not self.caught_up:
                    name = self._bucket_name
                    raise PeltonTimeoutError(f"not all of bucket {name!r} came in time")
            self._raise_failure()
        except BaseException:
            # A call that is cancelled or late hands nothing over: the next one gets these first.
            self._held = found + self._held
            raise
        return found

    async def stop(self) -> None:
        """Stop: nothing follows, and the server's consumer is removed. A second call does nothing."""
        if not self._stopped:
            self._stopped = True
            intake = self._intake
            intake.stop()
            await self._upkeep.wait(intake.events, intake.is_finished, math.inf)

    async def _begin(self, timeout: Duration | None = None) -> None:
        """Create the consumer and ask for messages: from now on every change is delivered."""
        intake, seconds = self._intake, self._seconds(timeout)
        self._upkeep.start(extends=False)
        # As for a consumer: the finalizer has a number, and nothing that would keep the watch alive.
        abandon = self.client._connection.abandon
        weakref.finalize(self, abandon, intake._interest.sid).atexit = False

        def begun() -> bool:
            return (intake.created and intake.flowing) or intake.over

        try:
            if not await self._upkeep.wait(intake, begun, seconds):
                name = self._bucket_name
                raise PeltonTimeoutError(
                    f"the watch of bucket {name!r} did not begin in {seconds} s"
                )
            self._raise_failure()
        except PeltonTimeoutError:
            await self._abandon()  # removing its consumer would wait for the same server again
            raise
        except BaseException:
            self._stopped = True
            intake.stop()
            self._upkeep.settle()  # a cancelled call does not wait for the server
            raise

    async def _abandon(self) -> None:
        """Stop, and let a server that does not answer remove the consumer once it goes on."""
        self._stopped = True
        self._intake.stop()
        self._consumers.leave()  # nothing is left to remove, and to wait for
        self._intake.finish()

    async def _take(self, seconds: float, *, initial: bool = False) -> T | None:
        """The next one; None when none comes in time, or follows.

        ``initial``: None also as soon as what the watch began with is over.
        """
        if self._held:
            return self._held.pop(0)
        intake, queue = self._intake, self._intake.queue
        deadline = self.client._clock() + seconds

        def news() -> bool:
            return bool(queue) or intake.over or (initial and self.caught_up)

        while not (initial and self.caught_up):
            if not queue:
                left = max(0.0, deadline - self.client._clock())
                if not await self._upkeep.wait(intake.takers, news, left) or not queue:
                    # Woken for another reason than a message: the end, or the first values are over.
                    break
            message, is_update = queue.popleft()
            if intake.took(message):
                self.client._send_now()
            self.had = message.metadata.stream_seq
            found = self._make(message, is_update=is_update)
            if found is not None:
                return found
        self._raise_failure()
        return None

    def _seconds(self, timeout: Duration | None) -> float:
        return self._js.timeout if timeout is None else seconds_of("timeout", timeout)

    def _raise_failure(self) -> None:
        """Raise why the watch has ended by itself."""
        error = self._intake.error
        if isinstance(error, StreamNotFoundError):
            raise BucketNotFoundError(self._bucket_name) from None
        if error is not None:
            raise error


class KeyWatch(Watch["KvEntry[V]"], Generic[V]):
    """Changes of keys, in order, each once; made by ``KeyValue.watch``.

    ::

        async with await bucket.watch("orders.>") as watch:
            for entry in await watch.initial():  # what is there
                ...
            async for entry in watch:  # every change from then on
                ...

    Without ``initial`` the loop delivers both: then ``entry.is_update`` and ``watch.caught_up`` tell them
    apart. It ends when it is stopped. A call that is cancelled or times out loses no entry.
    """

    def __init__(
        self, bucket: KeyValue[V], position: WatchPosition, *, ignore_deletes: bool = False
    ) -> None:
        """Made by ``watch``, which begins it."""
        self.bucket = bucket
        """The handle of the bucket."""
        super().__init__(bucket._js, bucket.bucket, position, ignore_deletes=ignore_deletes)

    def _make_upkeep(self) -> OrderedUpkeep:
        return _KeyUpkeep(self._js, self._intake, self._consumers, self.bucket)

    def _make(self, message: Message, *, is_update: bool) -> KvEntry[V] | None:
        metadata = message.metadata
        entry = self.bucket._keyspace.entry(
            message.subject,
            metadata.stream_seq,
            metadata.timestamp_ns,
            message.data,
            message.headers.lists(),
            delta=metadata.pending,
            is_update=is_update,
        )
        return None if self._ignore_deletes and entry.deleted else entry


class _KeyUpkeep(OrderedUpkeep):
    """Keeps a watch of keys going, until its bucket is deleted or replaced."""

    intake: WatchIntake

    def __init__(
        self, js: JetStream, intake: WatchIntake, consumers: OwnConsumers, bucket: KeyValue[V]
    ) -> None:
        super().__init__(js, intake, consumers)
        self._bucket = bucket

    async def _find(self, count: int) -> ConsumerInfo:
        """Make the next consumer; compare the bucket with the one before the last consumer was lost."""
        first = not self.intake.created
        info = await super()._find(count)
        if not first and (self.intake.position.went_back or not await self._bucket._is_same()):
            # Revisions say nothing about those of before: who updates by them would be wrong.
            raise BucketReplacedError(
                f"bucket {self._bucket.bucket!r} was deleted and created again, or restored: "
                "watch it again from the start"
            )
        return info

    def _check_lasting(self, error: PeltonError) -> None:
        if isinstance(error, BucketReplacedError):
            raise error
        super()._check_lasting(error)


class ObjectWatch(Watch[ObjectInfo]):
    """Changes of an object store, in order, each once; made by ``ObjectStore.watch``.

    ::

        async with await store.watch() as watch:
            for info in await watch.initial():  # the objects that are there
                ...
            async for info in watch:  # each object that is stored, changed or deleted
                print(info.name, info.size, info.deleted)

    Without ``initial`` the loop delivers both, and ``watch.caught_up`` tells them apart. A message that does not
    describe an object is reported as an error of the client. A call that is cancelled or times out loses no
    change.
    """

    def _make(self, message: Message, *, is_update: bool) -> ObjectInfo | None:
        try:
            info = decode_meta(message.data, self._bucket_name, message.metadata.timestamp_ns)
        except ObjectDamagedError as error:
            self.client._report(error)
            return None
        return None if self._ignore_deletes and info.deleted else info
