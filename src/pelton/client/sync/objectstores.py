# Made of client/aio/objectstores.py by tools/gen_sync.py: change that file, and run it again.
"""The object stores of JetStream: create, open, list and delete them.

The module of their handles is loaded for the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.arguments import make_config
from ..base.models import StreamConfig
from .locks import locked
from .management import Management

if TYPE_CHECKING:
    from typing import Unpack

    from ..objects.models import ObjectStoreConfig, ObjectStoreFields, ObjectStoreStatus
    from .objectstore import ObjectStore


class ObjectStores(Management):
    """The part of JetStream with object stores."""

    def _store_of(self, bucket: str) -> ObjectStore:
        from .objectstore import ObjectStore

        return ObjectStore(self, bucket)  # type: ignore[arg-type]  # a JetStream

    @locked
    def object_store(self, bucket: str) -> ObjectStore:
        """An object store that exists; BucketNotFoundError when it does not."""
        store = self._store_of(bucket)
        store._sealed = store.status().sealed
        return store

    @locked
    def create_object_store(
        self, bucket: str | ObjectStoreConfig, **fields: Unpack[ObjectStoreFields]
    ) -> ObjectStore:
        """Create an object store; opens an existing one with the same configuration.

        ``bucket``: its name, and ``fields`` those of ``ObjectStoreConfig``; or a whole ObjectStoreConfig. Raises
        BucketExistsError for another configuration. ::

            store = js.create_object_store("reports", ttl="720h", max_bytes=10 * 2**30)
        """
        from ..objects.models import ObjectStoreConfig, of_bucket

        config = make_config(ObjectStoreConfig, bucket, fields, "bucket")
        store = self._store_of(config.bucket)
        with of_bucket(config.bucket):
            store._js.create_stream(config.on(StreamConfig()))
        return store

    @locked
    def update_object_store(
        self, bucket: str | ObjectStoreConfig, **fields: Unpack[ObjectStoreFields]
    ) -> ObjectStore:
        """Change an object store to this whole configuration; BucketNotFoundError when it does not exist.

        A field that is not given gets its default. Arguments as ``create_object_store``.
        """
        from ..objects.models import ObjectStoreConfig

        config = make_config(ObjectStoreConfig, bucket, fields, "bucket")
        store = self._store_of(config.bucket)
        info = store.status().stream_info
        store._js.update_stream(config.on(info.config))
        return store

    @locked
    def delete_object_store(self, bucket: str) -> None:
        """Remove an object store with all objects; BucketNotFoundError when it does not exist."""
        self._store_of(bucket).destroy()

    @locked
    def object_store_names(self) -> list[str]:
        """The names of all object stores, in order."""
        from ..objects.models import STREAM_PREFIX

        names = self.stream_names("$O.*.C.>")
        return [
            name.removeprefix(STREAM_PREFIX) for name in names if name.startswith(STREAM_PREFIX)
        ]

    @locked
    def object_stores(self) -> list[ObjectStoreStatus]:
        """The state of all object stores, by name."""
        from ..objects.models import STREAM_PREFIX, status_of

        infos = self.streams("$O.*.C.>")
        return [status_of(info) for info in infos if info.config.name.startswith(STREAM_PREFIX)]
