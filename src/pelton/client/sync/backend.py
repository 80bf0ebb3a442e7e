"""What differs between the halves of the client, for blocking code."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    F = TypeVar("F", bound=Callable[..., Any])


def locked(method: F) -> F:
    """A method of an object with a ``client``, whose lock it holds while it runs.

    Threads share a client; a call gives the lock away while it waits. A generator holds it while it makes
    an item, not while its user has the item.
    """
    if inspect.isgeneratorfunction(method):
        return cast("F", _locked_items(method))

    @functools.wraps(method)
    def holding(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        guard = self.client._guard
        guard.take()
        try:
            return method(self, *args, **kwargs)
        finally:
            guard.give()

    return cast("F", holding)


def _locked_items(method: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(method)
    def holding(self: Any, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        items = method(self, *args, **kwargs)
        guard = self.client._guard
        try:
            while True:
                with guard:
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                yield item
        finally:
            with guard:
                items.close()

    return holding
