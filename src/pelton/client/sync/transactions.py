# Made of client/aio/transactions.py by tools/gen_sync.py: change that file, and run it again.
"""Several keys of a bucket at once: an atomic batch that the bucket's stream stores whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pelton.api import keyvalue as wire
from pelton.errors import (
    KeyExistsError,
    NoRespondersError,
    RevisionConflictError,
    WrongLastSequenceError,
)

from ..base.durations import Duration, nanoseconds_of
from ..keyvalue.entries import Change, check_revision
from .locks import locked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .connection import Client
    from .keyvalue import KeyValue

V = TypeVar("V")


class KeyTransaction(Generic[V]):
    """Changes of several keys that are stored at once, or not at all; made by ``KeyValue.transaction``.

    ::

        with bucket.transaction() as change:
            change.update("stock.bolts", b"41", revision=stock.revision)
            change.create("orders.7", b"1 bolt")
        change.revisions  # {"stock.bolts": 12, "orders.7": 13}

    The methods only collect; the end of the block stores, or ``commit``. A key has one change at most. Nothing is
    stored when the block raises.
    """

    def __init__(self, bucket: KeyValue[V], seconds: float) -> None:
        """Made by ``transaction``."""
        self.client: Client = bucket.client
        """The client that it belongs to."""
        self.revisions: dict[str, int] = {}
        """The revision of each changed key, once the changes are stored."""
        self._bucket = bucket
        self._seconds = seconds
        self._changes: dict[str, Change] = {}
        self._over = False

    def __len__(self) -> int:
        """The number of changes."""
        return len(self._changes)

    @locked
    def __enter__(self) -> Self:
        """The transaction itself."""
        return self

    @locked
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, unless the block raises or that is done."""
        if kind is None and not self._over:
            self.commit()
        self._over = True

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
        if change.ttl is not None:
            nanoseconds_of("ttl", change.ttl)
        if self._over:
            raise ValueError("the transaction is over: begin another one")
        self._bucket._keyspace.write_subject(key)
        if key in self._changes:
            raise ValueError(f"key {key!r} is changed twice: a transaction changes it once")
        self._changes[key] = change

    @locked
    def commit(self) -> dict[str, int]:
        """Store all changes or none; returns the revision of each key.

        RevisionConflictError when a key has another revision than its change expects, KeyExistsError,
        NotEnabledError when the bucket has no ``allow_atomic``. After PeltonTimeoutError or
        ConnectionLostError it is unknown whether they are stored.
        """
        if self._over:
            raise ValueError("the transaction is over: begin another one")
        self._over = True
        self.revisions = store_changes(self._bucket, self._changes, self._seconds)
        return self.revisions


def store_changes(
    bucket: KeyValue[Any], changes: Mapping[str, Change], seconds: float
) -> dict[str, int]:
    """Store all changes or none; returns the revision of each key. Raises as ``KeyTransaction.commit``."""
    if not changes:
        return {}
    bucket._allow("allow_atomic", "transactions: set allow_atomic", "2.12")
    batch = bucket._js.atomic_batch(timeout=seconds)
    try:
        for key, change in changes.items():
            if change.ttl is not None:
                bucket._allow_ttl(change.ttl)
            batch.add(
                bucket._keyspace.write_subject(key),
                change.data,
                headers=wire.removal_headers(change.operation),
                expected_last_subject_seq=_expected(bucket, key, change),
                ttl=change.ttl,
            )
        ack = batch.commit()
    except NoRespondersError as error:
        bucket._explain(error)
        raise
    except WrongLastSequenceError as error:
        if isinstance(error, RevisionConflictError):
            raise
        only = next(iter(changes)) if len(changes) == 1 else ""
        raise RevisionConflictError(
            bucket.bucket, only, 0, error.err_code, error.description
        ) from error
    # what is stored at once has consecutive revisions
    return {key: ack.seq - len(changes) + n for n, key in enumerate(changes, 1)}


def _expected(bucket: KeyValue[Any], key: str, change: Change) -> int | None:
    """The revision that the key must have: that of its marker, 0 for none; KeyExistsError when it has a value."""
    if not change.creates:
        return change.revision
    entry = bucket._read(key)
    if entry is not None and not entry.deleted:
        raise KeyExistsError(bucket.bucket, key, 0)
    return 0 if entry is None else entry.revision
