"""Puts and gets of a key-value bucket per second: this client beside nats-py.

    python bench/bench_kv.py URL [seconds]

Values of 128 bytes, 1000 keys, a bucket in memory; one call after the other, and 32 tasks that
call at the same time. The runs of both clients take turns; told are medians of the rates, and of
the ratios of two runs that follow each other.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import nats
from nats.js import api

from penstock.client import KeyValueConfig, connect, connect_blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

VALUE = b"x" * 128
KEYS = 1000
ROUNDS = 5
Rates = dict[str, float]


async def rate(call: Callable[[str], Coroutine[Any, Any, Any]], tasks: int, span: float) -> float:
    """Calls per second of so many tasks."""
    start = time.perf_counter()
    done = 0

    async def work() -> None:
        nonlocal done
        while time.perf_counter() - start < span:
            await call(f"device.{done % KEYS}")
            done += 1

    await asyncio.gather(*[work() for _ in range(tasks)])
    return done / (time.perf_counter() - start)


async def measured(kv: Any, span: float) -> Rates:
    """All rates of a bucket of either client."""
    found: Rates = {}
    for tasks, how in ((1, "one at a time"), (32, "32 tasks")):
        found[f"put, {how}"] = await rate(lambda key: kv.put(key, VALUE), tasks, span)
        found[f"get, {how}"] = await rate(kv.get, tasks, span)
    return found


async def ours(url: str, span: float) -> Rates:
    """The rates of this client, asyncio."""
    async with connect(url) as client:
        js = client.jetstream()
        config = KeyValueConfig(bucket="bench", storage="memory")
        found = await measured(await js.create_key_value(config), span)
        await js.delete_key_value("bench")
    return found


def blocking(url: str, span: float) -> Rates:
    """The rates of this client, blocking."""
    found: Rates = {}
    with connect_blocking(url) as client:
        js = client.jetstream()
        kv = js.create_key_value(KeyValueConfig(bucket="bench", storage="memory"))
        for name, call in (("put", lambda key: kv.put(key, VALUE)), ("get", kv.get)):
            start, done = time.perf_counter(), 0
            while time.perf_counter() - start < span:
                call(f"device.{done % KEYS}")
                done += 1
            found[f"{name}, one at a time"] = done / (time.perf_counter() - start)
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
    print(f"{'':20} {'nats-py':>8} {'asyncio':>8} {'ratio':>6} {'blocking':>8} {'ratio':>6}")
    for name in runs[0][0]:
        row = [f"{name:20} {median(each[0][name] for each in runs):8.0f}"]
        for place in (1, 2):
            if name in runs[0][place]:
                row.append(f"{median(each[place][name] for each in runs):8.0f}")
                row.append(f"{median(each[place][name] / each[0][name] for each in runs):6.1f}")
        print(" ".join(row))


if __name__ == "__main__":
    main()
