"""How calls to a server are made for each of some items: one by one here; a caller may hand in another way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Together(Protocol):
    """Calls ``work`` for each item, perhaps several at a time; yields the results in the order of the items."""

    def __call__(
        self, work: Callable[[_Item], _Result], items: Sequence[_Item], /
    ) -> Iterable[_Result]:
        """Raise the first error of ``work``."""


def one_by_one(work: Callable[[_Item], _Result], items: Sequence[_Item], /) -> Iterable[_Result]:
    """Each call begins when the one before has ended, and its result was taken."""
    return map(work, items)
