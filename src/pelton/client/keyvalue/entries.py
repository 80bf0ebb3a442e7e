"""The entries of a bucket, and how its keys and values stand in its stream: subjects, headers and bytes.

Asks no server.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import msgspec

from pelton.api import keyvalue as wire
from pelton.api.times import parse_instant
from pelton.core.protocol.subjects import collide, subset
from pelton.errors import InvalidKeyError, InvalidValueError, NoValueError, ProtocolError

from ..base.arguments import refuse
from ..stored import error_of
from .codecs import KeyCodec, PlainKeys, ValueCodec, encoded_filter, encoded_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..base.durations import Duration
    from ..base.message import BaseMessage

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
            # A message with a payload may have been published with such a header.
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
            # Only now: most programs that get a key do not look at its time.
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


class KvSnapshot(dict[str, KvEntry[V]]):
    """The entries of many keys as of one ``revision`` of the bucket.

    Example::

        snapshot = bucket.snapshot("color", "size.>")
        print(snapshot.revision, sorted(snapshot))
    """

    revision = 0
    """Every key has the value that it had when this revision was the newest."""


class Change(NamedTuple):
    """What a transaction does to a key.

    revision: the newest one that the key must have, None for any. creates: the key must not exist.
    """

    data: bytes
    operation: wire.Operation = wire.PUT
    revision: int | None = None
    creates: bool = False
    ttl: Duration | None = None


def check_revision(revision: int, *, least: int = 0) -> None:
    """Raise ValueError or TypeError unless this is a revision, or the 0 of a key without one."""
    if not isinstance(revision, int) or isinstance(revision, bool):
        raise TypeError(f"a revision is a number, got {revision!r}: pass entry.revision")
    if revision < least:
        raise ValueError(f"a revision is at least {least}, got {revision}")


class Keyspace(Generic[V]):
    """The keys of one bucket, as a handle of it reads and writes them."""

    def __init__(
        self,
        bucket: str,
        stored: str,
        written: str,
        values: ValueCodec[V],
        keys: KeyCodec | None = None,
    ) -> None:
        """``stored`` and ``written``: how the subjects of stored keys begin, and those to publish to."""
        self.bucket = bucket
        self.values = values
        self.keys: KeyCodec = PlainKeys() if keys is None else keys
        self._stored = stored
        self._written = written
        self._plain = isinstance(self.keys, PlainKeys)

    @property
    def everything(self) -> str:
        """The subject of all stored keys."""
        return f"{self._stored}>"

    def _stored_key(self, key: str) -> str:
        """The key in the bucket; InvalidKeyError, TypeError."""
        if not isinstance(key, str):
            refuse("key", "text", key)
        if not self._plain:
            try:
                key, given = self.keys.encode_key(key), key
            except ValueError as error:
                raise InvalidKeyError(f"key {key!r} cannot be encoded: {error}") from error
            if not wire.valid_key(key):
                raise InvalidKeyError(
                    f"key {given!r} is encoded as {key!r}, which no bucket can hold"
                )
        elif not wire.valid_key(key):
            raise InvalidKeyError(
                f"{key!r} cannot be a key: use letters, digits and any of - _ / =, in tokens between "
                "single dots; bucket.with_keys(Base64Keys()) takes any text"
            )
        return key

    def subject(self, key: str) -> str:
        """The subject that the key is stored under; InvalidKeyError."""
        return self._stored + self._stored_key(key)

    def write_subject(self, key: str) -> str:
        """The subject that a value of the key is published to; InvalidKeyError."""
        return self._written + self._stored_key(key)

    def encoded(self, key: str, value: V) -> bytes:
        """The bytes of a value; InvalidValueError, InvalidKeyError, TypeError."""
        self._stored_key(key)
        return encoded_value(self.values, value, key)

    def subjects(self, filters: Sequence[str], name: str = "filters") -> list[str]:
        """The subjects of these filters, without those that others contain; InvalidKeyError.

        ``name``: the argument that a TypeError is about.
        """
        found: list[str] = []
        for each in filters or (">",):
            if not isinstance(each, str):
                refuse(name, "text", each)
            pattern = each if self._plain else encoded_filter(self.keys, each)
            if not wire.valid_filter(pattern):
                raise InvalidKeyError(
                    f"filter {each!r} matches no key: give a key in which * may stand for a token, "
                    "and > for the rest"
                )
            found.append(self._stored + pattern)
        # Without filters that another one contains; of two equal ones the first stays.
        found = [
            each
            for n, each in enumerate(found)
            if not any(
                subset(each, other) and (m < n or not subset(other, each))
                for m, other in enumerate(found)
                if m != n
            )
        ]
        for n, each in enumerate(found):
            for other in found[:n]:
                if collide(each, other):
                    raise InvalidKeyError(
                        f"filters {other!r} and {each!r} have keys in common, which a server refuses: "
                        "ask for them one after the other"
                    )
        return found

    def entry(
        self,
        subject: str,
        revision: int,
        stored_at: int | str,
        data: bytes,
        headers: Mapping[str, Sequence[str]],
        *,
        delta: int = 0,
        is_update: bool = False,
    ) -> KvEntry[V]:
        """The entry of a stored message."""
        key = subject[len(self._stored) :]
        if not self._plain:
            try:
                key = self.keys.decode_key(key)
            except ValueError as error:
                raise InvalidKeyError(
                    f"key {key!r} in bucket {self.bucket!r} cannot be decoded: {error}"
                ) from error
        return KvEntry(
            self.bucket, key, revision, stored_at, data, headers, self.values, delta, is_update
        )

    def answered(self, subject: str, answer: BaseMessage) -> KvEntry[V] | None:
        """The entry in the answer to a direct get; None when it belongs to another key."""
        if answer.status:
            raise error_of(answer)
        headers = answer.headers.lists()
        try:  # the server's headers are after those of the message
            stored, at = headers["Nats-Subject"][-1], headers["Nats-Time-Stamp"][-1]
            seq = int(headers["Nats-Sequence"][-1])
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"not an answer to a direct get: {headers!r}") from error
        # A revision belongs to one key, which may be another one than was asked for.
        return self.entry(stored, seq, at, answer.data, headers) if stored == subject else None
