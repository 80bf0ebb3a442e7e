"""Puts and gets of objects: this client beside nats-py.

    python bench/bench_objects.py URL [megabytes]

One object of 100 MB, and objects of 1000 bytes one after the other, in a bucket in memory. Told are the
medians of three rounds, in seconds: by the clock, and of the client's processor time, which other work on
the machine changes less. nats-py gets a tenth of the large object, because its time grows with the square.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import nats

from pelton import ObjectStoreConfig, connect, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

BUCKET = "bench-objects"
SMALL = os.urandom(1000)
COUNT = 200
ROUNDS = 3
Spent = dict[str, list[tuple[float, float]]]


def note(spent: Spent, name: str, start: tuple[float, float], part: float = 1.0) -> None:
    """Remember the time that a part of the work took."""
    now = time.perf_counter(), time.process_time()
    both = ((now[0] - start[0]) / part, (now[1] - start[1]) / part)
    spent.setdefault(name, []).append(both)


def begin() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


async def waited(store: Any, who: str, large: bytes, spent: Spent) -> None:
    """The puts and gets of one store whose calls are awaited."""
    part = 0.1 if who == "nats-py" else 1.0
    start = begin()
    await store.put("large", large)
    note(spent, f"{who}: put large", start)
    if part < 1:
        await store.put("large", large[: int(len(large) * part)])
    start = begin()
    await store.get("large")
    note(spent, f"{who}: get large", start, part)
    await repeated(lambda key: store.put(key, SMALL), f"{who}: put small", spent)
    await repeated(store.get, f"{who}: get small", spent)


async def repeated(
    call: Callable[[str], Coroutine[Any, Any, Any]], name: str, spent: Spent
) -> None:
    start = begin()
    for number in range(COUNT):
        await call(f"small-{number}")
    note(spent, name, start, COUNT)


def blocking(store: Any, large: bytes, spent: Spent) -> None:
    """The same in blocking code."""
    start = begin()
    store.put("large", large)
    note(spent, "blocking: put large", start)
    start = begin()
    store.get("large")
    note(spent, "blocking: get large", start)
    for name, call in (
        ("blocking: put small", lambda key: store.put(key, SMALL)),
        ("blocking: get small", store.get),
    ):
        start = begin()
        for number in range(COUNT):
            call(f"small-{number}")
        note(spent, name, start, COUNT)


async def measure(url: str, large: bytes, spent: Spent) -> None:
    """One round of both clients of asyncio."""
    async with connect(url) as client:
        await waited(await client.jetstream().object_store(BUCKET), "asyncio", large, spent)
    other = await nats.connect(url)
    try:
        await waited(await other.jetstream().object_store(BUCKET), "nats-py", large, spent)
    finally:
        await other.close()


def main() -> None:
    """Measure and tell."""
    url = sys.argv[1]
    large = os.urandom(int(sys.argv[2] if len(sys.argv) > 2 else 100) * 10**6)
    spent: Spent = {}
    with sync.connect(url) as client:
        js = client.jetstream()
        store = js.create_object_store(ObjectStoreConfig(bucket=BUCKET, storage="memory"))
        try:
            for _ in range(ROUNDS):
                asyncio.run(measure(url, large, spent))
                blocking(store, large, spent)
        finally:
            js.delete_object_store(BUCKET)
    for name, times in sorted(spent.items(), key=lambda item: item[0].partition(": ")[2]):
        clock, processor = (median(column) for column in zip(*times, strict=True))
        print(f"{name:22} {clock * 1000:10.2f} ms  processor {processor * 1000:10.2f} ms")


if __name__ == "__main__":
    main()
