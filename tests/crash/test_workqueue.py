"""A work queue whose server is killed: a confirmed ack never comes back, an unacknowledged message is
never lost, and when all is acknowledged nothing is left.

ROUNDS is how many lives a server has.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from random import Random

import pytest

from tests.crash.waiting import pause
from tests.crash.wire import Wire, message
from tests.peers import running_server
from tests.ways import SEED, length

ROUNDS = length(2, 10)
NEXT = "$JS.API.CONSUMER.MSG.NEXT.WORK"
WINDOW = 64

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90 + 20 * ROUNDS)]


@dataclass
class Told:
    """What clients know."""

    stored: dict[int, int] = field(default_factory=dict)  # sequence -> which consumer takes it
    handled: set[int] = field(default_factory=set)  # an ack was sent
    confirmed: set[int] = field(default_factory=set)  # ... and answered
    came_back: list[int] = field(default_factory=list)


def publish(port: int, told: Told, seed: int) -> None:
    """Publish until the server is gone."""
    wire, rng, number = Wire(port), Random(seed), 0
    waiting: dict[str, int] = {}
    while not wire.gone:
        block = b""
        while len(waiting) < WINDOW:
            number += 1
            kind = rng.randrange(2)
            waiting[f"{number}"] = kind
            block += message(f"work.{kind}.{rng.randrange(50)}", b"x" * 50, wire.inbox(f"{number}"))
        wire.send(block)
        take_acks(wire, waiting, told, 0.5)
    take_acks(wire, waiting, told, 0)
    wire.close()


def take_acks(wire: Wire, waiting: dict[str, int], told: Told, wait: float) -> None:
    for event in wire.events(wait):
        kind = waiting.pop(event.subject)
        seq = int(event.payload.partition(b'"seq":')[2].partition(b"}")[0])
        told.stored[seq] = kind


def work(port: int, told: Told, seed: int, kind: int, *, drain: bool = False) -> None:
    """Pull and acknowledge until the server is gone, or until nothing comes any more."""
    wire, rng, quiet, left = Wire(port), Random(seed), 0, 0
    before = set(told.confirmed)
    while not wire.gone and quiet < 4:
        if left <= 0:
            body = b'{"batch":40,"expires":1500000000}'
            wire.publish(f"{NEXT}.c{kind}", body, "pull")
            left = 40
        for event in wire.events(0.3):
            if event.subject.startswith("ack."):
                told.confirmed.add(int(event.subject.removeprefix("ack.")))
                continue
            if not event.reply:
                left = 0
                quiet += drain
                continue
            left, quiet = left - 1, 0
            seq = int(event.reply.split(".")[5])
            if seq in before:
                told.came_back.append(seq)
            draw = 0.0 if drain else rng.random()
            if draw < 0.5:
                told.handled.add(seq)
                wire.publish(event.reply, rng.choice([b"+ACK", b"", b"+TERM"]), f"ack.{seq}")
            elif draw < 0.75:
                told.handled.add(seq)
                wire.publish(event.reply, b"+ACK")
            elif draw < 0.85:
                wire.publish(event.reply, b"-NAK")
    wire.close()


def together(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("sync", ["always", "2m"])
def test_a_queue_survives_kills(sync: str) -> None:
    print(f"seed {SEED}")
    rng, told = Random(SEED), Told()
    with running_server("pelton", "--sync_interval", sync) as server:
        wire = Wire(server.port)
        config = {"name": "WORK", "subjects": ["work.>"], "retention": "workqueue"}
        wire.ok("STREAM.CREATE.WORK", config)
        for kind in (0, 1):
            one = {
                "durable_name": f"c{kind}",
                "ack_policy": "explicit",
                "ack_wait": 10**9,
                "filter_subject": f"work.{kind}.*",
            }
            wire.ok(f"CONSUMER.CREATE.WORK.c{kind}", {"stream_name": "WORK", "config": one})
        wire.close()
        for _ in range(ROUNDS):
            seeds = [rng.randrange(2**32) for _ in range(3)]
            threads = [threading.Thread(target=publish, args=(server.port, told, seeds[0]))]
            threads += [
                threading.Thread(target=work, args=(server.port, told, seeds[1 + kind], kind))
                for kind in (0, 1)
            ]
            for thread in threads:
                thread.start()
            confirmed = len(told.confirmed)
            pause(
                rng.uniform(0.1, length(0.3, 0.6)),
                lambda confirmed=confirmed: len(told.confirmed) > confirmed,
            )
            server.stop(kill=True)
            together(*threads)
            assert not told.came_back, told.came_back[:5]
            server.start()
        assert told.confirmed
        unhandled = set(told.stored) - told.handled
        drains = [
            threading.Thread(target=work, args=(server.port, told, 1, kind), kwargs={"drain": True})
            for kind in (0, 1)
        ]
        for thread in drains:
            thread.start()
        together(*drains)
        assert not told.came_back, told.came_back[:5]
        assert unhandled <= told.handled, sorted(unhandled - told.handled)[:10]
        server.stop(kill=True)
        server.start()
        wire = Wire(server.port)
        state = wire.ok("STREAM.INFO.WORK")["state"]
        assert state["messages"] == 0, state
        wire.close()
