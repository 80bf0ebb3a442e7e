"""Which imports fit which exports, and what becomes of a subject on the way."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.accounts.sharing import (
    export_of,
    local_pattern,
    may_import,
    problems,
    service_transform,
    stream_transform,
)
from penstock.server.settings.accounts import AccountSettings, Export, Import, Latency


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
    assert export_of([wide, same], "a.b", False) is same
    assert export_of([wide, same], "a.c", False) is wide
    assert export_of([wide], "a.b", True) is None


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
