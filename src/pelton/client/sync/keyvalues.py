# Made of client/aio/keyvalues.py by tools/gen_sync.py: change that file, and run it again.
"""Creating, opening, listing and deleting buckets: calls of JetStream.

What a bucket itself needs is loaded when there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from pelton.api import keyvalue as wire
from pelton.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    StreamExistsError,
    StreamNotFoundError,
)

from ..base.arguments import make_config, refuse
from .locks import locked
from .management import Management

if TYPE_CHECKING:
    from ..base.models import StreamInfo
    from ..keyvalue.config import KeyValueConfig, KeyValueFields, KeyValueStatus
    from .keyvalue import KeyValue

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
