"""Unique identifiers: 22 characters of [0-9A-Za-z], cheap to make by the million.

The first 12 characters are random; the other 10 count up by a random step. When they overflow, all are
drawn again. The caller hands in the source of randomness: the machine's (``random.SystemRandom()``),
or a seeded one in tests and simulations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX_LENGTH: Final = 12
COUNTER_LENGTH: Final = 10
COUNTER_END: Final = len(DIGITS) ** COUNTER_LENGTH
STEP_MIN: Final = 33
STEP_END: Final = 333
_PAIRS: Final = tuple(a + b for a in DIGITS for b in DIGITS)


class Nuid:
    """A series of identifiers from one source of randomness. Not safe for two threads at once."""

    def __init__(self, seed_source: Random) -> None:
        """Start a series. Two series differ when their seed_source gives different numbers."""
        self._random = seed_source
        self._restart()

    def _restart(self) -> None:
        self._prefix = "".join(self._random.choices(DIGITS, k=PREFIX_LENGTH))
        self._counter = self._random.randrange(COUNTER_END)
        self._step = self._random.randrange(STEP_MIN, STEP_END)

    def next(self) -> str:
        """The next identifier: 22 characters, unique in this series."""
        self._counter += self._step
        if self._counter >= COUNTER_END:
            self._restart()
        rest = self._counter
        text = ""
        for _ in range(COUNTER_LENGTH // 2):
            rest, pair = divmod(rest, len(_PAIRS))
            text = _PAIRS[pair] + text
        return self._prefix + text
