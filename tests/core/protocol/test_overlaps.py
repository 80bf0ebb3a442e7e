"""Sets of patterns beside a list that is looked through pair by pair."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol.overlaps import (
    Patterns,
    TooManyStepsError,
    any_covered,
    first_collision,
)
from pelton.core.protocol.subjects import collide, subset

TOKENS = st.sampled_from(["a", "b", "c", "*", "*", ">", "", "é", "\udcff"])
PATTERNS = st.lists(TOKENS, min_size=1, max_size=5).map(".".join)
LISTS = st.lists(PATTERNS, max_size=12)


@given(LISTS, PATTERNS, st.integers(-1, 12))
def test_a_set_answers_as_a_look_at_each_pair(patterns: list[str], asked: str, apart: int) -> None:
    held = Patterns()
    for number, pattern in enumerate(patterns):
        held.add(pattern, number)
    others = [(number, each) for number, each in enumerate(patterns) if number != apart]
    assert held.collides(asked, apart) == any(collide(asked, each) for _, each in others)
    assert held.colliding(asked) == {
        number for number, each in enumerate(patterns) if collide(asked, each)
    }
    if not any(">" in each.split(".")[:-1] for each in [asked, *patterns]):
        assert held.covers(asked, apart) == any(subset(asked, each) for _, each in others)


@given(LISTS, st.integers(0, 12))
def test_the_first_pair_is_the_one_that_a_double_loop_finds(patterns: list[str], upto: int) -> None:
    pairs = (
        (one, other)
        for one in range(min(upto, len(patterns)))
        for other in range(one + 1, len(patterns))
        if collide(patterns[one], patterns[other])
    )
    assert first_collision(patterns, upto) == next(pairs, None)


@given(LISTS)
def test_one_that_covers_another_is_found(patterns: list[str]) -> None:
    patterns = [each for each in patterns if ">" not in each.split(".")[:-1]]
    assert any_covered(patterns) == any(
        subset(one, other)
        for place, one in enumerate(patterns)
        for other in patterns[:place] + patterns[place + 1 :]
    )


@given(st.lists(st.tuples(st.booleans(), PATTERNS, st.integers(0, 3)), max_size=60), PATTERNS)
def test_what_is_taken_out_is_gone_with_its_memory(
    steps: list[tuple[bool, str, int]], asked: str
) -> None:
    held = Patterns()
    model: list[tuple[str, int]] = []
    for put, pattern, number in steps:
        if put:
            held.add(pattern, number)
            model.append((pattern, number))
        else:
            assert held.drop(pattern, number) == ((pattern, number) in model)
            if (pattern, number) in model:
                model.remove((pattern, number))
        assert held.colliding(asked) == {n for each, n in model if collide(asked, each)}
        assert held.count == len(model)
    for pattern, number in model:
        assert held.drop(pattern, number)
    assert held.count == held.nodes == 0


def test_many_come_and_go_under_one_token() -> None:
    held = Patterns()
    for number in range(5000):
        held.add(f"a.{number}", number)
    for number in range(0, 5000, 2):
        assert held.drop(f"a.{number}", number)
    assert [held.collides(f"a.{number}") for number in range(10)] == [False, True] * 5
    for number in range(5000, 9000):
        held.add(f"a.{number}", number)
    assert held.colliding("a.*") == {*range(1, 5000, 2), *range(5000, 9000)}
    assert held.nodes == 1 + 2500 + 4000


def test_the_steps_of_a_check_grow_with_the_list_and_not_with_its_square() -> None:
    steps = []
    for number in (1000, 4000):
        held = Patterns()
        for place in range(number):
            assert not held.collides(f"orders.{place}.*.>")
            held.add(f"orders.{place}.*.>", place)
        steps.append(held.steps)
    assert steps[1] <= 4 * steps[0] + 10


def test_a_question_ends_at_its_bound() -> None:
    crossing = [f"*.r{n}" for n in range(500)] + [f"x{n}.q" for n in range(500)]
    assert first_collision(crossing, 1000) is None
    with pytest.raises(TooManyStepsError):
        first_collision(crossing, 1000, 100_000)
    held = Patterns()
    for number, pattern in enumerate(crossing):
        held.add(pattern, number)
    assert not held.collides("*.s")
    held.bound(held.steps - 1)
    with pytest.raises(TooManyStepsError):
        held.collides("*.s")
    held.bound(0)
    assert not held.collides("*.s")
