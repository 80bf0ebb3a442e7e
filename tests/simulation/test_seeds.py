"""A hundred seeds and more in each run of the tests: the same ones each time, and new ones, which are
printed. With CI set, there are no new ones.

``SIMULATION_SEEDS`` is the number of new seeds, ``SIMULATION_FIRST`` the first of them. ``make
simulate`` runs thousands.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from pelton.testing.simulated_disk import SimDisk
from tests.ways import SEED, length

from . import __main__
from .checks import Checks, rightly_twice
from .clients import Clients
from .exercised import IN_A_HUNDRED, IN_EACH, IN_TEN, missing
from .model import Publish, Removal, Stream
from .run import Outcome, run
from .world import World

FIXED = length(100, 300)
ONCE_FAILED = (
    30851,
    30997,
    31786,
    31872,
    33876,
    34579,
    35098,
    36391,
    37753,
    39841,
    60247,
    60500,
    61336,
    305809,
    64511,
    65207,
    66363,
    76232,
    83663,
    84727,
    901745,
    5002963,
)
ALTERING_ONCE_FAILED = (
    8306970,
    8400004,
    8506111,
    8700421,
    9000786,
    9011853,
    9020820,
    9042903,
    979397263,
    9500259,
)
WIDE_ONCE_FAILED = (7002123, 7005183, 7011830, 7026788)
BOTH_ONCE_FAILED = (9531511, 9600359, 9903489, 10201688)
LONG_TURNS_ONCE_FAILED = (10303970, 10403735)
SHORT_TURNS_ONCE_FAILED = (
    67,
    163,
    196,
    230,
    288,
    294,
    10400588,
    10403451,
    10502394,
    10603274,
    10604231,
)
DRAWN = int(os.environ.get("SIMULATION_SEEDS", "0" if os.environ.get("CI") else length(50, 100)))
BLOCK = 25  # seeds in one test
FIRST = int(os.environ.get("SIMULATION_FIRST", random.Random(SEED).randrange(10**9)))


@cache
def outcome(seed: int) -> Outcome:
    """Of one of the same seeds: two tests look at it."""
    return run(seed)


def broken(first: int) -> list[str]:
    print(f"seeds {first} to {first + BLOCK - 1}")
    outcomes = [outcome(seed) for seed in range(first, first + BLOCK)]
    failed = [f"seed {each.seed}: {each.failure}" for each in outcomes if each.failure]
    counts = sum((each.counts for each in outcomes), start=Counter())
    return failed or [f"there were no {what}" for what in missing(counts, BLOCK)]


@pytest.mark.parametrize("first", range(1, FIXED + 1, BLOCK))
def test_the_same_seeds(first: int) -> None:
    assert not broken(first)


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_what_once_failed(seed: int) -> None:
    assert run(seed, wide=False, altering=False, reserved=False, short_turns=False).failure == ""


@pytest.mark.parametrize("seed", WIDE_ONCE_FAILED)
def test_what_once_failed_with_the_wider_choice(seed: int) -> None:
    assert run(seed, wide=True, altering=False, reserved=False, short_turns=False).failure == ""


@pytest.mark.parametrize("seed", ALTERING_ONCE_FAILED)
def test_what_once_failed_with_alterations(seed: int) -> None:
    assert run(seed, altering=True, reserved=False, short_turns=False).failure == ""


@pytest.mark.parametrize("seed", BOTH_ONCE_FAILED)
def test_what_once_failed_with_both(seed: int) -> None:
    assert run(seed, wide=True, altering=True, reserved=False, short_turns=False).failure == ""


@pytest.mark.parametrize("seed", LONG_TURNS_ONCE_FAILED)
def test_what_once_failed_with_long_turns(seed: int) -> None:
    assert run(seed, short_turns=False).failure == ""


@pytest.mark.parametrize("seed", SHORT_TURNS_ONCE_FAILED)
def test_what_once_failed_with_short_turns(seed: int) -> None:
    assert run(seed, short_turns=True).failure == ""


@pytest.mark.parametrize("block", range(0, DRAWN, BLOCK))
def test_other_seeds(block: int) -> None:
    assert not broken(FIRST + block), "replay: python -m tests.simulation --seed N"


def test_a_seed_is_a_history() -> None:
    """A seed has the same history in every process, whatever the hashes of strings are."""
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
    """A simulation without failures proves nothing."""
    counts = sum((outcome(seed).counts for seed in range(1, 101)), start=run(0).counts)
    assert not missing(counts, 101)


def test_a_range_in_which_nothing_happens_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = Outcome(1, "", Counter({"messages sent": 12, "restarts": 4}))
    monkeypatch.setattr(__main__, "run", lambda seed: idle)
    assert __main__.many(1, 3, 1, 1) == 1
    assert capsys.readouterr().out.endswith(
        "this proves nothing, for there were no messages acked\n"
    )
    assert missing(Counter(dict.fromkeys(IN_EACH + IN_TEN, 1)), 99) == []
    assert missing(Counter(dict.fromkeys(IN_EACH + IN_TEN, 1)), 100) == list(IN_A_HUNDRED)
    assert missing(Counter(), 10) == list(IN_EACH + IN_TEN)


def test_what_a_failed_sync_dropped_is_written_when_that_is_forgotten() -> None:
    """The next sync alone does not write the dropped bytes."""
    disk = SimDisk()
    handle = disk.open("a", True)
    disk.write_at(handle, b"lost", 0)
    disk.sync_dir("")
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(handle)
    disk.sync(handle)
    assert disk.file("a").durable == b""
    disk.file("a").forget_failure(disk.serial)
    disk.kill()
    disk.sync(disk.open("a", False))
    assert disk.file("a").durable == b"lost"


@pytest.mark.parametrize(
    ("one", "other", "forgotten", "right"),
    [
        (("", 3), ("", 5), [4], False),  # the stream itself holds a message once
        (("", 3), ("S0", 5), [4], False),
        (("S0", 3), ("S0", 3), [4], False),  # the same message copied twice
        (("S0", 3), ("S0", 5), [], False),  # the origin must not have had the message twice
        (("S0", 3), ("S0", 5), [2, 5], False),
        (("S0", 3), ("S0", 5), [2, 4], True),  # sent again after 3 was removed
        (("S1", 3), ("S1", 5), [], True),  # S1 is a copy itself, and has its own check
        (("S0", 3), ("S1", 3), [], True),  # copied from two streams
    ],
)
def test_when_a_stream_may_hold_two_copies(
    one: tuple[str, int], other: tuple[str, int], forgotten: list[int], *, right: bool
) -> None:
    publish = Publish("S0.a", b"1-", 0, forgotten=forgotten)
    assert rightly_twice(publish, one, other) is right


@pytest.mark.parametrize(
    ("answered_first", "other_seq", "may_be_gone"),
    [
        (True, 1, False),  # the other message is stored before
        (False, 1, False),
        (False, 0, True),  # not known
        (False, 3, True),  # sent before, stored later: its client had to wait for a request
    ],
)
def test_which_messages_may_remove_an_earlier_one(
    answered_first: bool, other_seq: int, may_be_gone: bool
) -> None:
    stream = Stream("S", {"max_msgs_per_subject": 1})
    other = stream.add(Publish("S.a", b"1-", 0))
    if answered_first:
        stream.acknowledged(other, other_seq)
    publish = stream.add(Publish("S.a", b"2-", 0))
    if not answered_first and other_seq:
        stream.acknowledged(other, other_seq)
    stream.acknowledged(publish, 2)
    assert stream.may_be_gone(publish, 0) is may_be_gone


@pytest.mark.parametrize(
    ("flips", "line", "gone"),
    [
        (2, "stream S: a record between the messages 1 and 2 is lost: damaged bytes", set()),
        (1, "stream S: a record between the messages 1 and 2 is lost: damaged bytes", {1}),
        (2, "stream T: a record between the messages 1 and 2 is lost: damaged bytes", {1}),
        (2, "stream S: message 2 is lost: checksum mismatch", {1}),
    ],
)
def test_what_two_flipped_bits_may_bring_back(flips: int, line: str, gone: set[int]) -> None:
    """Two bits of the record of a removal: recovery can correct one only."""
    world = World(1)
    world.reports.append(line)
    stream = Stream("S", {}, flips=flips, gone={1}, removed={1})
    Checks(world, Clients(world)).lost_removals(stream)
    assert stream.gone == stream.removed == gone


def test_a_removal_may_remove_messages_that_are_sent_before_its_answer() -> None:
    stream = Stream("S", {})
    removal = Removal()
    stream.removals.append(removal)
    publish = stream.add(Publish("S.a", b"1-", 0))
    stream.acknowledged(publish, 1)
    assert stream.may_be_gone(publish, 0)
    stream.server_ended()
    later = stream.add(Publish("S.a", b"2-", 0))
    stream.acknowledged(later, 2)
    assert stream.may_be_gone(publish, 0)
    assert not stream.may_be_gone(later, 0)
