"""Subject mappings: each share of the draws goes where the weights say."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol.subjects import subset
from pelton.server.accounts.mapping import Mappings, problem_of
from pelton.server.settings.accounts import Mapping, MappingTarget


def shares(mapping: Mapping, subject: str) -> Counter[str | None]:
    """Where each of the hundred draws leads."""
    draws = iter(range(100))
    found = Mappings([mapping], lambda below: next(draws) % below)
    return Counter(found(subject) for _ in range(100))


@given(st.lists(st.integers(0, 100), min_size=1, max_size=5), st.booleans())
def test_weights_are_shares_of_a_hundred(weights: list[int], with_own: bool) -> None:
    targets = [MappingTarget(f"t{number}", weight) for number, weight in enumerate(weights)]
    if with_own:
        targets[0].subject = "own"
    mapping = Mapping("own", targets)
    total = sum(weights)
    if total > 100:
        assert problem_of(mapping) == "total weight needs to be <= 100"
        return
    assert problem_of(mapping) == ""
    expected: Counter[str | None] = Counter()
    for target in targets:
        expected[target.subject] += target.weight
    # what is left stays, or is dropped when the subject itself has a weight
    expected[None if with_own else "own"] += 100 - total
    assert shares(mapping, "own") == +expected


def test_the_first_mapping_that_matches_decides_once() -> None:
    found = Mappings(
        [
            Mapping("a.*", [MappingTarget("b.$1")]),
            Mapping("a.x", [MappingTarget("c")]),
            Mapping("b.*", [MappingTarget("d.$1")]),
        ],
        lambda below: 0,
    )
    assert [found(subject) for subject in ("a.x", "b.x", "other")] == ["b.x", "d.x", "other"]
    assert found("a.x") == "b.x"  # as it was found before


def test_wildcards_keep_their_tokens() -> None:
    mapping = Mapping("a.*.>", [MappingTarget("b.>", 0)])
    assert shares(mapping, "a.b.c.d") == Counter({"a.b.c.d": 100})
    found = Mappings([Mapping("a.*.*", [MappingTarget("$2.{{wildcard(1)}}")])], lambda below: 0)
    assert found("a.1.2") == "2.1"


def test_targets_for_clusters_do_not_count() -> None:
    mapping = Mapping("a", [MappingTarget("b", 100, "east"), MappingTarget("c", 60)])
    assert problem_of(mapping) == ""
    assert shares(mapping, "a") == Counter({"c": 60, "a": 40})


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        (Mapping("a", [MappingTarget("b", 101)]), "individual weights need to be <= 100"),
        (
            Mapping("a", [MappingTarget("b", 1), MappingTarget("b", 2)]),
            'duplicate entry for "b"',
        ),
        (Mapping("a.*", [MappingTarget("b.$2")]), "wildcard index out of range"),
        (Mapping("a.*", [MappingTarget("b.{{what(1)}}")]), "unknown function"),
        (Mapping("a", [MappingTarget("")]), "invalid transform"),
        (Mapping("a", [MappingTarget("b.*")]), "invalid"),
    ],
)
def test_what_is_no_mapping(mapping: Mapping, problem: str) -> None:
    assert problem in problem_of(mapping)


def test_a_subject_is_not_compared_with_each_of_thousands_of_mappings() -> None:
    many = 5000
    listed = [Mapping(f"m.{n}.*", [MappingTarget(f"n.{n}.$1")]) for n in range(many)]
    mappings = Mappings(listed, lambda below: 0)
    before = mappings.steps
    for number in range(100):
        assert mappings(f"m.{number}.x") == f"n.{number}.x"
        assert mappings(f"none.{number}") == f"none.{number}"
    assert mappings.steps - before < 1000


@given(
    st.lists(st.sampled_from(["a.*", "a.>", "*.b", ">", "a.b", "*.*"]), max_size=5),
    st.sampled_from(["a.b", "a.c", "b.b", "c", "x.y.z"]),
)
def test_the_first_mapping_that_covers_the_subject_applies(
    patterns: list[str], subject: str
) -> None:
    tail = [".>" if pattern.endswith(">") else "" for pattern in patterns]
    listed = [Mapping(p, [MappingTarget(f"t{n}{tail[n]}")]) for n, p in enumerate(patterns)]
    first = next((n for n, p in enumerate(patterns) if subset(subject, p)), None)
    found = Mappings(listed, lambda below: 0)(subject)
    assert found is not None
    assert found.partition(".")[0] == f"t{first}" if first is not None else found == subject


def test_a_mapping_that_can_not_be_is_ignored() -> None:
    """An account's JWT may have one; what it hides applies."""
    listed = [
        Mapping("a.*", [MappingTarget("b.$2")]),
        Mapping("a.>", [MappingTarget("c.>")]),
    ]
    mappings = Mappings(listed, lambda below: 0)
    assert [mappings("a.x"), mappings("a.x"), mappings("b")] == ["c.x", "c.x", "b"]
