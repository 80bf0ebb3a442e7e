"""Floors: how far the sequences of each stream have gone, written beside its log now and then.

When the end of the newest segment gets lost, its floor says what was there (`core/floor`). Asked
by the engine's timer; it has no time of its own.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.core.floor import say_floor
from penstock.engine.settings import SECOND

if TYPE_CHECKING:
    from penstock.engine.account import Account
    from penstock.engine.entries import StreamEntry

INTERVAL_NS = 2 * SECOND
"""Between two rounds through the streams."""
AT_ONCE = 100
"""Floors that are written in one turn: each takes some tens of microseconds."""


class Floors:
    """Where the round through the streams is."""

    def __init__(self) -> None:
        """Before the first one."""
        self._due_ns = 0
        self._left: Iterator[StreamEntry] | None = None

    def tick(self, now_ns: int, accounts: Iterable["Account"]) -> None:
        """Write the next of those that are not up to date."""
        if self._left is None:
            if now_ns < self._due_ns:
                return
            self._due_ns = now_ns + INTERVAL_NS
            # A mirror gets its messages again, with their sequences.
            self._left = iter(
                [
                    stream
                    for account in accounts
                    for stream in account.streams.values()
                    if stream.files is not None and stream.config.mirror is None
                ]
            )
        written = 0
        for stream in self._left:
            written += say_floor(stream.core.log)
            if written == AT_ONCE:
                return
        self._left = None
