"""Creating, opening, listing and deleting buckets: calls of JetStream, as steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from pelton.api import keyvalue as wire
from pelton.errors import (
    BadBucketError,
    BucketExistsError,
    BucketNotFoundError,
    StreamExistsError,
    StreamNotFoundError,
)

from ..base.steps import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.models import StreamInfo
    from ..base.steps import Steps
    from ..plans.management import ManagementPlans
    from .config import KeyValueConfig, KeyValueStatus

B = TypeVar("B")

_FIELDS = {
    "allow_msg_ttl": "limit_marker_ttl",
    "subject_delete_marker_ttl": "limit_marker_ttl",
    "subject_transforms": "sources",
}
"""What fields of a stream are called in the configuration of a bucket."""


class KeyValues(ABC, Generic[B]):
    """The buckets of a JetStream; ``B`` is the shell's handle of one."""

    _plans: ManagementPlans

    @abstractmethod
    def _bucket_type(self) -> Callable[..., B]:
        """The class of the shell's handles, which is loaded for the first one."""

    def _handle(self, info: StreamInfo, direct: bool | None) -> B:
        """A handle of the bucket that this stream is, whose values are bytes."""
        from .codecs import PlainValues

        return self._bucket_type()(self, info, PlainValues(), direct=direct)

    def _opening_bucket(self, bucket: str, *, direct: bool | None = None) -> Steps[B]:
        """A handle of an existing bucket, whose values are bytes.

        ``direct``: whether ``get`` may ask any server that holds the bucket, which may lag behind in a
        cluster; None: as the bucket allows it, False: only the leader. BucketNotFoundError; BadBucketError when the
        stream of that name is no bucket.
        """
        try:
            info = yield from self._plans.stream_info(_stream_of(bucket))
        except StreamNotFoundError:
            raise BucketNotFoundError(bucket) from None
        return self._handle(info, direct)

    def _creating_bucket(self, config: KeyValueConfig) -> Steps[B]:
        """Create a bucket; opens an existing one with the same configuration.

        BucketExistsError when it has another one, NotEnabledError when the server is too old for it.
        """
        try:
            info = yield from self._plans.making_stream(
                "CREATE", config.stream_config(), names=_FIELDS
            )
        except StreamExistsError:
            raise BucketExistsError(config.bucket) from None
        return self._handle(info, None)

    def _updating_bucket(self, config: KeyValueConfig) -> Steps[B]:
        """Change a bucket to this whole configuration; BucketNotFoundError, NotEnabledError.

        ``(await bucket.status()).config`` is the present one.
        """
        try:
            info = yield from self._plans.making_stream(
                "UPDATE", config.stream_config(), names=_FIELDS
            )
        except StreamNotFoundError:
            raise BucketNotFoundError(config.bucket) from None
        return self._handle(info, None)

    def _ensuring_bucket(self, config: KeyValueConfig) -> Steps[B]:
        """Create a bucket, or change an existing one to this whole configuration."""
        try:
            return (yield from self._updating_bucket(config))
        except BucketNotFoundError:
            return (yield from self._creating_bucket(config))

    def _deleting_bucket(self, bucket: str) -> Steps[None]:
        """Delete a bucket with all values; BucketNotFoundError. There is no way back."""
        try:
            yield from self._plans.delete_stream(_stream_of(bucket))
        except StreamNotFoundError:
            raise BucketNotFoundError(bucket) from None

    def _naming_buckets(self) -> Steps[list[str]]:
        """The names of all buckets, in order; mirrors included."""
        names = yield from self._plans.stream_names()
        return sorted(
            name.removeprefix(wire.STREAM_PREFIX)
            for name in names
            if name.startswith(wire.STREAM_PREFIX)
        )

    def _listing_buckets(self) -> Steps[list[KeyValueStatus]]:
        """What every bucket holds, and its configuration, by name; mirrors included."""
        from .config import status_of

        found: list[KeyValueStatus] = []
        for info in (yield from self._plans.streams()):
            if info.config.name.startswith(wire.STREAM_PREFIX):
                try:
                    found.append(status_of(info))
                except BadBucketError:
                    continue  # only named like a bucket
        return sorted(found, key=lambda status: status.bucket)

    key_value = call(_opening_bucket)
    create_key_value = call(_creating_bucket)
    update_key_value = call(_updating_bucket)
    create_or_update_key_value = call(_ensuring_bucket)
    delete_key_value = call(_deleting_bucket)
    key_value_names = call(_naming_buckets)
    key_values = call(_listing_buckets)


def _stream_of(bucket: str) -> str:
    """The stream of a bucket; InvalidBucketNameError."""
    from .config import check_bucket

    check_bucket(bucket)
    return wire.stream_of(bucket)
