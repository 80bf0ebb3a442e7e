"""Transforms: each function, each error text, and bytes instead of characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol.subjects import subset
from pelton.engine.base.transforms import TransformError, check, fnv1a, parse, publishable

APPLIED = [
    ("a.*.*", "b.$2.$1", "a.x.y", "b.y.x"),
    ("a.*", "b.{{wildcard(1)}}", "a.x", "b.x"),
    ("a.*", "b.{{ Wildcard( 1 ) }}", "a.x", "b.x"),
    ("a.*", "b.{{wildcard(0)}}", "a.x", "b.a"),
    ("a.*", "$x.$1", "a.x", "$x.x"),
    ("a.>", "b.>", "a.x.y", "b.x.y"),
    ("a.>", "b.>", "a", None),
    ("", "b.>", "x.y", "b.x.y"),
    ("a.*.>", "$1.>", "a.x.y.z", "x.y.z"),
    ("a.*", "b.$1", "c.x", None),
    ("a.*", "b.$1", "a.x.y", None),
    ("a", "b", "a", "b"),
    (">", ">", "a.b", "a.b"),
    (">", ">", "a..b", None),
    ("*", "{{splitFromLeft(1,3)}}", "12345", "123.45"),
    ("*", "{{SplitFromRight(1,3)}}", "12345", "12.345"),
    ("*", "{{splitFromLeft(1,5)}}", "12345", "12345"),
    ("*", "{{sliceFromLeft(1,2)}}", "12345", "12.34.5"),
    ("*", "{{SliceFromRight(1,2)}}", "12345", "1.23.45"),
    ("*", "{{sliceFromLeft(1,2)}}", "1234", "12.34"),
    ("*", "{{sliceFromRight(1,-2)}}", "1234", "1234"),
    ("*", "{{split(1,-)}}", "-a-b--c-", "a.b.c"),
    ("*", "{{left(1,2)}}", "12345", "12"),
    ("*", "{{Right(1,2)}}", "12345", "45"),
    ("*", "{{left(1,9)}}", "12345", "12345"),
    ("*.*", "{{partition(10,1,2)}}", "foo.bar", str(fnv1a(b"foobar") % 10)),
    ("*.*", "{{partition(10)}}", "foo.bar", str(fnv1a(b"foo.bar") % 10)),
    ("foo.bar", "{{partition(10,9)}}", "foo.bar", str(fnv1a(b"foo.bar") % 10)),
    ("*", "{{partition(0,1)}}", "x", "0"),
    ("*", "{{random(0)}}", "x", "0"),
    ("*", "{{splitFromLeft(1,1)}}", "é", b"\xc3.\xa9".decode("utf-8", "surrogateescape")),
    ("*", "{{split(1,)}}", "aé", "a.é"),
]


@pytest.mark.parametrize(("src", "dest", "subject", "wanted"), APPLIED)
def test_a_subject_becomes(src: str, dest: str, subject: str, wanted: str | None) -> None:
    transform = parse(src, dest)
    assert transform.apply(subject) == wanted
    assert transform.apply(subject) == wanted  # from the cache


CARRIED = [
    ("a.>", "b.>", "a.x.>", "b.x.>"),
    ("a.>", "b.>", "a.>", "b.>"),
    ("a.>", "b.>", "a", None),
    ("a.*.>", "b.$1.>", "a.*.x.*", "b.*.x.*"),
    ("a.*", "b.$1", "a.*", "b.*"),
    ("a.*", "b.$1", "c.*", None),
    ("a.*.*", "b.{{wildcard(2)}}.{{wildcard(1)}}", "a.é.>", "b.>.é"),
    (">", ">", "a.>", "a.>"),
]


@pytest.mark.parametrize(("src", "dest", "subject", "wanted"), CARRIED)
def test_wildcards_of_a_published_subject_are_carried_over(
    src: str, dest: str, subject: str, wanted: str | None
) -> None:
    transform = parse(src, dest)
    for _ in range(2):  # the second time from the cache
        assert transform.carry(subject) == wanted
        assert transform.apply(subject) is None  # a message of a stream has no such subject


@pytest.mark.parametrize(("src", "dest", "subject", "wanted"), APPLIED)
def test_what_has_no_wildcards_is_carried_as_it_is_applied(
    src: str, dest: str, subject: str, wanted: str | None
) -> None:
    if ".." not in subject:
        assert parse(src, dest).carry(subject) == wanted


BAD = [
    ("a.*", "b.*", "invalid subject"),
    ("a.>", "b", "invalid subject"),
    ("a", "b.>", "invalid subject"),
    ("a..b", "b", "invalid subject"),
    ("a.*", "b.$2", "invalid mapping destination: wildcard index out of range in $2: [2]"),
    ("a", "b.$1", "invalid mapping destination: wildcard index out of range in $1"),
    ("a.*", "b..c", "invalid mapping destination: invalid transform"),
    ("a.*", "b.>.c", "invalid mapping destination: invalid transform in c"),
    ("a.*", "b.c d", "invalid mapping destination: invalid transform"),
    ("a.*", "{{nothing(1)}}", "invalid mapping destination: unknown function in {{nothing(1)}}"),
    (
        "a.*",
        "{{wildcard()}}",
        "invalid mapping destination: not enough arguments passed to the function"
        " in {{wildcard()}}",
    ),
    (
        "a.*",
        "{{wildcard(1,2)}}",
        "invalid mapping destination: too many arguments passed to the function"
        " in {{wildcard(1,2)}}",
    ),
    (
        "a.*",
        "{{split(1,x y)}}",
        "invalid mapping destination: function argument is invalid or in the wrong format"
        " in {{split(1,x y)}}",
    ),
]


@pytest.mark.parametrize(("src", "dest", "text"), BAD)
def test_what_makes_no_transform(src: str, dest: str, text: str) -> None:
    with pytest.raises(TransformError) as caught:
        check(src, dest)
    assert str(caught.value) == text


def test_random_asks_for_a_number() -> None:
    asked = []

    def number(below: int) -> int:
        asked.append(below)
        return len(asked)

    transform = parse("a.*", "{{random(7)}}.$1", number)
    assert [transform.apply("a.x"), transform.apply("a.x")] == ["1.x", "2.x"]
    assert asked == [7, 7]


TOKEN = st.text("abc", min_size=1, max_size=3)
PATTERN = st.lists(TOKEN | st.just("*"), min_size=1, max_size=4)


@given(source=PATTERN, rest=st.booleans(), subject=st.lists(TOKEN, min_size=1, max_size=6))
def test_a_transform_takes_what_its_source_matches(
    source: list[str], rest: bool, subject: list[str]
) -> None:
    src = ".".join(source + [">"] * rest)
    wildcards = [i for i, token in enumerate(source) if token == "*"]
    dest = ".".join(["to", *(f"${n + 1}" for n in range(len(wildcards))), *([">"] * rest)])
    found = parse(src, dest).apply(".".join(subject))
    if subset(".".join(subject), src):
        tail = subject[len(source) :] if rest else []
        assert found == ".".join(["to", *(subject[i] for i in wildcards), *tail])
    else:
        assert found is None


@pytest.mark.parametrize(
    ("subject", "able"), [("a.b", True), ("a..b", False), ("a.*", False), ("", False), (">", False)]
)
def test_what_can_be_published_to(subject: str, able: bool) -> None:
    assert publishable(subject) is able
