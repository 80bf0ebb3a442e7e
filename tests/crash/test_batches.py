"""A killed server has each atomic batch whole or not at all, and all that flow acks spoke of.

ROUNDS is how many lives the server has.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial
from random import Random

import pytest

from pelton import Options, StreamConfig
from pelton.client.base.addresses import parse_servers
from pelton.errors import PeltonError
from pelton.sync import connect
from tests.crash.waiting import pause
from tests.peers import ServerProcess, running_server
from tests.ways import SEED, length

ROUNDS = length(2, 12)
BATCH_MAX = 60

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 30 * ROUNDS)]


class Load(threading.Thread):
    """Publishes batches until the server is gone, and keeps what it was told."""

    def __init__(self, url: str, seed: int, name: str) -> None:
        super().__init__(daemon=True)
        self.options = Options(servers=parse_servers(url), reconnect=False)
        self.rng = Random(seed)
        self.label = name
        self.committed: list[tuple[str, int]] = []  # atomic: label, count
        self.stored: list[tuple[str, int]] = []  # fast: label, messages acked

    def run(self) -> None:
        with connect(self.options) as client:
            js = client.jetstream(timeout=2)
            for number in range(1_000_000):
                label = f"{self.label}.{number}"
                try:
                    if number % 4:
                        batch = js.atomic_batch(ack_every=10)
                        count = self.rng.randint(1, BATCH_MAX)
                        for n in range(count):
                            size = self.rng.choice((10, 300, 3000))
                            batch.add("B.a", f"{label} {n} {count} ".encode().ljust(size, b"."))
                        self.committed.append((label, batch.commit().count))
                        continue
                    fast = js.fast_batch(flow=20)
                    for n in range(self.rng.randint(1, 400)):
                        fast.publish("B.f", f"{label} {n} 0 ".encode())
                    fast.commit()
                except (PeltonError, OSError):
                    if number % 4 == 0:
                        self.stored.append((label, fast.flow.acked))
                    return
                else:
                    self.stored.append((label, fast.flow.count))


def look(server: ServerProcess) -> tuple[dict[str, list[int]], dict[str, int]]:
    """label -> numbers of its messages, in the order of the stream; label -> size of its batch."""
    found: dict[str, list[int]] = defaultdict(list)
    sizes: dict[str, int] = {}
    with connect(server.url) as client:
        js = client.jetstream()
        last = js.stream_info("B").state.last_seq
        for columns in js.read_columns("B", 1, last + 1):
            offsets = memoryview(columns.payload_offsets).cast("B").cast("i")
            data = bytes(columns.payload_data)
            for row in range(columns.count):
                words = data[offsets[row] : offsets[row + 1]].decode().split(" ")
                found[words[0]].append(int(words[1]))
                sizes[words[0]] = int(words[2])
    return found, sizes


def enough(loads: list[Load]) -> bool:
    """Whether batches of both kinds are there to be lost."""
    committed = sum(len(load.committed) for load in loads)
    return committed > 5 and any(count for load in loads for _, count in load.stored)


@pytest.mark.parametrize("sync", ["always", "2m"])
def test_batches_are_whole_after_a_kill(sync: str) -> None:
    print(f"seed {SEED}")
    rng = Random(SEED)
    committed: dict[str, int] = {}
    stored: dict[str, int] = {}
    with running_server("pelton", "--sync_interval", sync) as server:
        with connect(server.url) as client:
            config = StreamConfig(name="B", subjects=["B.>"], allow_atomic=True, allow_batched=True)
            client.jetstream().create_stream(config)
        for life in range(ROUNDS):
            loads = [Load(server.url, rng.randrange(2**32), f"{life}.{k}") for k in range(3)]
            for load in loads:
                load.start()
            pause(rng.uniform(0.1, length(0.25, 0.6)), partial(enough, loads))
            server.stop(kill=True)
            for load in loads:
                load.join(20)
                assert not load.is_alive()
                committed |= dict(load.committed)
                stored |= dict(load.stored)
            server.start()
            found, sizes = look(server)
            for label, numbers in found.items():
                # also of those that nobody was told of
                assert not sizes[label] or numbers == list(range(sizes[label])), label
            for label, count in committed.items():
                assert found[label] == list(range(count)), (label, count)
            for label, count in stored.items():
                assert found[label][:count] == list(range(count)), (label, count)
        assert len(committed) > 5 * ROUNDS, "too little load to say anything"
        assert any(stored.values())
