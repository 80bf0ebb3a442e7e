# Made of client/aio/keyvalue.py by tools/gen_sync.py: change that file, and run it again.
"""Key-value buckets: the calls about one key, about many, and about the bucket itself.

A get asks any server that holds the bucket when the bucket allows it (direct get), else the stream's
leader. Whatever decides about a write, such as the marker that a create replaces, is read from the
leader.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pelton.api import encode
from pelton.api import keyvalue as wire
from pelton.api.calls import MsgGetRequest
from pelton.api.subjects import API_PREFIX
from pelton.errors import (
    BucketNotFoundError,
    KeyExistsError,
    MessageNotFoundError,
    NoRespondersError,
    NotEnabledError,
    PeltonTimeoutError,
    RevisionConflictError,
    StreamNotFoundError,
    WrongLastSequenceError,
)

from ..base.arguments import refuse
from ..base.durations import Duration, nanoseconds_of, seconds_of
from ..base.message import HeadersLike, publish_headers
from ..consume.ordered import WatchPosition
from ..keyvalue.codecs import KeyCodec, TypedValues, ValueCodec
from ..keyvalue.config import SECOND_NS, KeyValueStatus, check_stream, prefixes, status_of
from ..keyvalue.entries import Change, Keyspace, KvEntry, KvSnapshot, check_revision
from ..session.requests import Once
from .locks import locked
from .transactions import KeyTransaction, store_changes
from .watches import KeyWatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..base.models import StreamInfo
    from .connection import Client
    from .jetstream import JetStream

V = TypeVar("V")
W = TypeVar("W")

CREATE_ATTEMPTS = 4
"""How often a create tries to replace a marker that other clients change meanwhile."""
# As in nats.go.
PURGE_OLDER_THAN_S = 1800
_LOOK_AGAIN_S = 0.25
_BATCH = "Nats-Batch-Id"
_COMMIT = "Nats-Batch-Commit"


class KeyValue(Generic[V]):
    """A key-value bucket; made by ``JetStream.key_value`` and ``create_key_value``.

    ::

        bucket = js.create_key_value("config", history=5)
        revision = bucket.put("color", b"blue")
        bucket.update("color", b"green", revision)  # RevisionConflictError if it has changed
        entry = bucket.get("color")  # None if it is not there
        bucket.delete("color")

    Every call raises InvalidKeyError before anything is sent for a key that no bucket can hold,
    BucketNotFoundError when the bucket is gone, PeltonTimeoutError without an answer. ``V`` is the type of the values:
    bytes, unless ``typed`` or ``with_values`` made the handle.
    """

    def __init__(
        self,
        js: JetStream,
        info: StreamInfo,
        values: ValueCodec[V],
        *,
        keys: KeyCodec | None = None,
        direct: bool | None = None,
    ) -> None:
        """Made by ``JetStream.key_value``; ``direct`` None: as the bucket allows it.

        Raises BadBucketError when the stream is no bucket.
        """
        check_stream(info.config)
        self.client: Client = js.client
        """The client that it belongs to."""
        self._js = js
        self.bucket = info.config.name.removeprefix(wire.STREAM_PREFIX)
        """The name of the bucket."""
        stored, written = prefixes(info.config, js.subjects.prefix, API_PREFIX)
        self.stream = info.config.name
        """The name of the bucket's stream."""
        self._keyspace: Keyspace[V] = Keyspace(self.bucket, stored, written, values, keys)
        self._direct = info.config.allow_direct if direct is None else direct
        self._direct_get = js.subjects.direct_get(self.stream)
        self._info = info

    def __repr__(self) -> str:
        """The name of the bucket."""
        return f"<{type(self).__name__} {self.bucket}>"

    # -- handles with other codecs -----------------------------------------------------------------

    def typed(self, kind: type[W], form: Literal["json", "msgpack"] = "json") -> KeyValue[W]:
        """The same bucket with values of a type: a msgspec Struct, a dataclass, anything msgspec knows.

        A value that is put must be of this type (InvalidValueError), and ``entry.value`` raises InvalidValueError
        for stored bytes that are not; ``entry.data`` has them.
        """
        return self.with_values(TypedValues(kind, form))

    def with_values(self, codec: ValueCodec[W]) -> KeyValue[W]:
        """The same bucket with another codec of values."""
        _check_codec(codec, "decode_value")
        keys, direct = self._keyspace.keys, self._direct
        return KeyValue(self._js, self._info, codec, keys=keys, direct=direct)

    def with_keys(self, codec: KeyCodec) -> KeyValue[V]:
        """The same bucket with another codec of keys, such as ``Base64Keys()`` or ``PathKeys()``."""
        _check_codec(codec, "decode_key")
        values, direct = self._keyspace.values, self._direct
        return KeyValue(self._js, self._info, values, keys=codec, direct=direct)

    # -- reading a key -----------------------------------------------------------------------------

    @locked
    def get(
        self, key: str, revision: int | None = None, *, timeout: Duration | None = None
    ) -> KvEntry[V] | None:
        """The newest entry of a key, or the one at a revision; None when there is none.

        A deleted, purged or expired key counts as not there; ``history`` and ``watch`` have its marker. A
        revision that belongs to another key, or is not kept any more, counts as not there.
        """
        seconds = self._seconds(timeout)
        if revision:
            check_revision(revision, least=1)
        entry = self._read(key, revision or 0, seconds, direct=self._direct)
        return None if entry is None or entry.deleted else entry

    def _read(
        self, key: str, revision: int = 0, seconds: float | None = None, *, direct: bool = False
    ) -> KvEntry[V] | None:
        """The entry of a key, or its marker."""
        subject = self._keyspace.subject(key)
        try:
            if not direct:
                return self._read_from_leader(subject, revision, seconds)
            # without a revision, the subject of the request names the key
            asked = self._direct_get if revision else f"{self._direct_get}.{subject}"
            body = encode(MsgGetRequest(seq=revision)) if revision else b""
            seconds = self._js.timeout if seconds is None else seconds
            return self._keyspace.answered(subject, self.client._read(asked, body, seconds))
        except (MessageNotFoundError, NoRespondersError, StreamNotFoundError) as error:
            self._explain(error)
            return None

    def _read_from_leader(
        self, subject: str, revision: int, seconds: float | None
    ) -> KvEntry[V] | None:
        """None when the revision belongs to another key."""
        last = None if revision else subject
        found = self._js.get_message(
            self.stream, revision or None, last_by_subject=last, timeout=seconds
        )
        if found.subject != subject:
            return None
        return self._keyspace.entry(
            found.subject, found.seq, found.timestamp_ns, found.data, found.headers.lists()
        )

    def _explain(self, error: Exception) -> None:
        """Raise BucketNotFoundError when an error comes from a bucket that is gone, or the error itself.

        Nothing is raised when only the message is missing.
        """
        if isinstance(error, MessageNotFoundError):
            return
        self._stream_info()
        raise error

    # -- writing a key -----------------------------------------------------------------------------

    @locked
    def put(self, key: str, value: V, *, timeout: Duration | None = None) -> int:
        """Store a value, whatever the key holds; returns the revision.

        InvalidValueError or TypeError for a value that is none of the bucket's.
        """
        data = self._keyspace.encoded(key, value)
        return self._publish(key, data, self._seconds(timeout))

    @locked
    def create(
        self,
        key: str,
        value: V,
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Store the value of a key that does not exist, or was deleted; returns the revision.

        KeyExistsError when it has a value. ``ttl``: the key expires after that time, at least a second, and with a
        ``history`` above 1 not before ``limit_marker_ttl``; NotEnabledError when the bucket has none.
        """
        seconds = self._seconds(timeout)
        data = self._keyspace.encoded(key, value)
        if ttl is not None:
            self._allow_ttl(ttl)
        revision = 0
        # First as a new key, which is the usual case and takes one request. If there is a marker, it is
        # replaced by its revision, so that of two creates one fails.
        for _ in range(CREATE_ATTEMPTS):
            try:
                return self._publish(key, data, seconds, revision=revision, ttl=ttl)
            except WrongLastSequenceError as error:
                entry = self._read(key)
                refused = KeyExistsError(
                    self.bucket, key, revision, error.err_code, error.description
                )
            if entry is not None and not entry.deleted:
                break
            revision = 0 if entry is None else entry.revision
        raise refused

    @locked
    def update(self, key: str, value: V, revision: int, *, timeout: Duration | None = None) -> int:
        """Store a value if the key's newest revision is this one; returns the new revision.

        RevisionConflictError when it is another one. Revision 0: if the key never had a value.
        """
        check_revision(revision)
        data = self._keyspace.encoded(key, value)
        return self._publish_if(key, data, self._seconds(timeout), revision=revision)

    @locked
    def delete(
        self, key: str, *, revision: int | None = None, timeout: Duration | None = None
    ) -> int:
        """Delete a key: a marker becomes its newest revision; returns that revision.

        Earlier values stay in its history. With ``revision`` only if that is the newest one, else
        RevisionConflictError. Deleting a key that does not exist writes a marker, too.
        """
        return self._remove(key, wire.DELETE, revision, None, timeout)

    @locked
    def purge(
        self,
        key: str,
        *,
        revision: int | None = None,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Delete a key with its history: only a marker stays; returns its revision.

        With ``revision`` only if that is the newest one, else RevisionConflictError. ``ttl``: how long the marker
        stays, at least a second; NotEnabledError when the bucket has no ``limit_marker_ttl``.
        """
        return self._remove(key, wire.PURGE, revision, ttl, timeout)

    def _remove(
        self,
        key: str,
        operation: wire.Operation,
        revision: int | None,
        ttl: Duration | None,
        timeout: Duration | None,
    ) -> int:
        self._keyspace.write_subject(key)  # before the bucket is asked about lifetimes
        seconds = self._seconds(timeout)
        if revision is not None:
            check_revision(revision, least=1)
        if ttl is not None:
            self._allow_ttl(ttl)
        headers = wire.removal_headers(operation)
        return self._publish_if(key, b"", seconds, headers=headers, revision=revision, ttl=ttl)

    def _publish(
        self,
        key: str,
        data: bytes,
        seconds: float,
        *,
        headers: HeadersLike | None = None,
        revision: int | None = None,
        ttl: Duration | None = None,
    ) -> int:
        """Store a message of a key, with ``revision`` only if that is its newest one; returns its revision.

        In a cluster the message has an id, so that it is sent again while no server answers.
        """
        once = None
        if self.client.clustered:
            subject = self._keyspace.subject(key)
            once = Once(self.client.new_id(), self.stream, None, revision, subject)
        block = publish_headers(
            headers,
            msg_id=None if once is None else once.msg_id,
            expected_last_subject_seq=revision,
            ttl=ttl,
        )
        subject = self._keyspace.write_subject(key)
        try:
            return self._js._store(subject, data, block, seconds, once=once).seq
        except NoRespondersError as error:
            self._explain(error)
            raise

    def _publish_if(
        self,
        key: str,
        data: bytes,
        seconds: float,
        *,
        headers: HeadersLike | None = None,
        revision: int | None = None,
        ttl: Duration | None = None,
    ) -> int:
        """As ``_publish``; RevisionConflictError."""
        try:
            return self._publish(key, data, seconds, headers=headers, revision=revision, ttl=ttl)
        except WrongLastSequenceError as error:
            raise RevisionConflictError(
                self.bucket, key, revision or 0, error.err_code, error.description
            ) from error

    def _allow_ttl(self, ttl: Duration) -> None:
        """Check a lifetime: ValueError, or NotEnabledError when the bucket knows none."""
        if nanoseconds_of("ttl", ttl) < SECOND_NS:
            raise ValueError(f"a lifetime is at least one second, got {ttl!r}")
        self._allow(
            "allow_msg_ttl", "keys with lifetimes of their own: set limit_marker_ttl", "2.11"
        )

    def _allow(self, field: str, what: str, since: str) -> None:
        """Raise NotEnabledError unless the bucket's stream allows something.

        A mirror is not asked, because its origin decides.
        """
        if self._info.config.mirror is None and not getattr(self._info.config, field):
            # The bucket may have been changed since the handle was made.
            self._info = self._stream_info()
            if not getattr(self._info.config, field):
                raise NotEnabledError(
                    f"bucket {self.bucket!r} does not allow {what} (create_key_value, "
                    f"update_key_value); needs a server from {since} on"
                )

    # -- writing several keys at once --------------------------------------------------------------

    @locked
    def put_many(
        self,
        values: Mapping[str, V],
        *,
        revisions: Mapping[str, int] | None = None,
        timeout: Duration | None = None,
    ) -> dict[str, int]:
        """Store several values at once, or none of them; returns the revision of each key.

        ``revisions``: the newest revision that each of these keys must have (0: it must not exist);
        RevisionConflictError when one has another. NotEnabledError when the bucket has no ``allow_atomic``.
        """
        for name, given in (("values", values), ("revisions", revisions or {})):
            if not hasattr(given, "keys"):
                refuse(name, "a mapping", given)
        wanted = dict(revisions or {})
        unknown = sorted(wanted.keys() - values.keys())
        if unknown:
            raise ValueError(f"revisions are given for keys without a value: {unknown}")
        changes: dict[str, Change] = {}
        for key, value in values.items():
            expected = wanted.get(key)
            if expected is not None:
                check_revision(expected)
            changes[key] = Change(self._keyspace.encoded(key, value), revision=expected)
        return store_changes(self, changes, self._seconds(timeout))

    def transaction(self, *, timeout: Duration | None = None) -> KeyTransaction[V]:
        """Change several keys at once: all changes are stored, or none.

        The bucket needs ``allow_atomic``; commit raises NotEnabledError without it.
        """
        return KeyTransaction(self, self._seconds(timeout))

    # -- reading many keys -------------------------------------------------------------------------

    @locked
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

        The watch begins at once: every change from now on is delivered. Raises InvalidKeyError, ValueError for
        more than one of the first three, and PeltonTimeoutError when the server does not answer.
        """
        position = self._position(
            filters,
            history=history,
            updates_only=updates_only,
            from_revision=from_revision,
            without_values=without_values,
        )
        watch = KeyWatch(self, position, ignore_deletes=ignore_deletes)
        watch._begin()
        return watch

    def _position(
        self,
        filters: Sequence[str],
        *,
        name: str = "filters",
        history: bool = False,
        updates_only: bool = False,
        from_revision: int | None = None,
        without_values: bool = False,
    ) -> WatchPosition:
        """The position of a new watch; InvalidKeyError, ValueError."""
        if bool(history) + bool(updates_only) + (from_revision is not None) > 1:
            raise ValueError("give one of history, updates_only and from_revision")
        if from_revision is not None and not hasattr(type(from_revision), "__index__"):
            refuse("from_revision", "a whole number", from_revision)
        if from_revision is not None and from_revision < 1:
            raise ValueError(f"from_revision is at least 1, got {from_revision}")
        return WatchPosition(
            self.stream,
            self._keyspace.subjects(filters, name),
            "new" if updates_only else None if history or from_revision else "last_per_subject",
            from_revision or 1,
            headers_only=without_values,
        )

    def _collect(self, position: WatchPosition, timeout: Duration | None) -> list[KvEntry[V]]:
        """The stored entries from a position on, in order, markers included."""
        watch = KeyWatch(self, position)
        watch._begin(timeout)
        try:
            return watch.initial(timeout)
        finally:
            watch.stop()

    @locked
    def keys(self, *filters: str, timeout: Duration | None = None) -> list[str]:
        """The keys that have a value, sorted; with filters only those that match one of them.

        In a filter ``*`` stands for a token and ``>`` for the rest ("eu.>", "*.new"). The server
        selects the keys, and sends no values. Filters with keys in common are InvalidKeyError, unless one
        contains the other.
        """
        entries = self._collect(self._position(filters, without_values=True), timeout)
        state = {entry.key: entry.deleted for entry in entries}
        return sorted(key for key, deleted in state.items() if not deleted)

    @locked
    def history(
        self, *keys: str, without_values: bool = False, timeout: Duration | None = None
    ) -> list[KvEntry[V]]:
        """All kept revisions of a key, oldest first, with markers; an empty list when there are none.

        Also of several keys or filters, in the order in which they were stored; of all without one.
        """
        position = self._position(keys, name="keys", history=True, without_values=without_values)
        return self._collect(position, timeout)

    @locked
    def snapshot(self, *filters: str, timeout: Duration | None = None) -> KvSnapshot[V]:
        """The entries of many keys as of one revision of the bucket, by key; without deleted ones.

        Every matching key has the value that it had when ``snapshot.revision`` was the newest revision: no
        write is missing before it, none is seen after it, and a transaction is seen as a whole or not at all.
        The keys are read until a moment at which none of them has a newer revision; PeltonTimeoutError when that does
        not come in ``timeout`` (that of the client if none is given), because other clients write too fast.
        """
        deadline = self.client._clock() + self._seconds(timeout)
        position = self._position(filters)
        watch = KeyWatch(self, position)
        found: dict[str, KvEntry[V]] = {}
        watch._begin(timeout)
        try:
            for entry in watch.initial(timeout):
                found[entry.key] = entry
            while (newest := self._newest(position.subjects)) > watch.had:
                self._catch_up(watch, newest, found, deadline)
        finally:
            watch.stop()
        snapshot = KvSnapshot((key, entry) for key, entry in found.items() if not entry.deleted)
        snapshot.revision = watch.had
        return snapshot

    def _catch_up(
        self, watch: KeyWatch[V], newest: float, found: dict[str, KvEntry[V]], deadline: float
    ) -> None:
        """Take entries up to this revision, and what has arrived after it; PeltonTimeoutError at the deadline.

        A question for each entry would take longer than other clients need to write the next one.
        """
        wait = _LOOK_AGAIN_S
        while True:
            left = deadline - self.client._clock()
            if left <= 0:
                raise PeltonTimeoutError(
                    f"other clients write to bucket {self.bucket!r} without a pause"
                )
            entry = watch.next(min(left, wait))
            if entry is None:  # nothing more is there, or what was the newest has gone
                return
            found[entry.key] = entry
            if watch.had >= newest or newest == math.inf:
                wait = 0.0

    def _newest(self, subjects: Sequence[str]) -> float:
        """The newest revision of these subjects; infinity in the middle of a transaction.

        A reader that has had this revision before it asked has had everything up to it: what was replaced
        before the reader came to it was replaced by a message up to here.
        """
        everything = self._keyspace.everything
        newest: float = 0
        for subject in dict.fromkeys((everything, *subjects)):
            try:
                found = self._js.get_message(self.stream, last_by_subject=subject)
            except MessageNotFoundError:
                continue
            # The last message of the bucket belongs to a transaction of which the rest is just being stored.
            if subject == everything and _BATCH in found.headers and _COMMIT not in found.headers:
                return math.inf
            if subject in subjects:
                newest = max(newest, found.seq)
        return newest

    @locked
    def purge_deletes(
        self, older_than: Duration = PURGE_OLDER_THAN_S, *, timeout: Duration | None = None
    ) -> int:
        """Remove the markers of deleted keys, and what they cover; returns the number of messages.

        A marker that is not ``older_than`` (half an hour; by the server's clock) stays, so that watchers can
        see it; what is before it is removed. A value that is put meanwhile stays.
        """
        age_ns = nanoseconds_of("older_than", older_than)
        entries = self._collect(self._position((), without_values=True), timeout)
        info = self._stream_info()
        removed = 0
        for entry in {entry.key: entry for entry in entries}.values():
            old = info.ts - entry.created_ns >= age_ns
            if not entry.deleted or not (old or entry.operation == wire.DELETE):
                continue  # nothing is before a marker of a purge
            # A purge removes what is before ``seq``: one more takes an old marker, too.
            removed += self._js.purge_stream(
                self.stream,
                filter_subject=self._keyspace.subject(entry.key),
                seq=entry.revision + old,
            )
        return removed

    # -- the bucket --------------------------------------------------------------------------------

    @locked
    def status(self) -> KeyValueStatus:
        """What the bucket holds, and its configuration."""
        self._info = self._stream_info()
        return status_of(self._info)

    @locked
    def destroy(self) -> None:
        """Delete the bucket with all values. There is no way back."""
        try:
            self._js.delete_stream(self.stream)
        except StreamNotFoundError:
            raise BucketNotFoundError(self.bucket) from None

    def _stream_info(self) -> StreamInfo:
        try:
            return self._js.stream_info(self.stream)
        except StreamNotFoundError:
            raise BucketNotFoundError(self.bucket) from None

    def _is_same(self) -> bool:
        """Whether the bucket is the one that this handle last saw; from now on this one is."""
        # Its time of creation is all that tells a bucket from another one of its name.
        before, self._info = self._info, self._js.stream_info(self.stream)
        return before.created == self._info.created

    def _seconds(self, timeout: Duration | None) -> float:
        """The timeout of a call in seconds: the given one, or that of the JetStream."""
        return self._js.timeout if timeout is None else seconds_of("timeout", timeout)


def _check_codec(codec: Any, needed: str) -> None:
    if isinstance(codec, type) or not callable(getattr(codec, needed, None)):
        raise TypeError(f"{codec!r} is no codec: it has no method {needed}")
