"""Creating, opening, listing and deleting object stores: calls of JetStream, as steps.

What an object store itself needs is loaded when there is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import (
    BucketExistsError,
    BucketNotFoundError,
    StreamExistsError,
    StreamNotFoundError,
)

from ..base.models import StreamConfig
from ..base.steps import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.steps import Steps
    from .models import ObjectStoreConfig, ObjectStoreStatus
    from .store import Storing

S = TypeVar("S", bound="Storing[Any]")
T = TypeVar("T")


def of_bucket(bucket: str, plan: Steps[T]) -> Steps[T]:
    """A call about the stream of a bucket, whose errors name the bucket."""
    try:
        return (yield from plan)
    except StreamNotFoundError:
        raise BucketNotFoundError(bucket) from None
    except StreamExistsError:
        raise BucketExistsError(bucket) from None


class Buckets(ABC, Generic[S]):
    """The object stores of a JetStream."""

    @abstractmethod
    def _store_type(self) -> Callable[..., S]:
        """The class of the shell's handles, which is loaded for the first one."""

    def _store(self, bucket: str) -> S:
        """A handle of a bucket; ValueError for a name that no bucket can have."""
        return self._store_type()(self, bucket)

    def _opening_store(self: Any, bucket: str) -> Steps[S]:
        """An object store that exists; BucketNotFoundError when it does not."""
        from .models import stream_of

        store: S = self._store(bucket)
        info = yield from of_bucket(bucket, self._plans.stream_info(stream_of(bucket)))
        store._sealed = info.config.sealed
        return store

    object_store = call(_opening_store)

    def _creating_store(self: Any, config: ObjectStoreConfig) -> Steps[S]:
        """Create an object store; opens an existing one with the same configuration.

        Raises BucketExistsError for another configuration.
        """
        store: S = self._store(config.bucket)
        yield from of_bucket(config.bucket, self._plans.create_stream(config.on(StreamConfig())))
        return store

    create_object_store = call(_creating_store)

    def _updating_store(self: Any, config: ObjectStoreConfig) -> Steps[S]:
        """Change an object store to this whole configuration; BucketNotFoundError when it does not exist."""
        from .models import stream_of

        store: S = self._store(config.bucket)
        info = yield from of_bucket(
            config.bucket, self._plans.stream_info(stream_of(config.bucket))
        )
        yield from self._plans.update_stream(config.on(info.config))
        return store

    update_object_store = call(_updating_store)

    def _deleting_store(self: Any, bucket: str) -> Steps[None]:
        """Remove an object store with all objects; BucketNotFoundError when it does not exist."""
        from .models import stream_of

        yield from of_bucket(bucket, self._plans.delete_stream(stream_of(bucket)))

    delete_object_store = call(_deleting_store)

    def _naming_stores(self: Any) -> Steps[list[str]]:
        """The names of all object stores, in order."""
        from .models import STREAM_PREFIX

        names = yield from self._plans.stream_names("$O.*.C.>")
        return [
            name.removeprefix(STREAM_PREFIX) for name in names if name.startswith(STREAM_PREFIX)
        ]

    object_store_names = call(_naming_stores)

    def _listing_stores(self: Any) -> Steps[list[ObjectStoreStatus]]:
        """The state of all object stores, by name."""
        from .models import STREAM_PREFIX, status_of

        infos = yield from self._plans.streams("$O.*.C.>")
        return [status_of(info) for info in infos if info.config.name.startswith(STREAM_PREFIX)]

    object_stores = call(_listing_stores)
