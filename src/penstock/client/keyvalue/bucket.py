"""The calls of one bucket, as steps.

A get asks any server that holds the bucket when the bucket allows it (direct get), else the stream's
leader. Whatever decides about a write, such as the marker that a create replaces, is read from the
leader.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from penstock.api import encode
from penstock.api import keyvalue as wire
from penstock.api.calls import MsgGetRequest
from penstock.api.subjects import API_PREFIX
from penstock.core.protocol.subjects import collide, subset
from penstock.errors import (
    BucketNotFound,
    InvalidKey,
    KeyExists,
    MessageNotFound,
    NoResponders,
    NotEnabled,
    ProtocolError,
    RevisionConflict,
    StreamNotFound,
    Timeout,
    WrongLastSequence,
)

from ..direct import error_of
from ..durations import Duration, to_nanoseconds, to_seconds
from ..jetstream import publish_headers
from ..steps import call
from .codecs import PlainKeys, encoded_filter, encoded_value
from .config import SECOND_NS, check_stream, prefixes, status_of
from .entries import KvEntry
from .transaction import Change, check_revision, committing
from .watching import Position, Watching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..message import BaseMessage
    from ..models import PubAck, StreamInfo
    from ..session import Session
    from ..steps import Steps
    from ..streams import Streams
    from .codecs import KeyCodec, ValueCodec
    from .config import KeyValueStatus

V = TypeVar("V")

CREATE_ATTEMPTS = 4
"""How often a create tries to replace a marker that other clients change meanwhile."""
PURGE_OLDER_THAN_S = 1800
_LOOK_AGAIN_S = 0.25
_BATCH = "Nats-Batch-Id"
_COMMIT = "Nats-Batch-Commit"


class KvSnapshot(dict[str, KvEntry[V]]):
    """The entries of many keys as of one ``revision`` of the bucket.

    Example::

        snapshot = bucket.snapshot("color", "size.>")
        print(snapshot.revision, sorted(snapshot))
    """

    revision = 0
    """Every key has the value that it had when this revision was the newest."""


class _Place(NamedTuple):
    """Where a bucket's keys are: the same for all handles of one bucket."""

    stream: str
    stored: str
    written: str
    direct: bool


