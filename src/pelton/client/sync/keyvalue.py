"""Key-value buckets for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from ..keyvalue.codecs import TypedValues, ValueCodec
from ..keyvalue.entries import KvEntry
from ..keyvalue.handle import Handle
from ..keyvalue.transaction import Transaction as Changes
from ..keyvalue.watching import Watching
from .running import Blocking, Entered, Watched

if TYPE_CHECKING:
    from .connection import Client

V = TypeVar("V")
W = TypeVar("W")


class KeyWatch(Watched[KvEntry[V]], Watching[V], Generic[V]):
    """Changes of keys, in order, each once; made by ``KeyValue.watch``.

    ::

        with bucket.watch("orders.>") as watch:
            for entry in watch.initial():  # what is there
                ...
            for entry in watch:  # every change from then on
                ...

    Without ``initial`` the loop delivers both: then ``entry.is_update`` and ``watch.caught_up`` tell them
    apart. It goes on after reconnects and server restarts, and ends when it is stopped. A call that
    is cancelled or times out loses no entry.
    """

    client: Client


class KeyTransaction(Entered, Changes[V], Generic[V]):
    """Changes of several keys that are stored at once, or not at all; made by ``KeyValue.transaction``.

    ::

        with bucket.transaction() as change:
            change.update("stock.bolts", b"41", revision=stock.revision)
            change.create("orders.7", b"1 bolt")
        change.revisions  # {"stock.bolts": 12, "orders.7": 13}

    The methods only collect; the end of the block stores. A key has one change at most.
    """

    client: Client


class KeyValue(Blocking, Handle[V, KeyWatch[V], KeyTransaction[V]], Generic[V]):
    """A key-value bucket; made by ``JetStream.key_value`` and ``create_key_value``.

    ::

        bucket = js.create_key_value(KeyValueConfig(bucket="config", history=5))
        revision = bucket.put("color", b"blue")
        bucket.update("color", b"green", revision)  # RevisionConflictError if it has changed
        entry = bucket.get("color")  # None if it is not there
        bucket.delete("color")

    Every call raises InvalidKeyError before anything is sent for a key that no bucket can hold,
    BucketNotFoundError when the bucket is gone, PeltonTimeoutError without an answer. ``V`` is the type of the values:
    bytes, unless ``typed`` or ``with_values`` made the handle.
    """

    client: Client
    _watch_type = KeyWatch
    _transaction_type = KeyTransaction

    def typed(self, kind: type[W], form: Literal["json", "msgpack"] = "json") -> KeyValue[W]:
        """The same bucket with values of a type: a msgspec Struct, a dataclass, anything msgspec knows.

        A value that is put must be of this type (InvalidValueError), and ``entry.value`` raises InvalidValueError
        for stored bytes that are not; ``entry.data`` has them.
        """
        return self.with_values(TypedValues(kind, form))

    def with_values(self, codec: ValueCodec[W]) -> KeyValue[W]:
        """The same bucket with another codec of values."""
        handle: KeyValue[W] = self._with(codec, self._keyspace.keys)
        return handle
