"""Publishing into the streams and removing from them, over a bare connection."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.crash.wire import Wire, message
from tests.spark.exact.ledger import Ledger
from tests.spark.exact.shapes import GROUPS, STREAMS

_WINDOW = 2000
_BLOCK_BYTES = 1 << 18


def furnish(wire: Wire) -> None:
    """Make the streams."""
    for name, token in STREAMS.items():
        config: dict[str, Any] = {
            "name": name,
            "subjects": [f"exact.{token}.>"],
            "storage": "file",
            "allow_direct": True,
            "num_replicas": 1,
        }
        wire.ok(f"STREAM.CREATE.{name}", config)


def publish(
    wire: Wire, ledger: Ledger, numbers: Iterable[int], told: Callable[[int], None] | None = None
) -> None:
    """Publish these messages, and write down where each was stored; RuntimeError when an ack does
    not come or says no.
    """
    waiting: dict[str, tuple[str, int]] = {}
    block, done = bytearray(), 0

    def take(wait: float) -> None:
        nonlocal done
        events = wire.events(wait)
        if not events and wait > 10:
            raise RuntimeError(f"no ack for {len(waiting)} messages")
        for event in events:
            stream, number = waiting.pop(event.subject)
            answer = json.loads(event.payload)
            if answer.get("stream") != stream or "error" in answer or answer.get("duplicate"):
                raise RuntimeError(f"message {number} for {stream} was answered {answer}")
            ledger.acked(stream, answer["seq"], number)
            done += 1
            if told is not None and done % 50_000 == 0:
                told(done)

    for number in numbers:
        shape = ledger.shapes(number)
        name = f"p.{number}"
        waiting[name] = (shape.stream, number)
        block += message(shape.subject, shape.payload, wire.inbox(name), shape.block)
        if len(block) > _BLOCK_BYTES:
            wire.send(bytes(block))
            block.clear()
            take(0)
        while len(waiting) > _WINDOW:
            if block:
                wire.send(bytes(block))
                block.clear()
            take(30)
    wire.send(bytes(block))
    while waiting:
        take(30)


def make_holes(wire: Wire, ledger: Ledger, rng: Random) -> None:
    """Before anything is read: the begin of one stream, all of some subjects, runs, single messages,
    the newest message of a stream.
    """
    live = ledger.live("EXACT_B")
    cut = live[len(live) // 10]
    ledger.remove("EXACT_B", {seq for seq in live if seq < cut})
    wire.ok("STREAM.PURGE.EXACT_B", {"seq": cut})
    purge_group(wire, ledger, "EXACT_A", rng.randrange(GROUPS))
    for name in STREAMS:
        live = ledger.live(name)
        run = max(2, len(live) // 50)
        at = rng.randrange(1, len(live) - run - 1)
        picked = {*live[at : at + run], *rng.sample(live[1:], len(live) // 100)}
        remove(wire, ledger, name, picked)
    remove(wire, ledger, "EXACT_C", {ledger.live("EXACT_C")[-1]})


def remove(wire: Wire, ledger: Ledger, stream: str, seqs: set[int]) -> None:
    """Remove single messages."""
    ledger.remove(stream, seqs)
    for seq in sorted(seqs):
        wire.ok(f"STREAM.MSG.DELETE.{stream}", {"seq": seq, "no_erase": seq % 2 == 0})


def purge_group(wire: Wire, ledger: Ledger, stream: str, group: int) -> None:
    """Remove all messages with some subjects, but for the first of the stream."""
    first = ledger.live(stream)[0]
    if first in ledger.of_group(stream, f"g{group}"):
        group = (group + 1) % GROUPS
    seqs = ledger.of_group(stream, f"g{group}")
    ledger.remove(stream, seqs)
    wire.ok(f"STREAM.PURGE.{stream}", {"filter": f"exact.{STREAMS[stream]}.g{group}.>"})


class Life(threading.Thread):
    """What goes on in the streams while they are read: more messages, and messages removed. The
    first message of a stream stays, for without it the reader would be right to speak of a loss.
    """

    def __init__(
        self, port: int, ledger: Ledger, numbers: range, seconds: float, seed: int
    ) -> None:
        """All of it takes so long when `share` is 1 from the begin on."""
        super().__init__(daemon=True)
        self._wire = Wire(port, 60)
        self._ledger = ledger
        self._numbers = numbers
        self._pause = seconds / max(1, len(numbers) / self._step)
        self._rng = Random(seed)
        self.share = 0.0
        """How much of it may be done by now, 0 to 1: raised as the job goes on."""
        self.hurry = threading.Event()
        self.error: BaseException | None = None

    @property
    def _step(self) -> int:
        return max(50, len(self._numbers) // 200)

    def run(self) -> None:
        try:
            for turn, at in enumerate(range(0, len(self._numbers), self._step)):
                while at > self.share * len(self._numbers) and not self.hurry.wait(0.1):
                    self._wire.events()  # which answers the server's pings
                publish(self._wire, self._ledger, self._numbers[at : at + self._step])
                self._remove(turn)
                self.hurry.wait(self._pause)
        except BaseException as error:  # told by the thread that waits for this one
            self.error = error
        finally:
            self._wire.close()

    def _remove(self, turn: int) -> None:
        name = self._rng.choice(list(STREAMS))
        live = self._ledger.live(name)
        if turn % 40 == 20:
            purge_group(self._wire, self._ledger, name, self._rng.randrange(GROUPS))
        elif turn % 2 and len(live) > 100:
            at = self._rng.randrange(1, len(live) - 20)
            recent = live[-max(20, self._step // 10) : -1]
            picked = {*live[at : at + self._rng.randrange(1, 15)], *self._rng.sample(recent, 5)}
            remove(self._wire, self._ledger, name, picked)

    def finish(self) -> None:
        """Do the rest at once, and wait for it; raises what went wrong."""
        self.hurry.set()
        deadline = time.monotonic() + 1800
        while self.is_alive() and time.monotonic() < deadline:
            self.join(1)
        if self.error is not None:
            raise RuntimeError("publishing while the job ran failed") from self.error
