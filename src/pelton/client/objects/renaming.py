"""A rename: the object gets its new name, then loses its old one.

Both names have the same chunks meanwhile. The old name is taken from exactly the message that was read, so of a
rename and a put, a delete or another rename of the same object, one is first, and the other one knows::

    old name   read at 7 ──────────────────► purge up to 7     ─► removed: it is renamed
    new name               stored at 9                         ─► nothing:  another one was first

What was put or changed first is renamed in its turn. What was deleted or renamed first is not found, and the
new name is withdrawn.

Knows nothing of transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.errors import ObjectExistsError, ObjectNotFoundError, WrongLastSequenceError

from .models import meta_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.steps import Steps
    from .models import ObjectInfo
    from .properties import Properties


class Renaming:
    """One rename of an object: ``begin``, then ``attempt``, which may be repeated."""

    def __init__(
        self, store: Properties, old: str, new: str, changed: Callable[[ObjectInfo], ObjectInfo]
    ) -> None:
        """``changed``: the properties with the new name in place of those with the old one."""
        self._store = store
        self._old = old
        self._new = new
        self._changed = changed
        self._before: ObjectInfo
        self._seq = 0  # of the message with the old name
        self._new_seq = 0  # of that with the new name
        self._doubt = False  # whether the old name may be gone already

    def begin(self, before: ObjectInfo, seq: int) -> Steps[None]:
        """Take what was read; ObjectExistsError when another object has the new name."""
        self._before, self._seq = before, seq
        hidden, self._new_seq = yield from self._store._looking(self._new)
        if hidden is not None and not hidden.deleted:
            raise ObjectExistsError(
                f"bucket {self._store.bucket!r} has an object {self._new!r} already"
            )

    def attempt(self) -> Steps[ObjectInfo]:
        """Rename the object; ObjectNotFoundError when another one has deleted or renamed it meanwhile."""
        while True:
            info = self._changed(self._before)
            yield from self._naming(info)
            if (yield from self._unnaming()):
                return info

    def _naming(self, info: ObjectInfo) -> Steps[None]:
        """Store the new name; ObjectExistsError when another object has it meanwhile."""
        store = self._store
        while True:
            try:
                self._new_seq = yield from store._publishing(info, self._new_seq)
            except WrongLastSequenceError:
                found, self._new_seq = yield from store._looking(self._new)
                if found is None or found.deleted:
                    continue
                if found.nuid != info.nuid:
                    raise ObjectExistsError(
                        f"bucket {store.bucket!r} has an object {self._new!r} meanwhile"
                    ) from None
            return

    def _unnaming(self) -> Steps[bool]:
        """Whether the old name is gone; if another message has it, that is renamed next."""
        doubt, self._doubt = self._doubt, True
        purged = yield from self._purging(self._old, self._seq)
        self._doubt = False
        if purged:
            return True
        found, seq = yield from self._store._looking(self._old)
        if doubt and (found is None or found.nuid != self._before.nuid):
            return True
        if found is None or found.deleted:
            yield from self._purging(self._new, self._new_seq)
            raise ObjectNotFoundError(self._store.bucket, self._old)
        self._before, self._seq = found, seq
        return False

    def _purging(self, name: str, seq: int) -> Steps[int]:
        """Remove the message of that name up to this sequence; returns how many there were."""
        store = self._store
        subject = meta_subject(store.bucket, name)
        return (
            yield from store._js._plans.purge_stream(
                store._stream, filter_subject=subject, seq=seq + 1
            )
        )
