"""Several keys of a bucket at once: an atomic batch that the bucket's stream stores whole or not at
all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pelton.api import keyvalue as wire
from pelton.errors import NoRespondersError, RevisionConflictError, WrongLastSequenceError

from ..base.steps import call
from ..jetstream.batches import Atomic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..base.durations import Duration
    from ..base.steps import Steps
    from .bucket import Bucket

V = TypeVar("V")


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


def revisions_of(changes: Mapping[str, Change], last: int) -> dict[str, int]:
    """The revisions of keys that were stored at once: consecutive ones, up to the last."""
    return {key: last - len(changes) + n for n, key in enumerate(changes, 1)}


def committing(
    bucket: Bucket[Any], changes: Mapping[str, Change], timeout: Duration | None
) -> Steps[dict[str, int]]:
    """Store all changes or none; returns the revision of each key.

    RevisionConflictError when a key has another revision than its change expects, NotEnabledError.
    """
    if not changes:
        return {}
    yield from bucket._allowing("allow_atomic", "transactions: set allow_atomic", "2.12")
    batch = Atomic(bucket._js, timeout=timeout)
    try:
        for key, change in changes.items():
            revision = change.revision
            if change.creates:
                revision = yield from bucket._marker_of(key)
            if change.ttl is not None:
                yield from bucket._allowing_ttl(change.ttl)
            yield from batch._adding(
                bucket._keyspace.write_subject(key),
                change.data,
                headers=wire.removal_headers(change.operation),
                expected_last_subject_seq=revision,
                ttl=change.ttl,
            )
        ack = yield from batch._committing()
    except NoRespondersError as error:
        yield from bucket._explaining(error)
        raise
    except WrongLastSequenceError as error:
        if isinstance(error, RevisionConflictError):
            raise
        only = next(iter(changes)) if len(changes) == 1 else ""
        raise RevisionConflictError(
            bucket.bucket, only, 0, error.err_code, error.description
        ) from error
    return revisions_of(changes, ack.seq)


class Transaction(Generic[V]):
    """Changes of several keys that are stored at once, or not at all.

    The methods only collect, in asyncio, too; the end of the block stores, or ``commit``. A key has one
    change at most. Nothing is stored when the block raises.
    """

    def __init__(self, bucket: Bucket[V], timeout: Duration | None = None) -> None:
        """Made by ``transaction``."""
        self.client = bucket.client
        self.revisions: dict[str, int] = {}
        """The revision of each changed key, once the changes are stored."""
        self._bucket = bucket
        self._timeout = timeout
        self._changes: dict[str, Change] = {}
        self._over = False

    def __len__(self) -> int:
        """The number of changes."""
        return len(self._changes)

    def put(self, key: str, value: V) -> None:
        """Store a value, whatever the key holds."""
        self._add(key, Change(self._bucket._keyspace.encoded(key, value)))

    def create(self, key: str, value: V, *, ttl: Duration | None = None) -> None:
        """Store the value of a key that does not exist, or was deleted."""
        self._add(key, Change(self._bucket._keyspace.encoded(key, value), creates=True, ttl=ttl))

    def update(self, key: str, value: V, revision: int) -> None:
        """Store a value if this is the key's newest revision; 0: if it never had a value."""
        check_revision(revision)
        self._add(key, Change(self._bucket._keyspace.encoded(key, value), revision=revision))

    def delete(self, key: str, *, revision: int | None = None) -> None:
        """Delete a key, with ``revision`` only if that is its newest one."""
        self._remove(key, wire.DELETE, revision)

    def purge(self, key: str, *, revision: int | None = None, ttl: Duration | None = None) -> None:
        """Delete a key with its history, with ``revision`` only if that is its newest one."""
        self._remove(key, wire.PURGE, revision, ttl)

    def _remove(
        self,
        key: str,
        operation: wire.Operation,
        revision: int | None,
        ttl: Duration | None = None,
    ) -> None:
        if revision is not None:
            check_revision(revision, least=1)
        self._add(key, Change(b"", operation, revision, ttl=ttl))

    def _add(self, key: str, change: Change) -> None:
        """Take a change; InvalidKeyError, or ValueError for a second one of the key."""
        if self._over:
            raise ValueError("the transaction is over: begin another one")
        self._bucket._keyspace.write_subject(key)
        if key in self._changes:
            raise ValueError(f"key {key!r} is changed twice: a transaction changes it once")
        self._changes[key] = change

    def _committing(self) -> Steps[dict[str, int]]:
        """Store all changes or none; returns the revision of each key.

        RevisionConflictError when a key has another revision than its change expects, KeyExistsError,
        NotEnabledError when the bucket has no ``allow_atomic``. After PeltonTimeoutError or
        ConnectionLostError it is unknown whether they are stored.
        """
        if self._over:
            raise ValueError("the transaction is over: begin another one")
        self._over = True
        self.revisions = yield from committing(self._bucket, self._changes, self._timeout)
        return self.revisions

    commit = call(_committing)

    def _leaving(self, kind: type[BaseException] | None) -> Steps[None]:
        """Commit at the end of the block, unless it raises or that is done."""
        if kind is None and not self._over:
            yield from self._committing()
        self._over = True
