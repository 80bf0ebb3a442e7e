# Made of client/aio/buckets.py by tools/gen_sync.py: change that file, and run it again.
"""Creating, opening, listing and deleting buckets, object stores and consumer groups: calls of JetStream.

What a handle of one needs is loaded when there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, cast

from pelton.api import keyvalue as wire
from pelton.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    StreamExistsError,
    StreamNotFoundError,
)

from ..base.arguments import make_config, refuse
from ..base.models import StreamConfig, StreamInfo
from .locks import locked
from .management import Management

if TYPE_CHECKING:
    from ..groups import (
        ElasticGroupConfig,
        ElasticGroupFields,
        StaticGroupConfig,
        StaticGroupFields,
    )
    from ..keyvalue.config import KeyValueConfig, KeyValueFields, KeyValueStatus
    from ..objects.models import ObjectStoreConfig, ObjectStoreFields, ObjectStoreStatus
    from .groups import ElasticGroup, StaticGroup
    from .jetstream import JetStream
    from .keyvalue import KeyValue
    from .objectstore import ObjectStore

_FIELDS = {
    "allow_msg_ttl": "limit_marker_ttl",
    "subject_delete_marker_ttl": "limit_marker_ttl",
    "subject_transforms": "sources",
}
"""What fields of a stream are called in the configuration of a bucket."""


class KeyValues(Management):
    """The buckets of a JetStream."""

    @locked
    def key_value(self, bucket: str, *, direct: bool | None = None) -> KeyValue[bytes]:
        """A handle of an existing bucket, whose values are bytes.

        ``direct``: whether ``get`` may ask any server that holds the bucket, which may lag behind in a
        cluster; None: as the bucket allows it, False: only the leader. BucketNotFoundError; BadBucketError when the
        stream of that name is no bucket.
        """
        stream = _stream_of(bucket)
        try:
            info = self.stream_info(stream)
        except StreamNotFoundError:
            raise BucketNotFoundError(bucket) from None
        return self._key_value(info, direct)

    @locked
    def create_key_value(
        self, bucket: str | KeyValueConfig, **fields: Unpack[KeyValueFields]
    ) -> KeyValue[bytes]:
        """Create a bucket; opens an existing one with the same configuration.

        ``bucket``: its name, and ``fields`` what ``help(KeyValueConfig)`` explains; or a whole KeyValueConfig.
        ``js.create_key_value("config", history=5)``. BucketExistsError when it has another configuration,
        NotEnabledError when the server is too old for it.
        """
        config = _config(bucket, fields)
        try:
            return self._make_key_value("CREATE", config)
        except StreamExistsError:
            raise BucketExistsError(config.bucket) from None

    @locked
    def update_key_value(
        self, bucket: str | KeyValueConfig, **fields: Unpack[KeyValueFields]
    ) -> KeyValue[bytes]:
        """Change a bucket to this whole configuration; BucketNotFoundError, NotEnabledError.

        A field that is not given gets its default. ``(bucket.status()).config`` is the present
        configuration. Arguments as ``create_key_value``.
        """
        config = _config(bucket, fields)
        try:
            return self._make_key_value("UPDATE", config)
        except StreamNotFoundError:
            raise BucketNotFoundError(config.bucket) from None

    @locked
    def create_or_update_key_value(
        self, bucket: str | KeyValueConfig, **fields: Unpack[KeyValueFields]
    ) -> KeyValue[bytes]:
        """Create a bucket, or change an existing one to this whole configuration.

        Arguments as ``create_key_value``.
        """
        config = _config(bucket, fields)
        try:
            return self.update_key_value(config)
        except BucketNotFoundError:
            return self.create_key_value(config)

    @locked
    def delete_key_value(self, bucket: str) -> None:
        """Delete a bucket with all values; BucketNotFoundError. There is no way back."""
        stream = _stream_of(bucket)
        try:
            self.delete_stream(stream)
        except StreamNotFoundError:
            raise BucketNotFoundError(bucket) from None

    @locked
    def key_value_names(self) -> list[str]:
        """The names of all buckets, in order; mirrors included."""
        names = self.stream_names()
        return sorted(
            name.removeprefix(wire.STREAM_PREFIX)
            for name in names
            if name.startswith(wire.STREAM_PREFIX)
        )

    @locked
    def key_values(self) -> list[KeyValueStatus]:
        """What every bucket holds, and its configuration, by name; mirrors included."""
        from ..keyvalue.config import status_of

        # Looked for by name, not by subject as object stores are: a mirror has no subjects.
        found: list[KeyValueStatus] = []
        for info in self.streams():
            if info.config.name.startswith(wire.STREAM_PREFIX):
                try:
                    found.append(status_of(info))
                except BadBucketError:
                    continue  # only named like a bucket
        return sorted(found, key=lambda status: status.bucket)

    def _make_key_value(self, verb: str, config: KeyValueConfig) -> KeyValue[bytes]:
        info = self._make_stream(verb, config.stream_config(), names=_FIELDS)
        return self._key_value(info, None)

    def _key_value(self, info: StreamInfo, direct: bool | None) -> KeyValue[bytes]:
        """A handle of the bucket that this stream is, whose values are bytes."""
        from ..keyvalue.codecs import PlainValues
        from .keyvalue import KeyValue

        return KeyValue(self, info, PlainValues(), direct=direct)  # type: ignore[arg-type]  # a JetStream


def _config(bucket: str | KeyValueConfig, fields: KeyValueFields) -> KeyValueConfig:
    from ..keyvalue.config import KeyValueConfig

    return make_config(KeyValueConfig, bucket, fields, "bucket")


def _stream_of(bucket: str) -> str:
    """The stream of a bucket; InvalidBucketNameError, TypeError."""
    from ..keyvalue.config import check_bucket

    if not isinstance(bucket, str):
        refuse("bucket", "text", bucket)
    check_bucket(bucket)
    return wire.stream_of(bucket)


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
        # Fields of the stream that other clients have set stay.
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


class ConsumerGroups(Management):
    """The consumer groups of a JetStream."""

    @locked
    def create_static_group(
        self,
        stream: str,
        group: str,
        config: StaticGroupConfig | None = None,
        **fields: Unpack[StaticGroupFields],
    ) -> StaticGroup:
        """Create a static group of a stream; opens an existing one with the same configuration.

        Give a configuration, or its fields. GroupExistsError for another configuration, StreamNotFoundError,
        ValueError for a name that cannot be.
        """
        from ..groups import StaticGroupConfig, config_of

        handle = self._static(stream, group)
        handle._create(config_of(StaticGroupConfig, config, fields))
        return handle

    @locked
    def static_group(self, stream: str, group: str) -> StaticGroup:
        """A static group that exists; GroupNotFoundError."""
        handle = self._static(stream, group)
        handle.config()
        return handle

    @locked
    def static_group_names(self, stream: str) -> list[str]:
        """The names of a stream's static groups, in order."""
        from ..groups import STATIC_BUCKET

        return self._names_in(STATIC_BUCKET, stream)

    @locked
    def create_elastic_group(
        self,
        stream: str,
        group: str,
        config: ElasticGroupConfig | None = None,
        **fields: Unpack[ElasticGroupFields],
    ) -> ElasticGroup:
        """Create an elastic group of a stream, with the stream ``<stream>-<group>`` of its own.

        Give a configuration, or its fields. Opens an existing group with the same configuration, whatever its
        members are. GroupExistsError for another configuration, StreamNotFoundError, StreamExistsError, ValueError for
        a name that cannot be.
        """
        from ..groups import ElasticGroupConfig, config_of

        handle = self._elastic(stream, group)
        handle._create(config_of(ElasticGroupConfig, config, fields))
        return handle

    @locked
    def elastic_group(self, stream: str, group: str) -> ElasticGroup:
        """An elastic group that exists; GroupNotFoundError."""
        handle = self._elastic(stream, group)
        handle.config()
        return handle

    @locked
    def elastic_group_names(self, stream: str) -> list[str]:
        """The names of a stream's elastic groups, in order."""
        from ..groups import ELASTIC_BUCKET

        return self._names_in(ELASTIC_BUCKET, stream)

    def _static(self, stream: str, group: str) -> StaticGroup:
        from .groups import StaticGroup

        return StaticGroup(cast("JetStream", self), stream, group)

    def _elastic(self, stream: str, group: str) -> ElasticGroup:
        from .groups import ElasticGroup

        return ElasticGroup(cast("JetStream", self), stream, group)

    def _names_in(self, bucket: str, stream: str) -> list[str]:
        from ..groups import check_texts

        check_texts(stream=stream)
        try:
            handle = cast("JetStream", self).key_value(bucket)
        except BucketNotFoundError:
            return []
        keys = handle.keys(f"{stream}.*")
        return sorted(key.partition(".")[2] for key in keys)