class Bucket(Generic[V]):
    """A handle of one bucket.

    Every call raises InvalidKey before anything is sent for a key that no bucket can hold, BucketNotFound
    when the bucket is gone, Timeout without an answer.
    """

    def __init__(
        self,
        js: Streams[Any],
        info: StreamInfo,
        values: ValueCodec[V],
        *,
        keys: KeyCodec | None = None,
        direct: bool | None = None,
    ) -> None:
        """Made by ``JetStream.key_value``; ``direct`` None: as the bucket allows it.

        Raises BadBucket when the stream is no bucket.
        """
        check_stream(info.config)
        self.client: Session[Any] = js.client
        self.js = js
        self.bucket = info.config.name.removeprefix(wire.STREAM_PREFIX)
        stored, written = prefixes(info.config, js.plans.subjects.prefix, API_PREFIX)
        allowed = info.config.allow_direct if direct is None else direct
        self._place = _Place(info.config.name, stored, written, allowed)
        self._direct_get = js.plans.subjects.direct_get(info.config.name)
        self._info = info
        self._keys: KeyCodec = PlainKeys() if keys is None else keys
        self._plain = isinstance(self._keys, PlainKeys)
        self._values = values

    def __repr__(self) -> str:
        """The name of the bucket."""
        return f"<{type(self).__name__} {self.bucket}>"

    @property
    def stream(self) -> str:
        """The name of the bucket's stream."""
        return self._place.stream

    # -- keys and entries --------------------------------------------------------------------------

    def _stored_key(self, key: str) -> str:
        """The key in the bucket; InvalidKey."""
        if not self._plain:
            try:
                key, given = self._keys.encode_key(key), key
            except ValueError as error:
                raise InvalidKey(f"key {key!r} cannot be encoded: {error}") from error
            if not wire.valid_key(key):
                raise InvalidKey(f"key {given!r} is encoded as {key!r}, which no bucket can hold")
        elif not isinstance(key, str) or not wire.valid_key(key):
            raise InvalidKey(
                f"{key!r} cannot be a key: use letters, digits and any of - _ / =, in tokens between "
                "single dots; bucket.with_keys(Base64Keys()) takes any text"
            )
        return key

    def write_subject(self, key: str) -> str:
        """The subject that a value of the key is published to; InvalidKey."""
        return self._place.written + self._stored_key(key)

    def encoded(self, key: str, value: V) -> bytes:
        """The bytes of a value; InvalidValue, TypeError."""
        return encoded_value(self._values, value, key)

    def _subjects(self, filters: Sequence[str]) -> list[str]:
        """The subjects of these filters, without those that others contain; InvalidKey."""
        found: list[str] = []
        for each in filters or (">",):
            if not isinstance(each, str):
                raise InvalidKey(f"a filter is text, got {each!r}")
            pattern = each if self._plain else encoded_filter(self._keys, each)
            if not wire.valid_filter(pattern):
                raise InvalidKey(
                    f"filter {each!r} matches no key: give a key in which * may stand for a token, "
                    "and > for the rest"
                )
            found.append(self._place.stored + pattern)
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
                    raise InvalidKey(
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
        key = subject[len(self._place.stored) :]
        if not self._plain:
            try:
                key = self._keys.decode_key(key)
            except ValueError as error:
                raise InvalidKey(
                    f"key {key!r} in bucket {self.bucket!r} cannot be decoded: {error}"
                ) from error
        return KvEntry(
            self.bucket, key, revision, stored_at, data, headers, self._values, delta, is_update
        )

    # -- reading -----------------------------------------------------------------------------------

    def getting(
        self, key: str, revision: int | None = None, *, timeout: Duration | None = None
    ) -> Steps[KvEntry[V] | None]:
        """The newest entry of a key, or the one at a revision; None when there is none.

        A deleted, purged or expired key counts as not there; ``history`` and ``watch`` have its marker. A
        revision that belongs to another key, or is not kept any more, counts as not there.
        """
        return self._reading(
            key, revision or 0, timeout=timeout, direct=self._place.direct, markers=False
        )

    get = call(getting)

    def _reading(
        self,
        key: str,
        revision: int = 0,
        *,
        timeout: Duration | None = None,
        direct: bool = False,
        markers: bool = True,
    ) -> Steps[KvEntry[V] | None]:
        """The entry of a key, or with ``markers`` its marker."""
        subject = self._place.stored + self._stored_key(key)
        if revision < 0:
            raise ValueError(f"a revision is at least 1, got {revision}")
        try:
            if direct:
                # without a revision, the subject of the request names the key
                asked = self._direct_get if revision else f"{self._direct_get}.{subject}"
                body = encode(MsgGetRequest(seq=revision)) if revision else b""
                seconds = self.js.timeout if timeout is None else to_seconds(timeout)
                answer = yield from self.client.requesting(asked, body, timeout=seconds)
                entry = self._answered(subject, answer)
            else:
                entry = yield from self._stored(subject, revision, timeout)
        except (MessageNotFound, NoResponders, StreamNotFound) as error:
            yield from self.explaining(error)
            return None
        return entry if markers or entry is None or not entry.deleted else None

    def _answered(self, subject: str, answer: BaseMessage) -> KvEntry[V] | None:
        """The entry in the answer to a direct get; None when it belongs to another key."""
        if answer.status:
            raise error_of(answer)
        headers = answer.headers
        try:  # the server's headers are behind those of the message
            stored, at = headers["Nats-Subject"][-1], headers["Nats-Time-Stamp"][-1]
            seq = int(headers["Nats-Sequence"][-1])
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"not an answer to a direct get: {headers!r}") from error
        return self.entry(stored, seq, at, answer.data, headers) if stored == subject else None

    def _stored(
        self, subject: str, revision: int, timeout: Duration | None
    ) -> Steps[KvEntry[V] | None]:
        """Ask the leader of the stream; None when the revision belongs to another key."""
        plans = self.js.plans
        if timeout is not None:
            seconds = self.js.seconds_of(timeout)
            plans = type(plans)(prefix=plans.subjects.prefix, seconds=seconds)
        found = yield from plans.get_message(
            self._place.stream,
            revision or None,
            last_by_subject=None if revision else subject,
        )
        if found.subject != subject:
            return None
        return self.entry(found.subject, found.seq, found.timestamp_ns, found.data, found.headers)

    def explaining(self, error: Exception) -> Steps[None]:
        """Raise BucketNotFound when an error comes from a bucket that is gone, or the error itself.

        Nothing is raised when only the message is missing.
        """
        if isinstance(error, MessageNotFound):
            return
        try:
            yield from self.js.plans.stream_info(self._place.stream)
        except StreamNotFound:
            raise BucketNotFound(self.bucket) from None
        raise error

    # -- writing -----------------------------------------------------------------------------------

    def _publishing(
        self, key: str, data: bytes, block: bytes, timeout: Duration | None
    ) -> Steps[PubAck]:
        """Store a message of a key."""
        try:
            return (yield from self.js.storing(self.write_subject(key), data, block, timeout))
        except NoResponders as error:
            yield from self.explaining(error)
            raise

    def _deciding(
        self, key: str, data: bytes, block: bytes, revision: int, timeout: Duration | None
    ) -> Steps[int]:
        """Store a message of a key that has this revision; RevisionConflict."""
        try:
            return (yield from self._publishing(key, data, block, timeout)).seq
        except WrongLastSequence as error:
            raise RevisionConflict(
                self.bucket, key, revision, error.err_code, error.description
            ) from error

    def putting(self, key: str, value: V, *, timeout: Duration | None = None) -> Steps[int]:
        """Store a value, whatever the key holds; returns the revision.

        InvalidValue or TypeError for a value that is none of the bucket's.
        """
        return (yield from self._publishing(key, self.encoded(key, value), b"", timeout)).seq

    put = call(putting)

    def creating(
        self,
        key: str,
        value: V,
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Steps[int]:
        """Store the value of a key that does not exist, or was deleted; returns the revision.

        KeyExists when it has a value. ``ttl``: the key expires after that time, at least a second, and with a
        ``history`` above 1 not before ``limit_marker_ttl``; NotEnabled when the bucket has none.
        """
        data = self.encoded(key, value)
        if ttl is not None:
            yield from self.allowing_ttl(ttl)
        revision = 0
        for _ in range(CREATE_ATTEMPTS):
            block = publish_headers(None, expected_last_subject_seq=revision, ttl=ttl)
            try:
                return (yield from self._publishing(key, data, block, timeout)).seq
            except WrongLastSequence as error:
                entry = yield from self._reading(key)
                refused = KeyExists(self.bucket, key, revision, error.err_code, error.description)
            if entry is not None and not entry.deleted:
                break
            revision = 0 if entry is None else entry.revision
        raise refused

    create = call(creating)

    def updating(
        self, key: str, value: V, revision: int, *, timeout: Duration | None = None
    ) -> Steps[int]:
        """Store a value if the key's newest revision is this one; returns the new revision.

        RevisionConflict when it is another one. Revision 0: if the key never had a value.
        """
        check_revision(revision)
        block = publish_headers(None, expected_last_subject_seq=revision)
        data = self.encoded(key, value)
        return (yield from self._deciding(key, data, block, revision, timeout))

    update = call(updating)

    def deleting(
        self, key: str, *, revision: int | None = None, timeout: Duration | None = None
    ) -> Steps[int]:
        """Delete a key: a marker becomes its newest revision; returns that revision.

        Earlier values stay in its history. With ``revision`` only if that is the newest one, else
        RevisionConflict. Deleting a key that does not exist writes a marker, too.
        """
        return (yield from self._removing(key, wire.DELETE, revision, None, timeout))

    delete = call(deleting)

    def purging(
        self,
        key: str,
        *,
        revision: int | None = None,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Steps[int]:
        """Delete a key with its history: only a marker stays; returns its revision.

        With ``revision`` only if that is the newest one, else RevisionConflict. ``ttl``: how long the marker
        stays, at least a second; NotEnabled when the bucket has no ``limit_marker_ttl``.
        """
        return (yield from self._removing(key, wire.PURGE, revision, ttl, timeout))

    purge = call(purging)

    def _removing(
        self,
        key: str,
        operation: wire.Operation,
        revision: int | None,
        ttl: Duration | None,
        timeout: Duration | None,
    ) -> Steps[int]:
        if revision is not None:
            check_revision(revision, least=1)
        if ttl is not None:
            yield from self.allowing_ttl(ttl)
        block = publish_headers(
            wire.removal_headers(operation), expected_last_subject_seq=revision, ttl=ttl
        )
        return (yield from self._deciding(key, b"", block, revision or 0, timeout))

    def allowing_ttl(self, ttl: Duration) -> Steps[None]:
        """Check a lifetime: ValueError, or NotEnabled when the bucket knows none."""
        if to_nanoseconds(ttl) < SECOND_NS:
            raise ValueError(f"a lifetime is at least one second, got {ttl!r}")
        yield from self.allowing(
            "allow_msg_ttl", "keys with lifetimes of their own: set limit_marker_ttl", "2.11"
        )

    def allowing(self, field: str, what: str, since: str) -> Steps[None]:
        """Raise NotEnabled unless the bucket's stream allows something.

        A mirror is not asked, because its origin decides.
        """
        if self._info.config.mirror is None and not getattr(self._info.config, field):
            self._info = yield from self._informing()
            if not getattr(self._info.config, field):
                raise NotEnabled(
                    f"bucket {self.bucket!r} does not allow {what} (create_key_value, "
                    f"update_key_value); needs a server from {since} on"
                )

    # -- several keys ------------------------------------------------------------------------------

    def marker_of(self, key: str) -> Steps[int]:
        """The revision of the marker of a deleted key, 0 when there is nothing; KeyExists."""
        entry = yield from self._reading(key)
        if entry is not None and not entry.deleted:
            raise KeyExists(self.bucket, key, 0)
        return 0 if entry is None else entry.revision

    def putting_many(
        self,
        values: Mapping[str, V],
        *,
        revisions: Mapping[str, int] | None = None,
        timeout: Duration | None = None,
    ) -> Steps[dict[str, int]]:
        """Store several values at once, or none of them; returns the revision of each key.

        ``revisions``: the newest revision that each of these keys must have (0: it must not exist);
        RevisionConflict when one has another. NotEnabled when the bucket has no ``allow_atomic``.
        """
        wanted = dict(revisions or {})
        unknown = sorted(wanted.keys() - values.keys())
        if unknown:
            raise ValueError(f"revisions are given for keys without a value: {unknown}")
        changes: dict[str, Change] = {}
        for key, value in values.items():
            self.write_subject(key)
            expected = wanted.get(key)
            if expected is not None:
                check_revision(expected)
            changes[key] = Change(self.encoded(key, value), revision=expected)
        return (yield from committing(self, changes, timeout))

    put_many = call(putting_many)

    # -- many keys ---------------------------------------------------------------------------------

    def _watching(
        self,
        filters: Sequence[str],
        *,
        history: bool = False,
        updates_only: bool = False,
        from_revision: int | None = None,
        without_values: bool = False,
    ) -> Position:
        """The position of a new watch; InvalidKey, ValueError."""
        if bool(history) + bool(updates_only) + (from_revision is not None) > 1:
            raise ValueError("give one of history, updates_only and from_revision")
        if from_revision is not None and from_revision < 1:
            raise ValueError(f"from_revision is at least 1, got {from_revision}")
        return Position(
            self._place.stream,
            self._subjects(filters),
            "new" if updates_only else None if history or from_revision else "last_per_subject",
            from_revision or 1,
            headers_only=without_values,
        )

    def _collecting(
        self,
        filters: Sequence[str],
        timeout: Duration | None,
        *,
        history: bool = False,
        without_values: bool = False,
    ) -> Steps[list[KvEntry[V]]]:
        """The stored entries of these keys, in order, markers included."""
        watch = Watching(
            self, self._watching(filters, history=history, without_values=without_values)
        )
        try:
            return (yield from watch.initialing(timeout))
        finally:
            yield from watch.stopping()

    def listing(self, *filters: str, timeout: Duration | None = None) -> Steps[list[str]]:
        """The keys that have a value, sorted; with filters only those that match one of them.

        In a filter ``*`` stands for a token and ``>`` for the rest ("eu.>", "*.new"). The server
        selects the keys, and sends no values. Filters with keys in common are InvalidKey, unless one
        contains the other.
        """
        entries = yield from self._collecting(filters, timeout, without_values=True)
        state = {entry.key: entry.deleted for entry in entries}
        return sorted(key for key, deleted in state.items() if not deleted)

    keys = call(listing)

    def remembering(
        self, *keys: str, without_values: bool = False, timeout: Duration | None = None
    ) -> Steps[list[KvEntry[V]]]:
        """All kept revisions of a key, oldest first, with markers; an empty list when there are none.

        Also of several keys or filters, in the order in which they were stored; of all without one.
        """
        return (
            yield from self._collecting(keys, timeout, history=True, without_values=without_values)
        )

    history = call(remembering)

    def snapshotting(self, *filters: str, timeout: Duration | None = None) -> Steps[KvSnapshot[V]]:
        """The entries of many keys as of one revision of the bucket, by key; without deleted ones.

        Every matching key has the value that it had when ``snapshot.revision`` was the newest revision: no
        write is missing before it, none is seen after it, and a transaction is seen as a whole or not at all.
        The keys are read until a moment at which none of them has a newer revision; Timeout when that does
        not come, because other clients write without a pause.
        """
        deadline = self.client.clock() + self.js.seconds_of(timeout)
        watch = Watching(self, self._watching(filters))
        found: dict[str, KvEntry[V]] = {}
        try:
            for entry in (yield from watch.initialing(timeout)):
                found[entry.key] = entry
            while (yield from self._newest(watch.position.subjects)) > watch.position.had:
                left = deadline - self.client.clock()
                try:
                    entry = yield from watch.stepping(min(left, _LOOK_AGAIN_S))
                except Timeout:
                    if left <= 0:
                        raise
                else:
                    found[entry.key] = entry
        finally:
            yield from watch.stopping()
        snapshot = KvSnapshot((key, entry) for key, entry in found.items() if not entry.deleted)
        snapshot.revision = watch.position.had
        return snapshot

    snapshot = call(snapshotting)

    def _newest(self, subjects: Sequence[str]) -> Steps[float]:
        """The newest revision of these subjects; infinity in the middle of a transaction.

        A reader that has had this revision before it asked has had everything up to it: what was replaced
        before the reader came to it was replaced by a message up to here.
        """
        everything = f"{self._place.stored}>"
        newest: float = 0
        for subject in dict.fromkeys((everything, *subjects)):
            try:
                found = yield from self.js.plans.get_message(self.stream, last_by_subject=subject)
            except MessageNotFound:
                continue
            if subject == everything and _BATCH in found.headers and _COMMIT not in found.headers:
                return math.inf
            if subject in subjects:
                newest = max(newest, found.seq)
        return newest

    def purging_deletes(
        self,
        older_than: Duration = PURGE_OLDER_THAN_S,
        *,
        timeout: Duration | None = None,
    ) -> Steps[int]:
        """Remove the markers of deleted keys, and what they cover; returns the number of messages.

        A marker that is not ``older_than`` (half an hour; by the server's clock) stays, so that watchers can
        see it; what is before it is removed. A value that is put meanwhile stays.
        """
        age_ns = to_nanoseconds(older_than)
        entries = yield from self._collecting((), timeout, without_values=True)
        info = yield from self._informing()
        removed = 0
        for entry in {entry.key: entry for entry in entries}.values():
            old = info.ts - entry.created_ns >= age_ns
            if not entry.deleted or not (old or entry.operation == wire.DELETE):
                continue  # nothing is before a marker of a purge
            removed += yield from self.js.plans.purge_stream(
                self.stream,
                filter_subject=self._place.stored + self._stored_key(entry.key),
                seq=entry.revision + old,
            )
        return removed

    purge_deletes = call(purging_deletes)

    # -- other handles -----------------------------------------------------------------------------

    def _with(self, values: ValueCodec[Any], keys: KeyCodec | None = None) -> Any:
        """A handle of the same bucket with other codecs; TypeError for what is none."""
        for codec, needed in ((values, "decode_value"), (keys or self._keys, "decode_key")):
            if isinstance(codec, type) or not callable(getattr(codec, needed, None)):
                raise TypeError(f"{codec!r} is no codec: it has no method {needed}")
        return type(self)(
            self.js, self._info, values, keys=keys or self._keys, direct=self._place.direct
        )

    # -- the bucket --------------------------------------------------------------------------------

    def _informing(self) -> Steps[StreamInfo]:
        try:
            return (yield from self.js.plans.stream_info(self.stream))
        except StreamNotFound:
            raise BucketNotFound(self.bucket) from None

    def telling(self) -> Steps[KeyValueStatus]:
        """What the bucket holds, and its configuration."""
        self._info = yield from self._informing()
        return status_of(self._info)

    status = call(telling)

    def comparing(self) -> Steps[bool]:
        """Whether the bucket is the one that this handle last saw; from now on this one is."""
        before, self._info = self._info, (yield from self.js.plans.stream_info(self.stream))
        return before.created == self._info.created

    def destroying(self) -> Steps[None]:
        """Delete the bucket with all values. There is no way back."""
        try:
            yield from self.js.plans.delete_stream(self.stream)
        except StreamNotFound:
            raise BucketNotFound(self.bucket) from None

    destroy = call(destroying)
