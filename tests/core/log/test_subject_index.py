"""Subjects by pattern against comparing each: any names, any patterns, runs and what is in none."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.log import maintenance, queries
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.core.protocol.subjects import matches
from tests.ways import length

RUN = 16384
# bytes around the dot, so that `a-b` stands between `a` and `a.b`
TOKENS = st.text(alphabet="ab-./~", min_size=1, max_size=2).map(lambda t: t.replace(".", "!"))
WILD = st.one_of(TOKENS, st.just("*"))
PATTERNS = st.tuples(st.lists(WILD, min_size=1, max_size=4), st.booleans()).map(
    lambda parts: ".".join(parts[0] + [">"] * parts[1])
)


def expected(names: dict[str, int], pattern: str) -> dict[str, int]:
    return {name: n for name, n in names.items() if matches(name, pattern)}


@pytest.fixture(scope="module")
def full() -> tuple[Log, dict[str, int]]:
    """Three full runs and a rest, some subjects dead."""
    seeded = random.Random(5)
    log = open_log(None)
    names: dict[str, int] = {}
    while len(names) < 3 * RUN + 100:
        tokens = ["".join(seeded.choices("ab-!/~", k=seeded.choice((1, 1, 2)))) for _ in range(4)]
        name = ".".join(tokens[: seeded.randrange(1, 5)]) + seeded.choice(("", f".{len(names)}"))
        log.add(1, name, b"")
        names[name] = names.get(name, 0) + 1
    for seq in range(1, log.last_seq, 3):
        found = log.get(seq)
        assert found is not None
        maintenance.delete(log, seq)
        names[found.subject] -= 1
    live = {name: n for name, n in names.items() if n}
    assert 0 < len(live) < len(names)
    return log, live


@settings(max_examples=length(30, 150), deadline=None)
@given(pattern=PATTERNS)
def test_finds_what_comparing_each_finds(full: tuple[Log, dict[str, int]], pattern: str) -> None:
    log, names = full
    assert queries.subjects(log, pattern) == expected(names, pattern)


@settings(max_examples=length(20, 40), deadline=None)
@given(pattern=PATTERNS, offset=st.integers(0, 60000), limit=st.integers(0, 60000))
def test_pages_are_in_the_order_of_the_names(
    full: tuple[Log, dict[str, int]], pattern: str, offset: int, limit: int
) -> None:
    log, names = full
    found = expected(names, pattern)
    total, page = queries.subjects_page(log, pattern, offset, limit)
    assert total == len(found)
    assert list(page.items()) == sorted(found.items())[offset : offset + limit]


def test_a_pattern_of_very_many_tokens_is_compared_with_each(
    full: tuple[Log, dict[str, int]],
) -> None:
    log, _ = full
    log.add(1, ".".join(["a"] * 300), b"")
    assert list(queries.subjects(log, ".".join(["*"] * 300))) == [".".join(["a"] * 300)]
    assert queries.subjects(log, ".".join(["*"] * 299)) == {}


@settings(max_examples=30, deadline=None)
@given(upto=st.integers(0, 320), most=st.sampled_from([5, 60, 1024]), seed=st.integers(0, 9))
def test_the_last_of_many_subjects_up_to_a_sequence(upto: int, most: int, seed: int) -> None:
    """Without histories and with them."""
    seeded = random.Random(seed)
    log = open_log(None)
    live: dict[int, str] = {}
    for _ in range(300):
        subject = f"a.{seeded.randrange(60)}"
        live[log.add(1, subject, b"")] = subject
    for seq in seeded.sample(sorted(live), 100):
        maintenance.delete(log, seq)
        del live[seq]
    newest = {subject: seq for seq, subject in sorted(live.items()) if seq <= upto}
    expected = None if len(newest) > most else sorted(newest.values())
    for _ in range(2):
        assert queries.last_of_each(log, ["a.*"], upto, most) == expected
        log.subjects_table.debt_free = 0
        for _ in range(20):
            queries.last_of_each(log, ["a.*"], 150, 1024)
    assert log.subjects_table.tracking


def test_the_last_of_each_subject_where_another_has_no_messages_any_more() -> None:
    log = open_log(None)
    for subject in "abc":
        log.add(1, subject, b"")
    maintenance.delete(log, 1)
    for patterns in ([">"], ["*"], ["b", ">"], ["c", "b", "a"]):
        assert queries.last_of_each(log, patterns, 3, 2) == [2, 3]
        assert queries.last_of_each(log, patterns, 2, 1) == [2]


def test_patterns_with_very_many_matches_in_common_are_refused() -> None:
    """Each match is looked at while all clients wait: 5,000 patterns may match every subject."""
    log = open_log(None)
    for n in range(5000):
        log.add(1, f"a.b.c.d.{n}", b"")
    log.add(2, "z", b"")
    upto, last = 5000, log.last_seq
    stars = [".".join(p) + ".*" for p in itertools.product("a*", "b*", "c*", "d*")]
    assert queries.last_of_each(log, stars[:4], upto, 9000) == list(range(1, 5001))
    assert queries.last_of_each(log, stars[:2] * 1000, upto, 9000) == list(range(1, 5001))
    assert queries.last_of_each(log, stars, upto, 9000) is None
    assert queries.last_of_each(log, stars[:1] * 1000, last, 1024) is None
    assert queries.last_of_each(log, ["a.b.c.d.7", "*.*.*.d.7", "z"] * 1000, last, 1024) == [
        8,
        5001,
    ]


def test_many_patterns_select_what_each_of_them_would() -> None:
    """More than a few are compared together with each subject."""
    log = open_log(None)
    names = [f"{a}.{b}.{c}" for a in "rst" for b in range(20) for c in range(20)]
    for name in names:
        log.add(1, name, b"")
    for name in names[::7]:
        log.add(2, name, b"")
    maintenance.delete(log, 3)
    patterns = [f"s.*.{n}" for n in range(0, 20, 2)] + [f"*.{n}.>" for n in range(3, 18)]
    patterns += ["r.1.1", "t.19.19", "none", "s.4.4"]
    for upto in (log.last_seq, 700):
        each = [queries.last_of_each(log, [pattern], upto, 9000) for pattern in patterns]
        together = queries.last_of_each(log, patterns, upto, 9000)
        assert together == sorted({seq for found in each for seq in found or ()})
        assert together is not None
        assert queries.last_of_each(log, patterns, upto, len(together)) == together
        assert queries.last_of_each(log, patterns, upto, len(together) - 1) is None
