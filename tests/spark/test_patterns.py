"""Sets of subjects against the plain meaning of patterns: all subjects of a small alphabet."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol.subjects import matches
from pelton.spark.reading.patterns import askable, cover, shortest

SUBJECTS = [".".join(tokens) for length in range(1, 5) for tokens in product("ab", repeat=length)]

patterns = st.tuples(
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3), st.sampled_from(["a", "b", "*", ">"])
).map(lambda made: ".".join([*made[0], made[1]]))
sets = st.lists(patterns, max_size=4).map(tuple)


def meant(some):
    return {subject for subject in SUBJECTS if any(matches(subject, each) for each in some)}


@given(sets)
def test_the_shortest_set_is_the_same_set(some):
    short = shortest(some)
    assert meant(short) == meant(some)
    assert set(short) <= set(some)
    assert shortest(short) == short


@given(sets.filter(bool))
def test_a_cover_covers(some):
    covering = cover(some)
    assert meant(some) <= meant([covering])
    assert cover((covering,)) == covering


@given(sets)
def test_a_server_is_asked_for_sets_that_do_not_overlap(some):
    shared = any(
        meant([left]) & meant([right])
        for place, left in enumerate(some)
        for right in some[place + 1 :]
    )
    assert askable(some) == (not shared)
