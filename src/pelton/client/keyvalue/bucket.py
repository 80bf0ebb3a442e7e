"""The calls about one key of a bucket, and about the bucket itself, as steps.

A get asks any server that holds the bucket when the bucket allows it (direct get), else the stream's
leader. Whatever decides about a write, such as the marker that a create replaces, is read from the
leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
    RevisionConflictError,
    StreamNotFoundError,
    WrongLastSequenceError,
)

from ..base.durations import Duration, to_nanoseconds
from ..base.steps import call
from ..jetstream.streams import Once
from ..plans.jetstream import publish_headers
from .config import SECOND_NS, check_stream, prefixes, status_of
from .keyspace import Keyspace
from .transaction import check_revision

if TYPE_CHECKING:
    from ..base.models import StreamInfo
    from ..base.steps import Steps
    from ..jetstream.streams import Streams
    from ..plans.jetstream import Headers
    from ..session.session import Session
    from .codecs import KeyCodec, ValueCodec
    from .config import KeyValueStatus
    from .entries import KvEntry

V = TypeVar("V")

CREATE_ATTEMPTS = 4
"""How often a create tries to replace a marker that other clients change meanwhile."""


class Bucket(Generic[V]):
    """A handle of one bucket.

    Every call raises InvalidKeyError before anything is sent for a key that no bucket can hold, BucketNotFoundError
    when the bucket is gone, PeltonTimeoutError without an answer.
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

        Raises BadBucketError when the stream is no bucket.
        """
        check_stream(info.config)
        self.client: Session[Any] = js.client
        """The client that it belongs to."""
        self._js = js
        self.bucket = info.config.name.removeprefix(wire.STREAM_PREFIX)
        """The name of the bucket."""
        stored, written = prefixes(info.config, js._plans.subjects.prefix, API_PREFIX)
        self.stream = info.config.name
        """The name of the bucket's stream."""
        self._keyspace: Keyspace[V] = Keyspace(self.bucket, stored, written, values, keys)
        self._direct = info.config.allow_direct if direct is None else direct
        self._direct_get = js._plans.subjects.direct_get(self.stream)
        self._info = info

    def __repr__(self) -> str:
        """The name of the bucket."""
        return f"<{type(self).__name__} {self.bucket}>"

    # -- reading -----------------------------------------------------------------------------------

    def _getting(
        self, key: str, revision: int | None = None, *, timeout: Duration | None = None
    ) -> Steps[KvEntry[V] | None]:
        """The newest entry of a key, or the one at a revision; None when there is none.

        A deleted, purged or expired key counts as not there; ``history`` and ``watch`` have its marker. A
        revision that belongs to another key, or is not kept any more, counts as not there.
        """
        return self._reading(
            key, revision or 0, timeout=timeout, direct=self._direct, markers=False
        )

    get = call(_getting)

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
        subject = self._keyspace.subject(key)
        if revision < 0:
            raise ValueError(f"a revision is at least 1, got {revision}")
        try:
            if direct:
                # without a revision, the subject of the request names the key
                asked = self._direct_get if revision else f"{self._direct_get}.{subject}"
                body = encode(MsgGetRequest(seq=revision)) if revision else b""
                seconds = self._js._seconds_of(timeout)
                answer = yield from self.client._reading(asked, body, seconds)
                entry = self._keyspace.answered(subject, answer)
            else:
                entry = yield from self._stored(subject, revision, timeout)
        except (MessageNotFoundError, NoRespondersError, StreamNotFoundError) as error:
            yield from self._explaining(error)
            return None
        return entry if markers or entry is None or not entry.deleted else None

    def _stored(
        self, subject: str, revision: int, timeout: Duration | None
    ) -> Steps[KvEntry[V] | None]:
        """Ask the leader of the stream; None when the revision belongs to another key."""
        plans = self._js._plans
        if timeout is not None:
            seconds = self._js._seconds_of(timeout)
            plans = type(plans)(prefix=plans.subjects.prefix, seconds=seconds)
        found = yield from plans.get_message(
            self.stream,
            revision or None,
            last_by_subject=None if revision else subject,
        )
        if found.subject != subject:
            return None
        return self._keyspace.entry(
            found.subject, found.seq, found.timestamp_ns, found.data, found.headers
        )

    def _explaining(self, error: Exception) -> Steps[None]:
        """Raise BucketNotFoundError when an error comes from a bucket that is gone, or the error itself.

        Nothing is raised when only the message is missing.
        """
        if isinstance(error, MessageNotFoundError):
            return
        try:
            yield from self._js._plans.stream_info(self.stream)
        except StreamNotFoundError:
            raise BucketNotFoundError(self.bucket) from None
        raise error

    # -- writing -----------------------------------------------------------------------------------

    def _publishing(
        self,
        key: str,
        data: bytes,
        timeout: Duration | None,
        *,
        headers: Headers | None = None,
        revision: int | None = None,
        ttl: Duration | None = None,
    ) -> Steps[int]:
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
            return (yield from self._js._storing(subject, data, block, timeout, once=once)).seq
        except NoRespondersError as error:
            yield from self._explaining(error)
            raise

    def _deciding(
        self,
        key: str,
        data: bytes,
        timeout: Duration | None,
        *,
        headers: Headers | None = None,
        revision: int | None = None,
        ttl: Duration | None = None,
    ) -> Steps[int]:
        """As ``_publishing``; RevisionConflictError."""
        try:
            return (
                yield from self._publishing(
                    key, data, timeout, headers=headers, revision=revision, ttl=ttl
                )
            )
        except WrongLastSequenceError as error:
            raise RevisionConflictError(
                self.bucket, key, revision or 0, error.err_code, error.description
            ) from error

    def _putting(self, key: str, value: V, *, timeout: Duration | None = None) -> Steps[int]:
        """Store a value, whatever the key holds; returns the revision.

        InvalidValueError or TypeError for a value that is none of the bucket's.
        """
        return (yield from self._publishing(key, self._keyspace.encoded(key, value), timeout))

    put = call(_putting)

    def _creating(
        self,
        key: str,
        value: V,
        *,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Steps[int]:
        """Store the value of a key that does not exist, or was deleted; returns the revision.

        KeyExistsError when it has a value. ``ttl``: the key expires after that time, at least a second, and with a
        ``history`` above 1 not before ``limit_marker_ttl``; NotEnabledError when the bucket has none.
        """
        data = self._keyspace.encoded(key, value)
        if ttl is not None:
            yield from self._allowing_ttl(ttl)
        revision = 0
        for _ in range(CREATE_ATTEMPTS):
            try:
                return (yield from self._publishing(key, data, timeout, revision=revision, ttl=ttl))
            except WrongLastSequenceError as error:
                entry = yield from self._reading(key)
                refused = KeyExistsError(
                    self.bucket, key, revision, error.err_code, error.description
                )
            if entry is not None and not entry.deleted:
                break
            revision = 0 if entry is None else entry.revision
        raise refused

    create = call(_creating)

    def _updating(
        self, key: str, value: V, revision: int, *, timeout: Duration | None = None
    ) -> Steps[int]:
        """Store a value if the key's newest revision is this one; returns the new revision.

        RevisionConflictError when it is another one. Revision 0: if the key never had a value.
        """
        check_revision(revision)
        data = self._keyspace.encoded(key, value)
        return (yield from self._deciding(key, data, timeout, revision=revision))

    update = call(_updating)

    def _deleting(
        self, key: str, *, revision: int | None = None, timeout: Duration | None = None
    ) -> Steps[int]:
        """Delete a key: a marker becomes its newest revision; returns that revision.

        Earlier values stay in its history. With ``revision`` only if that is the newest one, else
        RevisionConflictError. Deleting a key that does not exist writes a marker, too.
        """
        return (yield from self._removing(key, wire.DELETE, revision, None, timeout))

    delete = call(_deleting)

    def _purging(
        self,
        key: str,
        *,
        revision: int | None = None,
        ttl: Duration | None = None,
        timeout: Duration | None = None,
    ) -> Steps[int]:
        """Delete a key with its history: only a marker stays; returns its revision.

        With ``revision`` only if that is the newest one, else RevisionConflictError. ``ttl``: how long the marker
        stays, at least a second; NotEnabledError when the bucket has no ``limit_marker_ttl``.
        """
        return (yield from self._removing(key, wire.PURGE, revision, ttl, timeout))

    purge = call(_purging)

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
            yield from self._allowing_ttl(ttl)
        headers = wire.removal_headers(operation)
        return (
            yield from self._deciding(
                key, b"", timeout, headers=headers, revision=revision, ttl=ttl
            )
        )

    def _allowing_ttl(self, ttl: Duration) -> Steps[None]:
        """Check a lifetime: ValueError, or NotEnabledError when the bucket knows none."""
        if to_nanoseconds(ttl) < SECOND_NS:
            raise ValueError(f"a lifetime is at least one second, got {ttl!r}")
        yield from self._allowing(
            "allow_msg_ttl", "keys with lifetimes of their own: set limit_marker_ttl", "2.11"
        )

    def _allowing(self, field: str, what: str, since: str) -> Steps[None]:
        """Raise NotEnabledError unless the bucket's stream allows something.

        A mirror is not asked, because its origin decides.
        """
        if self._info.config.mirror is None and not getattr(self._info.config, field):
            self._info = yield from self._informing()
            if not getattr(self._info.config, field):
                raise NotEnabledError(
                    f"bucket {self.bucket!r} does not allow {what} (create_key_value, "
                    f"update_key_value); needs a server from {since} on"
                )

    # -- several keys ------------------------------------------------------------------------------

    def _marker_of(self, key: str) -> Steps[int]:
        """The revision of the marker of a deleted key, 0 when there is nothing; KeyExistsError."""
        entry = yield from self._reading(key)
        if entry is not None and not entry.deleted:
            raise KeyExistsError(self.bucket, key, 0)
        return 0 if entry is None else entry.revision

    # -- the bucket --------------------------------------------------------------------------------

    def _informing(self) -> Steps[StreamInfo]:
        try:
            return (yield from self._js._plans.stream_info(self.stream))
        except StreamNotFoundError:
            raise BucketNotFoundError(self.bucket) from None

    def _telling(self) -> Steps[KeyValueStatus]:
        """What the bucket holds, and its configuration."""
        self._info = yield from self._informing()
        return status_of(self._info)

    status = call(_telling)

    def _comparing(self) -> Steps[bool]:
        """Whether the bucket is the one that this handle last saw; from now on this one is."""
        before, self._info = self._info, (yield from self._js._plans.stream_info(self.stream))
        return before.created == self._info.created

    def _destroying(self) -> Steps[None]:
        """Delete the bucket with all values. There is no way back."""
        try:
            yield from self._js._plans.delete_stream(self.stream)
        except StreamNotFoundError:
            raise BucketNotFoundError(self.bucket) from None

    destroy = call(_destroying)
