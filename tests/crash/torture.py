"""Kill a server at random moments under every kind of load, and hold each life to what the lives
before it said.

    python -m tests.crash.torture --rounds 300 --seed 7 --server nats-server

A round: all kinds load at once, the process gets SIGKILL (or, as told, SIGTERM), it starts again,
everything acknowledged is compared. The table at the end counts what was acknowledged and what was
wrong; the exit status is 1 when anything was. The seed decides which mode, which load and when: the
moment a kill meets in the server's code still differs from run to run.
"""

from __future__ import annotations

import argparse
import operator
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from tests.crash.kinds import KINDS, Kind, Runner
from tests.crash.waiting import pause
from tests.crash.wire import Wire
from tests.peers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROUNDS_OF_A_STORE = 15  # then a new one, in the next mode
LOAD_S = (0.05, 0.6)
LEAST = 100  # acks of a life, on a machine that is busy with something else
JOIN_S = 60.0

# The same settings for both servers; 2m is nats-server's default, always is Pelton's.
MODES: dict[str, str] = {
    "always": "jetstream { sync_interval: always }\n",
    "2m": "jetstream { sync_interval: 2m }\n",
    "encrypted": "jetstream { sync_interval: always, cipher: aes, key: torture }\n",
}
ON_DISK = ("always", "encrypted")  # where an ack means the disk


@dataclass
class Tally:
    """What came of some rounds."""

    rounds: int = 0
    acked: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)  # rounds

    def add(self, other: Tally) -> None:
        self.rounds += other.rounds
        self.acked += other.acked
        self.faults += other.faults
        self.examples += other.examples
        self.failing += other.failing


class World:
    """A server, all kinds of load on it, and what they know."""

    def __init__(
        self, server: ServerProcess, seed: int, kinds: Iterable[type[Kind]] = KINDS
    ) -> None:
        self.server = server
        self.rng = Random(seed)
        self.kinds = [kind(self.rng.randrange(2**32)) for kind in kinds]
        self._counted: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._acked = 0

    def furnish(self) -> None:
        wire = Wire(self.server.port)
        for kind in self.kinds:
            kind.furnish(wire)
        wire.close()

    def load(
        self,
        seconds: float,
        stop: Callable[[], None],
        rest_s: float = 0.0,
        least: int = 0,
        each: int = 0,
    ) -> None:
        """All kinds for so long, and until there are `least` acks more, `each` for every kind; then `stop`
        ends the server, or the load is halted if it doesn't.
        """
        runners = [Runner(kind, self.server.port, rest_s) for kind in self.kinds]
        for runner in runners:
            runner.start()
        wanted = self.acked + least
        of_each = [kind.acked_total + each for kind in self.kinds]

        def enough() -> bool:
            acked = [kind.acked_total for kind in self.kinds]
            return sum(acked) >= wanted and all(map(operator.ge, acked, of_each))

        pause(seconds, enough)
        stop()
        for runner in runners:
            runner.halt.set()
        for runner in runners:
            runner.join(JOIN_S)
            if runner.is_alive():
                runner.kind.fault("a client got no answer", runner.kind)
            elif runner.error is not None:
                runner.kind.fault("a client failed", repr(runner.error))

    @property
    def acked(self) -> int:
        return sum(kind.acked_total for kind in self.kinds)

    def check(self) -> None:
        wire = Wire(self.server.port)
        for kind in self.kinds:
            try:
                kind.check(wire)
            except (RuntimeError, AssertionError) as exc:
                kind.fault("no answer", repr(exc))
                wire.close()
                wire = Wire(self.server.port)
        wire.close()

    def settle(self) -> None:
        wire = Wire(self.server.port, 60)
        for kind in self.kinds:
            kind.settle(wire)
        wire.close()

    def news(self, number: int) -> Tally:
        """What came since the last call, as one round."""
        faults: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        examples: list[str] = []
        for kind in self.kinds:
            faults += kind.faults
            refused += kind.refused
            examples += kind.examples
            kind.examples = []
        faults["publish refused"] = sum(refused.values())
        examples += [f"refused: {text}"[:300] for text in list(refused - self._refused)[:3]]
        self._refused = refused
        acked = self.acked
        tally = Tally(1, acked - self._acked, faults - self._counted, examples)
        tally.failing = [number] if tally.faults else []
        self._counted, self._acked = faults, acked
        return tally


