import random
import re

from hypothesis import given
from hypothesis import strategies as st

from pelton.nuid import COUNTER_END, Nuid


@given(st.integers())
def test_a_series_never_repeats_and_looks_right(seed: int) -> None:
    nuid = Nuid(random.Random(seed))
    made = [nuid.next() for _ in range(200)]
    assert len(set(made)) == 200
    assert all(re.fullmatch("[0-9A-Za-z]{22}", name) for name in made)


def test_the_source_decides_the_series() -> None:
    first, again, other = (Nuid(random.Random(seed)) for seed in (1, 1, 2))
    assert [first.next() for _ in range(5)] == [again.next() for _ in range(5)]
    assert first.next()[:12] != other.next()[:12]


def test_overflow_of_the_counter_takes_a_new_prefix() -> None:
    nuid = Nuid(random.Random(7))
    before = nuid.next()
    nuid._counter = COUNTER_END - 1
    after = nuid.next()
    assert len(after) == 22
    assert after[:12] != before[:12]


def test_the_machine_s_randomness_will_do() -> None:
    assert len(Nuid(random.SystemRandom()).next()) == 22
