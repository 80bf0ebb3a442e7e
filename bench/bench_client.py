"""Compare Pelton's Python client with nats-py and natsio: operations per second over one server.

    python bench/bench_client.py                                     both servers, all rows
    python bench/bench_client.py --server pelton --rounds 5        one server
    python bench/bench_client.py --only consume                      rows whose name contains this
    python bench/bench_client.py --natsio ~/natsio/bin/python        natsio 1.0 needs Python 3.13
    python bench/bench_client.py --durability disk                   every ack after an fsync, on both servers

Without ``--durability`` every row is measured with acks from the page cache on both servers, and the
rows that store are measured again with acks from the disk on both.

Each run is a process of its own, and the libraries take turns, so that a slow spell of the machine
hits all. A ratio is the median of the rounds' ratios: above 1 Pelton is faster. The figures of the
processor belong to the client alone; the wall's also contain the server, which shares the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.peers import available_servers, running_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.peers import ServerProcess

ROWS = {
    "core publish": 200_000,
    "core publish and subscribe": 100_000,
    "request and reply": 5_000,
    "publish, one at a time": 3_000,
    "publish, 512 in flight": 60_000,
    "fetch 100, ack each": 40_000,
    "consume, ack each": 40_000,
    "key-value put": 3_000,
    "key-value get": 5_000,
    "object put, 8 MiB": 4,
    "object get, 8 MiB": 6,
}
STORING = ("publish, one at a time", "publish, 512 in flight", "key-value put", "object put, 8 MiB")
GOALS = {  # times as fast as nats-py, as natsio
    "core publish and subscribe": (5.0, 2.0),
    "request and reply": (1.5, 1.5),
    "publish, 512 in flight": (5.0, 0.0),
    "fetch 100, ack each": (5.0, 2.0),
    "consume, ack each": (5.0, 2.0),
    "key-value put": (2.0, 2.0),
    "key-value get": (2.0, 2.0),
    "object put, 8 MiB": (3.0, 1.0),
    "object get, 8 MiB": (3.0, 1.0),
}
SYNC = {"page-cache": "2m", "disk": "always"}
HERE = Path(__file__).parent
TIMEOUT_S = 300


def run(python: str, library: str, row: str, url: str, count: int) -> dict[str, float] | None:
    """One run of one row; None when the library can't do it."""
    name = f"b{uuid.uuid4().hex[:10]}"
    command = [python, str(HERE / "client_rows.py"), library, row, url, str(count), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        print(f"{library}, {row}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout)
    return found


def rate(found: dict[str, float] | None, what: str) -> float | None:
    """Operations per second of the wall, or of the processor."""
    return None if found is None else found["operations"] / found[what]


def compare(
    pythons: dict[str, str], row: str, url: str, rounds: int, scale: float
) -> dict[str, object]:
    """The medians of a row for each library, and the medians of the ratios."""
    count = max(2, int(ROWS[row] * scale))
    seen: dict[str, list[dict[str, float] | None]] = {name: [] for name in pythons}
    for number in range(rounds):
        names = list(pythons)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            seen[name].append(run(pythons[name], name, row, url, count))
    result: dict[str, object] = {"row": row}
    for name, found in seen.items():
        for what in ("wall_s", "cpu_s"):
            rates = [each for one in found if (each := rate(one, what)) is not None]
            result[f"{name} {what}"] = statistics.median(rates) if rates else None
            ratios = [
                ours / theirs
                for one, other in zip(seen["pelton"], found, strict=True)
                if (ours := rate(one, what)) and (theirs := rate(other, what))
            ]
            result[f"{name} ratio {what}"] = statistics.median(ratios) if ratios else None
    return result


@contextlib.contextmanager
def durable_server(kind: str, durability: str) -> Iterator[ServerProcess]:
    """A server whose acks mean the same as those of the other kind."""
    with tempfile.TemporaryDirectory(prefix="pelton-bench-") as folder:
        config = Path(folder) / "server.conf"
        config.write_text(f'jetstream {{ sync_interval: "{SYNC[durability]}" }}\n')
        with running_server(kind, "-c", str(config)) as server:
            yield server


def cell(one: dict[str, object] | None, name: str, goal: float) -> str:
    """The ratios to a library, of the processor and of the clock; bold below the goal."""
    found = [one and one.get(f"{name} ratio {what}") for what in ("cpu_s", "wall_s")]
    if not all(isinstance(each, float) for each in found):
        return "-"
    texts = [f"{each:.1f}" for each in found]
    cpu, wall = [f"**{text}**" if float(text) < goal else text for text in texts]
    return f"{cpu} ({wall})"


def table(measured: dict[str, list[dict[str, object]]], others: list[str]) -> str:
    """The rows in Markdown: the ratios on each server, beside the goals."""
    heads = [f"{kind}: {name}" for kind in measured for name in others]
    lines = [f"| {' | '.join(['', 'goal', *heads])} |", "|---|--:" + "|--:" * len(heads) + "|"]
    for row in ROWS:
        found = [next((o for o in rows if o["row"] == row), None) for rows in measured.values()]
        if not any(found):
            continue
        goals = dict(zip(("nats-py", "natsio"), GOALS.get(row, (0.0, 0.0)), strict=True))
        goal = ", ".join(f"{goals[name]:g}" for name in others if goals[name])
        cells = [cell(one, name, goals[name]) for one in found for name in others]
        lines.append(f"| {' | '.join([row, goal, *cells])} |")
    return "\n".join(lines)


def rates(rows: list[dict[str, object]], names: list[str]) -> str:
    """Microseconds of one operation, by the clock and of the client's processor."""
    lines = []
    for one in rows:
        times = []
        for name in names:
            wall, cpu = one[f"{name} wall_s"], one[f"{name} cpu_s"]
            if isinstance(wall, float) and isinstance(cpu, float):
                times.append(f"{name} {1e6 / wall:,.1f} ({1e6 / cpu:,.1f} of the processor)")
        lines.append(f"  {one['row']}: {', '.join(times)}")
    return "\n".join(lines)


def load() -> str:
    """How busy the machine is."""
    return f"load {os.getloadavg()[0]:.1f}"


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=["pelton", "nats-server"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the operations of each run")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--durability", choices=list(SYNC), help="what acks mean; else both")
    parser.add_argument(
        "--natsio", help="an interpreter that has natsio; without it natsio is left out"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    return parser.parse_args()


def main() -> None:
    """Run, and print a table for each meaning of an ack."""
    given = arguments()
    pythons = {"pelton": sys.executable, "nats-py": sys.executable}
    if given.natsio:
        pythons["natsio"] = given.natsio
    kinds = [given.server] if given.server else available_servers()
    everything = {}
    for durability in [given.durability] if given.durability else SYNC:
        rows: Iterable[str] = ROWS if durability == "page-cache" or given.durability else STORING
        chosen = [row for row in rows if given.only in row]
        measured: dict[str, list[dict[str, object]]] = {kind: [] for kind in kinds}
        before = load()
        for kind in kinds:
            with durable_server(kind, durability) as server:
                for row in chosen:
                    measured[kind].append(
                        compare(pythons, row, server.url, given.rounds, given.scale)
                    )
                    print(f"{durability}, {kind}: {row}", file=sys.stderr, flush=True)
        print(f"\nAcks from: {durability}; {before} before, {load()} after\n")
        print(table(measured, [name for name in pythons if name != "pelton"]))
        for kind, results in measured.items():
            print(f"\n{kind}, microseconds of an operation:\n{rates(results, list(pythons))}")
        everything[durability] = measured
    if given.json:
        given.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
