"""Puts and gets of a key-value bucket per second: this client beside nats-py.

    python bench/bench_kv.py URL [seconds]

Values of 128 bytes, 100 keys, a bucket in memory; one call after the other, and 32 tasks that call
at the same time. The runs of both clients take turns; told are medians of the rates, and of the
ratios of two runs that follow each other. Below are the same for calls per second of the client's
processor time, which other work on the machine changes less.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import nats
from nats.js import api

from pelton import connect, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

VALUE = b"x" * 128
KEYS = 100
ROUNDS = 5
Rates = dict[str, float]


class Watch:
    """Measures the rate of calls, by the clock and by the processor's."""

    def __init__(self, span: float) -> None:
        """Starts now, and ends after ``span`` seconds."""
        self.done = 0
        self._start = time.perf_counter()
        self._processor = time.process_time()
        self._end = self._start + span

    def go_on(self) -> str | None:
        """The key of the next call, None at the end."""
        if time.perf_counter() >= self._end:
            return None
        self.done += 1
        return f"device.{self.done % KEYS}"

    def rates(self, name: str) -> Rates:
        """Calls per second, and per second of the processor."""
        seconds = time.perf_counter() - self._start
        processor = time.process_time() - self._processor
        return {name: self.done / seconds, f"{name}, cpu": self.done / processor}


async def rate(
    name: str, call: Callable[[str], Coroutine[Any, Any, Any]], tasks: int, span: float
) -> Rates:
    """The rates of calls of so many tasks."""
    watch = Watch(span)

    async def work() -> None:
        while (key := watch.go_on()) is not None:
            await call(key)

    await asyncio.gather(*[work() for _ in range(tasks)])
    return watch.rates(name)


async def measured(kv: Any, span: float) -> Rates:
    """All rates of a bucket of either client."""
    found: Rates = {}
    for n in range(KEYS):
        await kv.put(f"device.{n}", VALUE)
    for tasks, how in ((1, "one at a time"), (32, "32 tasks")):
        found |= await rate(f"put, {how}", lambda key: kv.put(key, VALUE), tasks, span)
        found |= await rate(f"get, {how}", kv.get, tasks, span)
    return found


async def ours(url: str, span: float) -> Rates:
    """The rates of this client, asyncio."""
    async with connect(url) as client:
        js = client.jetstream()
        found = await measured(await js.create_key_value("bench", storage="memory"), span)
        await js.delete_key_value("bench")
    return found


def blocking(url: str, span: float) -> Rates:
    """The rates of this client, blocking."""
    found: Rates = {}
    with sync.connect(url) as client:
        js = client.jetstream()
        kv = js.create_key_value("bench", storage="memory")
        for name, call in (("put", lambda key: kv.put(key, VALUE)), ("get", kv.get)):
            watch = Watch(span)
            while (key := watch.go_on()) is not None:
                call(key)
            found |= watch.rates(f"{name}, one at a time")
        js.delete_key_value("bench")
    return found


async def theirs(url: str, span: float) -> Rates:
    """The rates of nats-py."""
    client = await nats.connect(url)
    js = client.jetstream()
    config = api.KeyValueConfig(bucket="bench", storage=api.StorageType.MEMORY, direct=True)
    found = await measured(await js.create_key_value(config), span)
    await js.delete_key_value("bench")
    await client.close()
    return found


def main() -> None:
    """Print a line for each rate."""
    url = sys.argv[1]
    span = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    runs = [
        (asyncio.run(theirs(url, span)), asyncio.run(ours(url, span)), blocking(url, span))
        for _ in range(ROUNDS)
    ]
    print(f"{'':24} {'nats-py':>8} {'asyncio':>8} {'ratio':>6} {'blocking':>8} {'ratio':>6}")
    for name in sorted(runs[0][0], key=lambda name: name.endswith("cpu")):
        row = [f"{name:24} {median(each[0][name] for each in runs):8.0f}"]
        for place in (1, 2):
            if name in runs[0][place]:
                row.append(f"{median(each[place][name] for each in runs):8.0f}")
                row.append(f"{median(each[place][name] / each[0][name] for each in runs):6.1f}")
        print(" ".join(row))


if __name__ == "__main__":
    main()
