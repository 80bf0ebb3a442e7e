"""One fault in one file of a stopped server: what is lost, what is told, what is served wrong.

    python -m tests.crash.damage --flips 300 --server nats-server

A store is made once: three streams with many messages of 100 bytes (one of them compressed), a bucket,
a queue half worked off, consumers; the server is stopped as it should be, or killed. For each try the
store is copied, damaged in one place, and the server started on it. All of it is read back: a message
that is gone is *silent* when neither the stream's `lost` counts it nor the log has a warning or an error
of any kind; one that differs is *altered*. Then each stream takes a message, to see whether a sequence is given again.

Damages: `bit` flips one bit, `cut` takes bytes off a file's end, `zero` writes 4 KiB of zeros, `gone`
removes a file that is not a message file, `older` puts an earlier version in its place. Files are chosen
by size, every fourth one at random, so that small files have their turn.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

from tests.crash.reading import number_of, payload_of, read
from tests.crash.wire import Wire, message
from tests.peers import ServerProcess

KINDS = ("bit", "cut", "zero", "gone", "older")
STREAMS: dict[str, dict[str, Any]] = {
    "ONE": {},
    "TWO": {"compression": "s2"},
    "LATEST": {"max_msgs_per_subject": 2},
    "QUEUE": {"retention": "workqueue"},
}
SHARES = {"ONE": 0.6, "TWO": 0.3, "LATEST": 0.05, "QUEUE": 0.05}
SIZE = 100
ERRORS = re.compile(
    rb"lost|corrupt|damaged|checksum|stays offline|bad record|\[WRN\]|\[ERR\]",
    re.IGNORECASE,
)


@dataclass
class Result:
    """What came of one damage."""

    lost: int = 0
    told: int = 0  # as the streams' state says
    altered: int = 0
    reused: int = 0
    streams_gone: list[str] = field(default_factory=list)
    consumers_gone: list[str] = field(default_factory=list)
    not_started: bool = False
    logged: bool = False
    why: str = ""  # it did not start

    @property
    def silent(self) -> int:
        return 0 if self.logged else max(self.lost - self.told, 0)


class Store:
    """A store as it was left, and what is in it."""

    def __init__(self, kind: str, messages: int, *, kill: bool, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.held: dict[str, dict[int, int]] = {}  # stream -> sequence -> number
        self.last: dict[str, int] = {}
        self.lines = 0  # warnings and errors in the log of the last start
        self.usual = 0  # ... in that of one without any damage
        server = ServerProcess(kind, store=str(folder / "store"))
        Path(server.store).mkdir()
        conf = folder / "server.conf"
        conf.write_text("jetstream { sync_interval: 2m }\n")
        self.arguments = server.arguments = ["-c", str(conf)]
        server.start()
        wire = Wire(server.port)
        for name, config in STREAMS.items():
            base = {"name": name, "subjects": [f"{name}.>"], "allow_direct": True}
            wire.ok(f"STREAM.CREATE.{name}", base | config)
            body = {"durable_name": "c", "ack_policy": "explicit"}
            wire.ok(f"CONSUMER.CREATE.{name}.c", {"stream_name": name, "config": body})
            if name == "TWO":  # an earlier version of everything there is so far
                server.stop()
                shutil.copytree(server.store, folder / "older")
                server.start()
                wire = Wire(server.port)
        for name, share in SHARES.items():
            self._fill(wire, name, int(messages * share))
        self._work(wire)
        time.sleep(0.3)
        for name in STREAMS:
            state = wire.ok(f"STREAM.INFO.{name}")["state"]
            self.last[name] = state["last_seq"]
            found = read(wire, name, 1, state["last_seq"])
            self.held[name] = {seq: stored.number or -1 for seq, stored in found.items()}
            assert -1 not in self.held[name].values()
        wire.close()
        server.stop(kill=kill)
        server.log_path.unlink()

    def _fill(self, wire: Wire, name: str, count: int) -> None:
        for first in range(1, count + 1, 500):
            out = b""
            for number in range(first, min(first + 500, count + 1)):
                subject = f"{name}.{number % 500}"
                payload = payload_of(number, SIZE, subject)
                out += message(subject, payload, wire.inbox(f"a{number}"))
            wire.send(out)
            answered = 0
            while answered < min(500, count + 1 - first):
                answered += len(wire.events(20))

    def _work(self, wire: Wire) -> None:
        for name in ("QUEUE", "ONE"):
            call = f"$JS.API.CONSUMER.MSG.NEXT.{name}.c"
            wire.publish(call, b'{"batch":500,"expires":1000000000}', "pull")
            left = 500
            while left:
                events = wire.events(5)
                assert events, f"nothing from {name}"
                for event in events:
                    if event.reply.startswith("$JS.ACK"):
                        left -= 1
                        if left % 3:
                            wire.publish(event.reply, b"+ACK")

    def files(self) -> list[Path]:
        """All files with something in them, by path inside of the store."""
        root = self.folder / "store"
        return sorted(
            path.relative_to(root)
            for path in root.rglob("*")
            if path.is_file() and path.stat().st_size and path.name != "server.log"
        )


def damage(store: Store, place: Path, kind: str, rng: Random, number: int) -> str:
    """Copy the store to `place` and damage it; what was done, "" when there is nothing to."""
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run(
        ["cp", "-a", "--reflink=auto", str(store.folder / "store"), str(place)], check=True
    )
    files = store.files()
    if kind in ("gone", "older"):
        # message files are the truth: without one its messages can only be gone
        files = [f for f in files if f.suffix not in (".seg", ".blk")]
    if kind == "older":
        files = [f for f in files if (store.folder / "older" / f).is_file()]
        files = [f for f in files if not same_file(store, f)]
    if not files:
        return ""
    sizes = [(place / f).stat().st_size for f in files]
    chosen = rng.choice(files) if number % 4 == 0 else rng.choices(files, sizes)[0]
    path = place / chosen
    size = path.stat().st_size
    at = rng.randrange(size)
    if kind == "bit":
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
    elif kind == "cut":
        os.truncate(path, size - rng.randrange(1, min(size, 5000) + 1))
    elif kind == "zero":
        with path.open("r+b") as file:
            file.seek(at // 4096 * 4096)
            file.write(bytes(min(4096, size - at // 4096 * 4096)))
    elif kind == "gone":
        path.unlink()
    else:
        shutil.copy2(store.folder / "older" / chosen, path)
    return f"{kind} {chosen} {at}/{size}"


def same_file(store: Store, name: Path) -> bool:
    """Whether the earlier version is no other."""
    return (store.folder / "older" / name).read_bytes() == (
        store.folder / "store" / name
    ).read_bytes()


def outcome(store: Store, place: Path) -> Result:
    """Start on what is there and look at all of it."""
    result = Result()
    server = ServerProcess(store.kind, store=str(place), arguments=store.arguments)
    try:
        try:
            server.start()
        except RuntimeError as exc:
            result.not_started = True
            said = re.search(r"panic: .*|\[FTL\].*|fatal error: .*", str(exc))
            result.why = said[0] if said else str(exc)[-200:]
            result.lost = sum(len(held) for held in store.held.values())
            result.told = result.lost
            return result
        wire = Wire(server.port)
        told = 0
        streams = wire.ok("STREAM.NAMES")["streams"] or []
        for name, held in store.held.items():
            # there, and serves what is asked of it
            if name not in streams or "error" in wire.api(f"STREAM.INFO.{name}"):
                result.streams_gone.append(name)
                result.lost += len(held)
                continue
            told += look(wire, name, held, store.last[name], result)
        wire.close()
        log = server.log_path.read_bytes()
        lines = sum(bool(ERRORS.search(line)) for line in log.splitlines())
        result.logged = lines > store.usual
        store.lines = lines
        result.told = told
        if result.streams_gone and result.logged:
            result.told += sum(len(store.held[name]) for name in result.streams_gone)
    finally:
        server.stop(kill=True)
    return result


def look(wire: Wire, name: str, held: dict[int, int], last: int, result: Result) -> int:
    """One stream; how many messages it says are lost."""
    found = read(wire, name, 1, max(held, default=0))
    info = wire.ok(f"STREAM.INFO.{name}")  # what it found out by reading is in it
    for seq, number in held.items():
        stored = found.get(seq)
        if stored is None:
            result.lost += 1
        elif number_of(stored.subject, stored.headers, stored.payload) != number:
            result.altered += 1
    if name != "QUEUE":  # what was acknowledged there may come back
        result.altered += len(set(found) - set(held)) if name == "ONE" else 0
    told = info["state"].get("lost") or {}
    if "c" not in (wire.ok(f"CONSUMER.NAMES.{name}")["consumers"] or []):
        result.consumers_gone.append(name)
    answer = wire.request(f"{name}.new", b"one more")
    if "error" not in answer and answer["seq"] <= last:
        result.reused += 1
    return len(told.get("msgs") or ())


def summary(kind: str, server: str, results: list[Result]) -> str:
    """One row of a table."""
    lost = [result.lost for result in results]
    cells = [
        server,
        kind,
        str(len(results)),
        f"{sum(lost):,}",
        f"{max(lost, default=0):,}",
        f"{sum(r.silent for r in results):,}",
        f"{sum(r.altered for r in results):,}",
        str(sum(len(r.streams_gone) for r in results)),
        str(sum(len(r.consumers_gone) for r in results)),
        str(sum(r.reused for r in results)),
        str(sum(r.not_started for r in results)),
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| server | damage | times | messages lost | most by one | of them silently | served altered "
    "| streams gone | consumers gone | sequences given again | did not start |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.damage", description=__doc__)
    parser.add_argument("--flips", type=int, default=100)
    parser.add_argument("--others", type=int, default=20, help="of each other damage")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--server", default="pelton", help="pelton or nats-server")
    parser.add_argument("--kill", action="store_true", help="the store of a killed server")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--verbose", action="store_true")
    told = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if told.seed is None else told.seed
    rng = Random(seed)
    results: dict[str, list[Result]] = {kind: [] for kind in KINDS}
    worst: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pelton-damage-") as name:
        folder = Path(name)
        store = Store(told.server, told.messages, kill=told.kill, folder=folder)
        held = sum(len(one) for one in store.held.values())
        print(f"seed {seed}, {held:,} messages in {len(store.files())} files", flush=True)
        shutil.copytree(folder / "store", folder / "copy")
        sound = outcome(store, folder / "copy")
        store.usual, sound.logged = store.lines, False
        assert sound == Result(), f"not damaged, and yet {sound}"
        for kind in KINDS:
            for number in range(told.flips if kind == "bit" else told.others):
                what = damage(store, folder / "copy", kind, rng, number)
                if not what:
                    break
                result = outcome(store, folder / "copy")
                results[kind].append(result)
                worst[what] = result.lost
                bad = result.silent or result.altered or result.reused or result.not_started
                if told.verbose or bad:
                    print(f"  {what}: {json.dumps(result.__dict__)}", flush=True)
    print("\nmost lost: " + "; ".join(f"{what}: {n:,}" for what, n in worst.most_common(5)))
    print("\n" + HEAD)
    for kind, came in results.items():
        if came:
            print(summary(kind, told.server, came))
    every = [result for came in results.values() for result in came]
    wrong = sum(r.altered + r.silent + r.reused + r.not_started for r in every)
    return 1 if wrong and told.server == "pelton" else 0


if __name__ == "__main__":
    sys.exit(main())
