"""Compare Penstock's Python client with nats-py and natsio: operations per second over one server.

    python bench/bench_client.py                                     both servers, all rows
    python bench/bench_client.py --server penstock --rounds 5        one server
    python bench/bench_client.py --only consume                      rows whose name contains this
    python bench/bench_client.py --natsio ~/natsio/bin/python        natsio 1.0 needs Python 3.13

Each run is a process of its own, and the libraries take turns, so that a slow spell of the machine
hits all. A ratio is the median of the rounds' ratios: above 1 Penstock is faster. The figures of the
processor belong to the client alone; the wall's also contain the server, which shares the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.peers import available_servers, running_server

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
                for one, other in zip(seen["penstock"], found, strict=True)
                if (ours := rate(one, what)) and (theirs := rate(other, what))
            ]
            result[f"{name} ratio {what}"] = statistics.median(ratios) if ratios else None
    return result


def shown(value: object, digits: int = 0) -> str:
    """A figure of the table, or a dash."""
    return f"{value:,.{digits}f}" if isinstance(value, float) else "-"


def table(results: list[dict[str, object]], others: list[str]) -> str:
    """The rows in Markdown."""
    head = ["", "Penstock", *(f"{name} | ratio | ratio, processor" for name in others)]
    lines = [f"| {' | '.join(head)} |", "|---|--:" + "|--:|--:|--:" * len(others) + "|"]
    for one in results:
        cells = [str(one["row"]), shown(one["penstock wall_s"])]
        for name in others:
            cells += [
                shown(one[f"{name} wall_s"]),
                shown(one[f"{name} ratio wall_s"], 1),
                shown(one[f"{name} ratio cpu_s"], 1),
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run and print a table for each server."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=["penstock", "nats-server"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the operations of each run")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument(
        "--natsio", help="an interpreter that has natsio; without it natsio is left out"
    )
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    pythons = {"penstock": sys.executable, "nats-py": sys.executable}
    if given.natsio:
        pythons["natsio"] = given.natsio
    kinds = [given.server] if given.server else available_servers()
    everything = {}
    for kind in kinds:
        with running_server(kind) as server:
            results = []
            for row in ROWS:
                if given.only in row:
                    results.append(compare(pythons, row, server.url, given.rounds, given.scale))
                    print(f"{kind}: {row}", file=sys.stderr, flush=True)
            everything[kind] = results
        print(
            f"\nServer: {kind}\n\n{table(results, [name for name in pythons if name != 'penstock'])}"
        )
    if given.json:
        given.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
