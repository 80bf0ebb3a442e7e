"""Run a range of seeds: ``python -m tests.simulation --seeds 1000``; one: ``--seed 7``.

A failing seed is printed with its last events and replays exactly: ``--seed`` runs it again, and
reports a difference between the two histories.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from .exercised import missing
from .run import Outcome, run

if TYPE_CHECKING:
    from collections.abc import Iterator


def tell(outcome: Outcome) -> None:
    """A failing seed."""
    print(f"\nseed {outcome.seed} failed (history {outcome.digest}):", *outcome.events, sep="\n  ")
    print(f"\n{outcome.failure}\nreplay: python -m tests.simulation --seed {outcome.seed}")


def outcomes(first: int, count: int, jobs: int) -> Iterator[Outcome]:
    seeds = range(first, first + count)
    if jobs == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=4)


def replay(seed: int) -> int:
    one, other = run(seed), run(seed)
    if one.failure:
        tell(one)
    print(f"seed {seed}: history {one.digest}, {'failed' if one.failure else 'well'}")
    if one.digest != other.digest:
        print(f"a second run had another history: {other.digest}")
    return 1 if one.failure or one.digest != other.digest else 0


def many(first: int, count: int, jobs: int, most_failures: int) -> int:
    counts: Counter[str] = Counter()
    failed: list[int] = []
    begun = time.monotonic()
    for done, outcome in enumerate(outcomes(first, count, jobs), 1):
        counts += outcome.counts
        if outcome.failure:
            failed.append(outcome.seed)
            tell(outcome)
            if len(failed) >= most_failures:
                break
        if sys.stderr.isatty():
            print(f"\r{done} of {count} seeds, {len(failed)} failed", end="", file=sys.stderr)
    else:
        done = count
    took = time.monotonic() - begun
    print(f"\n{done} seeds from {first} in {took:.1f} s ({done / max(took, 1e-9):.1f} a second)")
    for what, times in sorted(counts.items()):
        print(f"  {times:>10,}  {what}")
    if failed:
        print("failed:", *failed)
    elif unseen := missing(counts, done):
        print("this proves nothing, for there were no", ", no ".join(unseen))
    else:
        print("nothing acked was lost; every promise held")
        return 0
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (1)")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--failures", type=int, default=1, help="stop after so many (1)")
    asked = parser.parse_args()
    if asked.seed is not None:
        return replay(asked.seed)
    return many(asked.first, asked.seeds, asked.jobs, asked.failures)


if __name__ == "__main__":
    sys.exit(main())
