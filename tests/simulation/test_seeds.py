"""Some hundreds of seeds in each run of the tests: the same ones, and a range that is new each time.

``SIMULATION_SEEDS`` and ``SIMULATION_FIRST`` say how many of the new ones and from where; what was drawn
is printed with a failure. ``make simulate`` runs thousands.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from .run import run

FIXED = 100
DRAWN = int(os.environ.get("SIMULATION_SEEDS", "200"))
BLOCK = 25  # seeds in one test
FIRST = int(os.environ.get("SIMULATION_FIRST", random.SystemRandom().randrange(10**9)))


def broken(first: int) -> list[str]:
    outcomes = [run(seed) for seed in range(first, first + BLOCK)]
    return [f"seed {each.seed}: {each.failure}" for each in outcomes if each.failure]


@pytest.mark.parametrize("first", range(1, FIXED + 1, BLOCK))
def test_the_same_seeds(first: int) -> None:
    assert not broken(first)


@pytest.mark.parametrize("block", range(0, DRAWN, BLOCK))
def test_other_seeds_each_time(block: int) -> None:
    assert not broken(FIRST + block), f"replay: python -m tests.simulation --seed N (from {FIRST})"


def test_a_seed_is_a_history() -> None:
    """The same in every process, whatever the hashes of strings are there."""
    seeds = [3, 14, 15]
    here = [run(seed).digest for seed in seeds]
    assert here == [run(seed).digest for seed in seeds]
    assert len(set(here)) == len(seeds)
    program = f"from tests.simulation.run import run\nprint([run(s).digest for s in {seeds}])"
    for hash_seed in ("0", "1"):
        environment = os.environ | {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        there = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == repr(here)


def test_everything_is_exercised() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    counts = sum((run(seed).counts for seed in range(1, 101)), start=run(0).counts)
    for what in (
        "messages acked",
        "redeliveries",
        "acks confirmed",
        "power cuts",
        "kills",
        "clean stops",
        "ended while opening",
        "stopped within a call of the disk",
        "writes torn",
        "writes reordered",
        "writes lost",
        "files grown with zeros",
        "renames lost",
        "unlinks lost",
        "creates lost",
        "writes to a full disk",
        "sync failed",
        "bits flipped",
        "messages lost that were never synced",
        "duplicates told",
        "atomic batches",
        "fast batches",
        "removals",
    ):
        assert counts[what] > 0, what
