"""How a run goes: its seed, and how much of the long tests it takes: `make test` a part, `make test-all` all.

PELTON_FULL=1 is the one switch. Without it every kind of test runs, but of families that try the
same at length (kills, every byte of a file, every call of a disk) some, and of ways that differ
little one. The last lines of a run say what was left out.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar
from zlib import crc32

import pytest

Number = TypeVar("Number", int, float)
FULL = os.environ.get("PELTON_FULL") == "1"
REASON = "one of several ways, or long: `make test-all` (PELTON_FULL=1) runs it"
SERVERS = ("pelton", "nats-server")
EVERY_WAY = pytest.mark.skipif(not FULL, reason=REASON)

# Under CI the same examples run every time; elsewhere each run draws new ones. PELTON_SEED repeats a run.
IN_CI = bool(os.environ.get("CI"))
SEED = int(
    os.environ.get("PELTON_SEED") or (20240229 if IN_CI else random.SystemRandom().randrange(2**32))
)
os.environ["PELTON_SEED"] = str(SEED)  # for the processes that share this run


def length(short: Number, full: Number) -> Number:
    """How many rounds, examples or seconds: the first number in `make test`."""
    return full if FULL else short


def skip_other_servers(request: pytest.FixtureRequest) -> None:
    """Of the servers that a fixture is made for, only the first one is for each run."""
    params = request.node.callspec.params
    kinds = {params[name] for name in ("broker", "peer", "server") if name in params}
    if kinds - {SERVERS[0]} and not FULL:
        pytest.skip(REASON)


def take_turns(items: Iterable[pytest.Item], folder: str) -> None:
    """Of a folder's tests that have other ways (two shells, modes, options) beside two servers, take half:
    each way with one server, in turns that change from test to test.
    """
    if FULL:
        return
    tests: defaultdict[str, list[tuple[pytest.Item, dict[str, object]]]] = defaultdict(list)
    for item in items:
        if item.nodeid.startswith(folder) and hasattr(item, "callspec"):
            tests[item.nodeid.partition("[")[0]].append((item, item.callspec.params))
    for name, several in tests.items():
        servers: defaultdict[tuple[str, ...], list[tuple[bool, pytest.Item]]] = defaultdict(list)
        numbers: defaultdict[str, dict[str, int]] = defaultdict(
            dict
        )  # of the values of a parameter
        turns: dict[tuple[str, ...], int] = {}
        for item, params in several:
            others = {key: repr(each) for key, each in params.items() if each not in SERVERS}
            if others and len(others) == len(params) - 1:
                way = tuple(others.values())
                turns[way] = crc32(name.encode()) + sum(
                    numbers[key].setdefault(text, len(numbers[key])) for key, text in others.items()
                )
                servers[way].append((SERVERS[1] in params.values(), item))
        for way, pair in servers.items():
            for second, item in pair if len(pair) == len(SERVERS) else ():
                if (turns[way] + second) % 2:
                    item.add_marker(EVERY_WAY)
