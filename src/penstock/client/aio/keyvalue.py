"""Key-value buckets for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from ..arguments import checked
from ..keyvalue.bucket import Bucket
from ..keyvalue.codecs import TypedValues
from ..keyvalue.transaction import Transaction as Changes
from ..keyvalue.watching import Ended, Watching
from .running import Awaited, Entered, run

if TYPE_CHECKING:
    from ..durations import Duration
    from ..keyvalue.codecs import KeyCodec, ValueCodec
    from ..keyvalue.entries import KvEntry
    from .connection import Client

V = TypeVar("V")
W = TypeVar("W")


class KeyWatch(Entered, Watching[V], Generic[V]):
    """The values of some keys and then every change, in order and once; made by ``KeyValue.watch``.

    ::

        async with bucket.watch("orders.>") as watch:
            for entry in await watch.initial():  # what is there
                ...
            async for entry in watch:  # every change from then on
                ...

    Without ``initial`` the loop delivers both: then ``entry.is_update`` and ``watch.caught_up`` tell them
    apart. It goes on after reconnects and server restarts, and ends when it is stopped. A call that
    is cancelled or times out loses no entry.
    """

    client: Client

    async def __aenter__(self) -> KeyWatch[V]:
        """Begin: every change from now on is delivered."""
        await run(self.client, self.beginning())
        return self

    def __aiter__(self) -> KeyWatch[V]:
        """Itself."""
        return self

    async def __anext__(self) -> KvEntry[V]:
        """The next entry; waits for it."""
        try:
            return await run(self.client, self.stepping())
        except Ended:
            raise StopAsyncIteration from None


class KeyTransaction(Entered, Changes[V], Generic[V]):
    """Changes of several keys that are stored at once, or not at all; made by ``KeyValue.transaction``.

    ::

        async with bucket.transaction() as change:
            change.update("stock.bolts", b"41", revision=stock.revision)
            change.create("orders.7", b"1 bolt")
        change.revisions  # {"stock.bolts": 12, "orders.7": 13}

    The methods only collect, so they are not awaited; the end of the block stores. A key has one change at most.
    """

    client: Client


class KeyValue(Awaited, Bucket[V], Generic[V]):
    """A key-value bucket; made by ``JetStream.key_value`` and ``create_key_value``.

    ::

        bucket = await js.create_key_value(KeyValueConfig(bucket="config", history=5))
        revision = await bucket.put("color", b"blue")
        await bucket.update("color", b"green", revision)  # RevisionConflict if it has changed
        entry = await bucket.get("color")  # None if it is not there
        await bucket.delete("color")

    Every call raises InvalidKey before anything is sent for a key that no bucket can hold,
    BucketNotFound when the bucket is gone, Timeout without an answer. ``V`` is the type of the values:
    bytes, unless ``typed`` or ``with_values`` made the handle.
    """

    client: Client

    @checked
    def watch(
        self,
        *filters: str,
        history: bool = False,
        updates_only: bool = False,
        from_revision: int | None = None,
        without_values: bool = False,
        ignore_deletes: bool = False,
    ) -> KeyWatch[V]:
        """Watch some keys or filters, or all: their values first, then every change.

        history: begin with all kept revisions, not only the newest of each key.
        updates_only: begin with nothing.
        from_revision: begin with everything that is stored from this revision on.
        without_values: deliver keys and sizes only.
        ignore_deletes: leave out markers of deleted keys.

        The watch begins at its ``with`` block, or with its first call. Raises InvalidKey, and ValueError for
        more than one of the first three.
        """
        position = self._watching(
            filters,
            history=history,
            updates_only=updates_only,
            from_revision=from_revision,
            without_values=without_values,
        )
        return KeyWatch(self, position, ignore_deletes=ignore_deletes)

    @checked
    def transaction(self, *, timeout: Duration | None = None) -> KeyTransaction[V]:
        """Change several keys at once: all changes are stored, or none.

        The bucket needs ``allow_atomic``; commit raises NotEnabled without it.
        """
        return KeyTransaction(self, timeout)

    def typed(self, kind: type[W], form: Literal["json", "msgpack"] = "json") -> KeyValue[W]:
        """The same bucket with values of a type: a msgspec Struct, a dataclass, anything msgspec knows.

        A value that is put must be of this type (InvalidValue), and ``entry.value`` raises InvalidValue
        for stored bytes that are not; ``entry.data`` has them.
        """
        return self.with_values(TypedValues(kind, form))

    def with_values(self, codec: ValueCodec[W]) -> KeyValue[W]:
        """The same bucket with another codec of values."""
        handle: KeyValue[W] = self._with(codec)
        return handle

    def with_keys(self, codec: KeyCodec) -> KeyValue[V]:
        """The same bucket with another codec of keys, such as ``Base64Keys()`` or ``PathKeys()``."""
        handle: KeyValue[V] = self._with(self._values, codec)
        return handle
