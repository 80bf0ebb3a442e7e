"""Which imports fit which exports, and what becomes of a subject on the way."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol.subjects import subset
from pelton.server.accounts.sharing import (
    Exports,
    Imports,
    local_pattern,
    may_import,
    problems,
    service_transform,
    stream_transform,
)
from pelton.server.settings.accounts import AccountSettings, Export, Import, Latency


@given(st.integers(1, 4), st.data())
def test_a_service_comes_back_to_where_a_stream_leads(count: int, data: st.DataObject) -> None:
    """With the same import, the exporter's subject of the importer's subject of a subject is it."""
    order = data.draw(st.permutations(range(1, count + 1)))
    subject = ".".join(["s", *"*" * count])
    local = ".".join(["l", *(f"${number}" for number in order)])
    forth = stream_transform(Import("A", subject, to=local))
    back = service_transform(Import("A", subject, service=True, to=local))
    assert forth is not None
    assert back is not None
    for tokens in itertools.islice(itertools.product("abc", repeat=count), 20):
        there = forth(".".join(["s", *tokens]))
        assert there == ".".join(["l", *(tokens[number - 1] for number in order)])
        assert back(there) == ".".join(["s", *tokens])


def test_subjects_that_stay_need_no_transform() -> None:
    assert stream_transform(Import("A", "a.*")) is None
    assert stream_transform(Import("A", "a", to="b")) is None
    assert service_transform(Import("A", "a.>", service=True, to="a.>")) is None
    assert local_pattern(Import("A", "a.*", to="b.{{wildcard(1)}}")) == "b.*"
    assert Import("A", "a", prefix="p.").local == Import("A", "a", prefix="p").local == "p.a"


def test_an_export_of_the_same_subject_is_preferred() -> None:
    wide, same = Export("a.>"), Export("a.b")
    assert Exports([wide, same]).of("a.b", False) is same
    assert Exports([wide, same]).of("a.c", False) is wide
    assert Exports([wide]).of("a.b", True) is None


PATTERNS = st.lists(st.sampled_from("ab*"), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens[:2], ">"])])
)


@given(st.lists(st.tuples(PATTERNS, st.booleans()), max_size=6), PATTERNS, st.booleans())
def test_an_export_is_found_as_by_looking_at_each(
    pairs: list[tuple[str, bool]], subject: str, service: bool
) -> None:
    listed = [Export(each, service=kind) for each, kind in pairs]
    same_kind = [each for each in listed if each.service == service]
    equal = [each for each in same_kind if each.subject == subject]
    wider = [each for each in same_kind if subset(subject, each.subject)]
    assert Exports(listed).of(subject, service) is next(iter(equal + wider), None)


MANY = 2000


@pytest.mark.parametrize("service", [False, True])
@pytest.mark.parametrize("wild", ["", ".*", ".>"])
def test_thousands_of_imports_are_not_compared_with_thousands_of_exports(
    service: bool, wild: str
) -> None:
    subjects = [f"s.{number}{wild}" for number in range(MANY)]
    accounts = [
        AccountSettings("A", exports=[Export(each, service=service) for each in subjects]),
        AccountSettings("B", imports=[Import("A", each, service=service) for each in subjects]),
        AccountSettings("C", imports=[Import("A", each, service=service) for each in subjects]),
    ]
    imports = Imports(accounts)
    for account in accounts:
        for wanted in account.imports:
            assert imports.add(account.name, wanted) == ""
    assert imports.add("B", accounts[1].imports[-1]) != ""
    assert imports.steps < 50 * MANY


def test_the_circles_of_thousands_of_imports_take_few_comparisons() -> None:
    names = ("A", "B")
    accounts = [
        AccountSettings(
            name,
            exports=[Export(f"{name}.>", service=True)],
            imports=[Import(other, f"{other}.{number}", service=True) for number in range(MANY)],
        )
        for name, other in (names, names[::-1])
    ]
    imports = Imports(accounts)
    for account in accounts:
        for wanted in account.imports:
            assert imports.add(account.name, wanted) == ""
    assert imports.steps < 50 * MANY


def test_who_may_import() -> None:
    exporter = AccountSettings(
        "A",
        exports=[
            Export("public"),
            Export("private", accounts=["B"]),
            Export("by.*", account_token_position=2),
            Export("token", token_required=True),
        ],
    )

    def may(subject: str, importer: str) -> bool:
        return may_import(exporter, Import("A", subject), importer) is not None

    assert may("public", "C")
    assert may("private", "B")
    assert not may("private", "C")
    assert may("by.C", "C")
    assert not may("by.C", "B")
    assert not may("by.*", "C")
    assert not may("token", "B")
    assert may_import(exporter, Import("A", "token"), "B", lambda *_: True) is not None
    assert not may("unknown", "B")


def two(*, exports: list[Export], imports: list[Import]) -> list[AccountSettings]:
    return [AccountSettings("A", exports=exports), AccountSettings("B", imports=imports)]


@pytest.mark.parametrize(
    ("accounts", "problem"),
    [
        (two(exports=[], imports=[Import("A", "a")]), 'import "a": stream import not authorized'),
        (two(exports=[], imports=[Import("X", "a")]), '"X" account not defined for stream import'),
        (
            two(exports=[Export("a", accounts=["X"])], imports=[]),
            '"X" account not defined for stream export',
        ),
        (
            two(exports=[Export("a")], imports=[Import("A", "a"), Import("A", "a", to="b")]),
            "stream import already exists",
        ),
        (
            two(exports=[Export("a.*")], imports=[Import("A", "a.*", prefix="p.*")]),
            "stream import prefix can not contain wildcard tokens",
        ),
        (
            two(exports=[Export("a.*.*")], imports=[Import("A", "a.*.*", to="b.$1")]),
            "not using all of the token wildcard(s)",
        ),
        (
            two(exports=[Export("a.*")], imports=[Import("A", "a.*", to="b.{{split(1,-)}}")]),
            "the only mapping function allowed for import transforms is {{Wildcard()}}",
        ),
        (
            two(exports=[Export("q", service=True, latency=Latency("q"))], imports=[]),
            "invalid publish subject",
        ),
        (
            two(exports=[Export("a.b", account_token_position=2)], imports=[]),
            "invalid subject",
        ),
    ],
)
def test_what_does_not_fit(accounts: list[AccountSettings], problem: str) -> None:
    found = list(problems(accounts))
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize("service", [False, True])
def test_imports_in_a_circle(service: bool) -> None:
    def account(name: str, of: str) -> AccountSettings:
        return AccountSettings(
            name,
            exports=[Export("a.>", service=service)],
            imports=[Import(of, "a.>", service=service)],
        )

    circle = [account("A", "B"), account("B", "C"), account("C", "A")]
    (problem,) = problems(circle)
    assert problem.endswith("import forms a cycle")
