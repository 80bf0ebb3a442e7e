"""Runs calls to a server side by side: the way there and back, and the wait for its disk, count once for several."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_THREADS = 32
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """As ``map(work, items)``, with up to 32 calls at a time; the first error is raised, and no further call begins."""
    if len(items) < 2:
        yield from map(work, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(min(_THREADS, len(items)))
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
