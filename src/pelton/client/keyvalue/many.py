"""Many keys of one bucket at a time: what they all hold at one moment, and what may be removed.

Reads a watch until it has delivered what is stored.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from pelton.api import keyvalue as wire
from pelton.errors import MessageNotFoundError, PeltonTimeoutError

from ..base.durations import Duration, to_nanoseconds
from ..base.steps import call
from .bucket import Bucket
from .entries import KvEntry
from .transaction import Change, check_revision, committing
from .watching import Position, Watching

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..base.steps import Steps

V = TypeVar("V")

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


class ManyKeys(Bucket[V]):
    """The calls about many keys."""

    def _putting_many(
        self,
        values: Mapping[str, V],
        *,
        revisions: Mapping[str, int] | None = None,
        timeout: Duration | None = None,
    ) -> Steps[dict[str, int]]:
        """Store several values at once, or none of them; returns the revision of each key.

        ``revisions``: the newest revision that each of these keys must have (0: it must not exist);
        RevisionConflictError when one has another. NotEnabledError when the bucket has no ``allow_atomic``.
        """
        wanted = dict(revisions or {})
        unknown = sorted(wanted.keys() - values.keys())
        if unknown:
            raise ValueError(f"revisions are given for keys without a value: {unknown}")
        changes: dict[str, Change] = {}
        for key, value in values.items():
            self._keyspace.write_subject(key)
            expected = wanted.get(key)
            if expected is not None:
                check_revision(expected)
            changes[key] = Change(self._keyspace.encoded(key, value), revision=expected)
        return (yield from committing(self, changes, timeout))

    put_many = call(_putting_many)

    def _position(
        self,
        filters: Sequence[str],
        *,
        history: bool = False,
        updates_only: bool = False,
        from_revision: int | None = None,
        without_values: bool = False,
    ) -> Position:
        """The position of a new watch; InvalidKeyError, ValueError."""
        if bool(history) + bool(updates_only) + (from_revision is not None) > 1:
            raise ValueError("give one of history, updates_only and from_revision")
        if from_revision is not None and from_revision < 1:
            raise ValueError(f"from_revision is at least 1, got {from_revision}")
        return Position(
            self.stream,
            self._keyspace.subjects(filters),
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
            self, self._position(filters, history=history, without_values=without_values)
        )
        try:
            return (yield from watch._initialing(timeout))
        finally:
            yield from watch._stopping()

    def _listing(self, *filters: str, timeout: Duration | None = None) -> Steps[list[str]]:
        """The keys that have a value, sorted; with filters only those that match one of them.

        In a filter ``*`` stands for a token and ``>`` for the rest ("eu.>", "*.new"). The server
        selects the keys, and sends no values. Filters with keys in common are InvalidKeyError, unless one
        contains the other.
        """
        entries = yield from self._collecting(filters, timeout, without_values=True)
        state = {entry.key: entry.deleted for entry in entries}
        return sorted(key for key, deleted in state.items() if not deleted)

    keys = call(_listing)

    def _remembering(
        self, *keys: str, without_values: bool = False, timeout: Duration | None = None
    ) -> Steps[list[KvEntry[V]]]:
        """All kept revisions of a key, oldest first, with markers; an empty list when there are none.

        Also of several keys or filters, in the order in which they were stored; of all without one.
        """
        return (
            yield from self._collecting(keys, timeout, history=True, without_values=without_values)
        )

    history = call(_remembering)

    def _snapshotting(self, *filters: str, timeout: Duration | None = None) -> Steps[KvSnapshot[V]]:
        """The entries of many keys as of one revision of the bucket, by key; without deleted ones.

        Every matching key has the value that it had when ``snapshot.revision`` was the newest revision: no
        write is missing before it, none is seen after it, and a transaction is seen as a whole or not at all.
        The keys are read until a moment at which none of them has a newer revision; PeltonTimeoutError when that does
        not come in ``timeout`` (that of the client if none is given), because other clients write too fast.
        """
        deadline = self.client._clock() + self._js._seconds_of(timeout)
        watch = Watching(self, self._position(filters))
        found: dict[str, KvEntry[V]] = {}
        try:
            for entry in (yield from watch._initialing(timeout)):
                found[entry.key] = entry
            position = watch._position
            while (newest := (yield from self._newest(position.subjects))) > position.had:
                yield from self._catching_up(watch, newest, found, deadline)
        finally:
            yield from watch._stopping()
        snapshot = KvSnapshot((key, entry) for key, entry in found.items() if not entry.deleted)
        snapshot.revision = watch._position.had
        return snapshot

    snapshot = call(_snapshotting)

    def _catching_up(
        self, watch: Watching[V], newest: float, found: dict[str, KvEntry[V]], deadline: float
    ) -> Steps[None]:
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
            try:
                entry = yield from watch._following(min(left, wait))
            except PeltonTimeoutError:  # nothing more is there, or what was the newest has gone
                return
            found[entry.key] = entry
            if watch._position.had >= newest or newest == math.inf:
                wait = 0.0

    def _newest(self, subjects: Sequence[str]) -> Steps[float]:
        """The newest revision of these subjects; infinity in the middle of a transaction.

        A reader that has had this revision before it asked has had everything up to it: what was replaced
        before the reader came to it was replaced by a message up to here.
        """
        everything = self._keyspace.everything
        newest: float = 0
        for subject in dict.fromkeys((everything, *subjects)):
            try:
                found = yield from self._js._plans.get_message(self.stream, last_by_subject=subject)
            except MessageNotFoundError:
                continue
            if subject == everything and _BATCH in found.headers and _COMMIT not in found.headers:
                return math.inf
            if subject in subjects:
                newest = max(newest, found.seq)
        return newest

    def _purging_deletes(
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
            removed += yield from self._js._plans.purge_stream(
                self.stream,
                filter_subject=self._keyspace.subject(entry.key),
                seq=entry.revision + old,
            )
        return removed

    purge_deletes = call(_purging_deletes)