def configure(server: ServerProcess, text: str) -> None:
    """Have it read a configuration."""
    conf = Path(server.store).with_suffix(".conf")
    conf.write_text(text)
    server.arguments = ["-c", str(conf)]


def torture(
    kind: str,
    mode: str,
    seed: int,
    rounds: int,
    *,
    first: int = 1,
    kinds: Iterable[type[Kind]] = KINDS,
    told: Callable[[int, Tally], None] = lambda number, tally: None,
    keep: str = "",
    load_s: tuple[float, float] = LOAD_S,
) -> Tally:
    """So many lives of one server of this kind; `keep` is where its store goes after a fault, `load_s` how long
    each life is at least and at most.
    """
    server = ServerProcess(kind)
    total = Tally()
    try:
        configure(server, mode)
        server.start()
        world = World(server, seed, kinds)
        world.furnish()
        for number in range(first, first + rounds):
            kill = world.rng.random() < 0.9
            seconds = world.rng.uniform(*load_s)
            world.load(seconds, partial(server.stop, kill=kill), least=LEAST)
            server.start()
            world.check()
            news = world.news(number)
            told(number, news)
            total.add(news)
        world.settle()
        news = world.news(first + rounds - 1)
        news.rounds = 0
        total.add(news)
        if total.faults and keep:
            shutil.copytree(server.store, Path(keep) / f"seed-{seed}", dirs_exist_ok=True)
    finally:
        server.remove()
        Path(server.store).with_suffix(".conf").unlink(missing_ok=True)
    return total


def table(rows: dict[str, Tally], server: str, seed: int) -> str:
    """Markdown."""
    lines = [f"| {server} | rounds | acknowledged | wrong |", "|---|--:|--:|---|"]
    for mode, tally in rows.items():
        wrong = ", ".join(f"{what}: {count:,}" for what, count in sorted(tally.faults.items()))
        lines.append(f"| {mode} | {tally.rounds} | {tally.acked:,} | {wrong or 'nothing'} |")
    return "\n".join([*lines, "", f"seed {seed}"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--server", default="pelton", help="pelton or nats-server")
    parser.add_argument("--modes", default=",".join(MODES), help="of " + ", ".join(MODES))
    parser.add_argument("--kinds", default="", help="names of classes of tests.crash.kinds")
    parser.add_argument("--keep", default="", help="a folder for the store after a fault")
    parser.add_argument("--per-store", type=int, default=ROUNDS_OF_A_STORE)
    told = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if told.seed is None else told.seed
    kinds = [k for k in KINDS if not told.kinds or k.__name__ in told.kinds.split(",")]
    print(f"seed {seed}, {told.rounds} rounds", flush=True)
    rng, rows, number = Random(seed), {m: Tally() for m in told.modes.split(",")}, 0
    started = time.monotonic()

    def progress(at: int, news: Tally) -> None:
        wrong = dict(news.faults) if news.faults else ""
        clock = time.monotonic() - started
        print(
            f"  round {at}/{told.rounds} {clock:6.1f} s {news.acked:8,} acked {wrong}", flush=True
        )
        for example in news.examples:
            print("    " + example, flush=True)

    while number < told.rounds:
        for mode, tally in rows.items():
            count = min(told.per_store, told.rounds - number)
            if not count:
                break
            own = rng.randrange(2**32)
            print(f"{mode}: rounds {number + 1} to {number + count}, store seed {own}", flush=True)
            came = torture(
                told.server,
                MODES[mode],
                own,
                count,
                first=number + 1,
                kinds=kinds,
                told=progress,
                keep=told.keep,
            )
            if came.faults:
                print(f"  failing: {mode}, store seed {own}, rounds {came.failing}", flush=True)
                print("\n".join("    " + example for example in came.examples[-5:]), flush=True)
            tally.add(came)
            number += count
    print("\n" + table(rows, told.server, seed))
    return 1 if any(tally.faults for tally in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
