"""A user's handle of one bucket, and what is made of it: watches, transactions, handles with other codecs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ..base.arguments import checked
from .many import ManyKeys

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.durations import Duration
    from .codecs import KeyCodec, ValueCodec

V = TypeVar("V")
KW = TypeVar("KW")
KT = TypeVar("KT")


class Handle(ManyKeys[V], Generic[V, KW, KT]):
    """A handle of a bucket; ``KW`` and ``KT`` are the shell's watches and transactions of it."""

    _watch_type: Callable[..., KW]
    _transaction_type: Callable[..., KT]

    @checked
    def watch(
        self,
        *filters: str,
        history: bool = False,
        updates_only: bool = False,
        from_revision: int | None = None,
        without_values: bool = False,
        ignore_deletes: bool = False,
    ) -> KW:
        """Watch some keys or filters, or all: their values first, then every change.

        history: begin with all kept revisions, not only the newest of each key.
        updates_only: begin with nothing.
        from_revision: begin with everything that is stored from this revision on.
        without_values: deliver keys and sizes only.
        ignore_deletes: leave out markers of deleted keys.

        In blocking code the watch begins at once. In asyncio it begins at its ``async with`` block, when it is
        awaited, or with its first call. Raises InvalidKeyError, and ValueError for more than one of the first three.
        """
        position = self._position(
            filters,
            history=history,
            updates_only=updates_only,
            from_revision=from_revision,
            without_values=without_values,
        )
        return self._watch_type(self, position, ignore_deletes=ignore_deletes)

    @checked
    def transaction(self, *, timeout: Duration | None = None) -> KT:
        """Change several keys at once: all changes are stored, or none.

        The bucket needs ``allow_atomic``; commit raises NotEnabledError without it.
        """
        return self._transaction_type(self, timeout)

    def with_keys(self, codec: KeyCodec) -> Self:
        """The same bucket with another codec of keys, such as ``Base64Keys()`` or ``PathKeys()``."""
        handle: Self = self._with(self._keyspace.values, codec)
        return handle

    def _with(self, values: ValueCodec[Any], keys: KeyCodec) -> Any:
        """A handle of the same bucket with other codecs; TypeError for what is none."""
        for codec, needed in ((values, "decode_value"), (keys, "decode_key")):
            if isinstance(codec, type) or not callable(getattr(codec, needed, None)):
                raise TypeError(f"{codec!r} is no codec: it has no method {needed}")
        return type(self)(self._js, self._info, values, keys=keys, direct=self._direct)
