"""One entry of a bucket: a value of a key at a revision, or the marker of a deleted key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from pelton.api import keyvalue as wire
from pelton.api.times import parse_instant
from pelton.errors import InvalidValueError, NoValueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .codecs import ValueCodec

V = TypeVar("V")

SIZE = "Nats-Msg-Size"
"""The size of the payload, of a message that is delivered without it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KvEntry(Generic[V]):
    """A value of a key at a revision, or the marker that says that the key was deleted.

    Example::

        bucket.put("color", b"blue")
        entry = bucket.get("color")
        print(entry.key, entry.value, entry.revision)

    bucket, key: what it belongs to.
    revision: the sequence in the bucket: a later operation has a higher one, whatever its key.
    operation: "PUT"; "DEL" and "PURGE" for markers.
    data: the stored bytes; b"" for markers, and in a watch without values.
    delta: how many entries follow at the time of delivery, in a watch or a history.
    is_update: whether a watch delivered it after the values that it began with.
    """

    __slots__ = (
        "_codec",
        "_headers",
        "_stored_at",
        "bucket",
        "data",
        "delta",
        "is_update",
        "key",
        "operation",
        "revision",
        "size",
    )

    def __init__(
        self,
        bucket: str,
        key: str,
        revision: int,
        stored_at: int | str,
        data: bytes,
        headers: Mapping[str, Sequence[str]],
        codec: ValueCodec[V],
        delta: int = 0,
        is_update: bool = False,
    ) -> None:
        """Made by a bucket. ``stored_at``: nanoseconds since 1970, or RFC 3339 text."""
        self.bucket = bucket
        self.key = key
        self.revision = revision
        self._stored_at = stored_at
        self.data = data
        self.delta = delta
        self.is_update = is_update
        self.operation: wire.Operation = wire.operation_of(headers) if headers else wire.PUT
        self.size = len(data)
        """The size of the stored bytes, also where a watch delivers none."""
        self._headers = headers
        self._codec = codec
        if headers:
            size = headers.get(SIZE)
            if size and size[0].isdigit() and not data:
                self.size = int(size[0])

    def __repr__(self) -> str:
        """Key, revision, operation and size."""
        what = f"{self.operation} {self.key!r} at {self.revision}"
        return f"<KvEntry {self.bucket}: {what}, {self.size} bytes>"

    @property
    def deleted(self) -> bool:
        """Whether this is a marker: the key was deleted or purged, or expired."""
        return self.operation != wire.PUT

    @property
    def marker_reason(self) -> str:
        """Why the server wrote this marker: "MaxAge" for an expired key; "" for a user's delete."""
        reason = self._headers.get(wire.MARKER_REASON)
        return reason[0] if reason else ""

    @property
    def created_ns(self) -> int:
        """When it was stored, in nanoseconds since 1970."""
        if isinstance(self._stored_at, str):
            self._stored_at = parse_instant(self._stored_at)
        return self._stored_at

    @property
    def created(self) -> datetime:
        """When it was stored, to the microsecond, in UTC."""
        return _EPOCH + timedelta(microseconds=self.created_ns // 1000)

    @property
    def value(self) -> V:
        """The value. Markers and entries without values raise NoValueError, see ``deleted``.

        InvalidValueError when the stored bytes are no value of the bucket's type; ``data`` has them.
        """
        if self.operation != wire.PUT:
            raise NoValueError(
                f"key {self.key!r} of bucket {self.bucket!r} was deleted at revision "
                f"{self.revision}: look at entry.deleted before entry.value"
            )
        if self.size != len(self.data):
            raise NoValueError(
                f"the value of key {self.key!r} was not delivered: watch with values, or get the key"
            )
        try:
            return self._codec.decode_value(self.data)
        except (ValueError, msgspec.MsgspecError) as error:
            raise InvalidValueError(
                f"key {self.key!r} of bucket {self.bucket!r} holds an invalid value "
                f"at revision {self.revision}: {error}"
            ) from error
