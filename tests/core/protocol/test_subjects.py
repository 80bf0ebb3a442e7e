import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.protocol.subjects import collide, literal, matches, subset, valid
from tests.ways import length

WORD = st.sampled_from(["a", "b", "c", "foo*", "f>o", "ö"])
LITERAL = st.lists(WORD, min_size=1, max_size=4).map(".".join)
PATTERN = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]),
    st.lists(st.one_of(WORD, st.just("*")), min_size=1, max_size=4),
    st.sampled_from([[], [], [">"]]),
) | st.just(">")
BLANKS = " \t\r\n\f"


def naive_matches(subject: str, pattern: str) -> bool:
    s, p = subject.split("."), pattern.split(".")
    if p[-1] == ">":
        if len(s) < len(p):
            return False
        p, s = p[:-1], s[: len(p) - 1]
    return len(s) == len(p) and all(b in ("*", a) for a, b in zip(s, p, strict=True))


def naive_valid(subject: str) -> bool:
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1] and not any(c in subject for c in BLANKS)


def all_literals(depth: int) -> list[str]:
    level, found = [""], []
    for _ in range(depth):
        level = [f"{s}.{w}" if s else w for s in level for w in ("a", "b", "z")]
        found += level
    return found


@given(st.one_of(st.text("ab.*> \t\n\r\f", max_size=9), st.text(max_size=9), PATTERN))
def test_valid_and_literal(subject: str) -> None:
    assert valid(subject) == naive_valid(subject)
    wild = {"*", ">"} & set(subject.split("."))
    assert literal(subject) == (naive_valid(subject) and not wild)
    assert valid(subject.encode("utf-8", "surrogateescape")) == valid(subject)


@given(LITERAL, PATTERN)
def test_matches(subject: str, pattern: str) -> None:
    assert matches(subject, pattern) == naive_matches(subject, pattern)


SMALL = st.builds(
    lambda tokens, tail: ".".join([*tokens, *tail]),
    st.lists(st.sampled_from("ab*"), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
) | st.just(">")
LITERALS = all_literals(5)


@settings(max_examples=length(25, 60))
@given(SMALL, SMALL)
def test_collide_and_subset_are_what_they_say_of_all_subjects(a: str, b: str) -> None:
    """Patterns of up to four tokens over a, b: subjects of five over a, b and a third decide."""
    in_a = {s for s in LITERALS if naive_matches(s, a)}
    in_b = {s for s in LITERALS if naive_matches(s, b)}
    assert collide(a, b) == collide(b, a) == bool(in_a & in_b)
    assert subset(a, b) == (in_a <= in_b)


def test_subjects_are_str_or_bytes() -> None:
    with pytest.raises(TypeError, match="int"):
        valid(3)  # type: ignore[arg-type]  # the point of the test
