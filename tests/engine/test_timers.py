"""Timers, compared with a dictionary that is searched for the smallest value."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.engine.base import timers as module
from pelton.engine.base.timers import Timers

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
    )
)


@pytest.fixture(autouse=True, scope="module")
def _tidy_often() -> Iterator[None]:
    usual, module.STALE = module.STALE, 0
    yield
    module.STALE = usual


def test_deadlines_of_what_is_gone_keep_nothing_alive() -> None:
    timers: Timers[int] = Timers()
    for thing in range(1000):
        timers.set(thing, 10**9 + thing)
        timers.set(-thing, 5)
        timers.set(thing, 0)
        timers.set(-7, 100 + thing)
        assert len(timers._heap) <= 2 * len(timers) + 2
    assert timers.next_ns() == 5


@given(STEPS)
def test_against_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    for what, thing, ns in steps:
        if what == "set":
            timers.set(thing, ns)
            if ns:
                model[thing] = ns
            else:
                model.pop(thing, None)
        else:
            popped = timers.pop(ns)
            if popped is None:
                assert not model or min(model.values()) > ns
            else:
                assert model.pop(popped) <= ns
                assert all(popped != other for other in model)
        assert timers.next_ns() == min(model.values(), default=0)
        assert len(timers) == len(model)


@given(STEPS)
def test_who_waits_for_what_it_was_told_is_never_late(
    steps: list[tuple[str, int, int]],
) -> None:
    timers: Timers[int] = Timers()
    never = 1 << 62
    wake = never

    def sooner(due_ns: int) -> None:
        nonlocal wake
        wake = min(wake, due_ns)

    timers.sooner = sooner
    for what, thing, ns in steps:
        if what == "set":
            timers.set(thing, ns)
        else:
            timers.pop(ns)
            wake = timers.next_ns() or never
        assert wake <= (timers.next_ns() or never)
