"""One body of a test for both shells: written as blocking code, and run over either of them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pelton import connect, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHELLS = ("asyncio", "blocking")


def _waits(value: object) -> bool:
    return type(value).__module__.startswith("pelton.client.aio")


class Waited:
    """An object of the asyncio shell whose calls wait, in a loop of the test's own."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return functools.partial(self._call, value) if inspect.ismethod(value) else value

    def __enter__(self) -> Waited:
        self._call(self._inner.__aenter__)
        return self

    def __exit__(self, *why: object) -> None:
        self._call(self._inner.__aexit__, *why)

    def __iter__(self) -> Iterator[Any]:
        return self._each(self._inner)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def inside() -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.iscoroutine(result) else result

        return self._result(self._loop.run_until_complete(inside()))

    def _result(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._result(each) for each in value]
        if inspect.isasyncgen(value):
            return self._each(value)
        return Waited(value, self._loop) if _waits(value) else value

    def _each(self, items: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    item = self._loop.run_until_complete(anext(items))
                except StopAsyncIteration:
                    return
                yield self._result(item)
        finally:
            if inspect.isasyncgen(items):
                self._loop.run_until_complete(items.aclose())


@contextmanager
def connected(shell: str, url: str, **options: Any) -> Iterator[Any]:
    """A client of the shell, closed at the end."""
    if shell == "blocking":
        with sync.connect(url, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:

        async def opened() -> Any:
            return await connect(url, **options)

        with Waited(runner.run(opened()), runner.get_loop()) as waited:
            yield waited


def wait_for(condition: Callable[[], bool], state: Callable[[], object] = lambda: "") -> None:
    """Until a server has done what it was told: nats-server answers questions that came later first.

    ``state`` is what an error shows.
    """
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, state()
        time.sleep(0.005)  # the server has the processor then
