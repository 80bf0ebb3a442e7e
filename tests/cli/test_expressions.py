"""The language of ``--expression`` and ``--filter``."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.expressions import Condition, ExpressionError
from pelton.cli.expressions.go_names import with_go_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran, WithSystem

    Run = Callable[..., Ran]

NOW = datetime.datetime(2026, 11, 24, tzinfo=datetime.UTC)
VALUES: dict[str, Any] = {
    "config": {"name": "ORDERS", "num_replicas": 3, "subjects": ["a", "js.in.orders_1"]},
    "state": {"messages": 10, "consumer_count": 0},
    "info": {"cluster": {"name": "lon"}, "created": "2026-01-01T00:00:00.123456789Z"},
}


def holds(text: str, values: dict[str, Any] = VALUES) -> bool:
    return Condition(text, tuple(values)).holds(values, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "state.messages <= 10 && config.num_replicas > 1",
        'info.cluster.name in ["lon", "sfo"]',
        '"js.in.orders_1" in config.subjects and "x" not in config.subjects',
        'not (config.name matches "^P")',
        '!(config.name contains "ERR") || false',
        'config.name startsWith "O" ? true : false',
        'any(config.subjects, # contains "js")',
        'any(config.subjects, {# contains "js"}) and len(config.subjects) == 2',
        'config.subjects | filter(# startsWith "a") | len() == 1',
        'count(config.subjects, # == "a") == 1 and none([1], # > 1) and all([1, 2], # > 0)',
        'date(info.created) < now() - duration("24h")',
        'now() - date(info.created) > duration("30d")',
        "info.nothing.inside == nil and not (info.nothing > 3)",
        'info.nothing?.inside ?? "d" == "d"',
        "let n = state.messages; n * 2 == 20 and n % 3 == 1",
        "1..3 == [1, 2, 3] and 10 / 4 == 2.5 and 2 ** 3 ** 1 == 8 and -2 ** 2 == -4",
        "0x1F == 31 and 1_000 == 1e3 and .5 < 1 // a comment",
        '{"a": 1, b: 2}["a"] == 1 and "b" in {b: 2}',
        'config.subjects[0] == "a" and config.subjects[-1] != "a"',
        'config.subjects[0:1] == ["a"] and `a\\` == "a\\\\" and "\\u0041" == "A"',
        'lower(config.name) == "orders" and trimPrefix(config.name, "OR") == "DERS"',
        '$env.config.name == "ORDERS" and 1 != true',
        "map([1, 2], # * 2) == [2, 4] and find([1, 5], # > 2) == 5 and sum([1, 2]) == 3",
        "any([{a: 1}], .a == 1) and max([1, 3]) == 3 and uniq([1, 1]) == [1]",
        "state.consumer_count == 0 ? true : 1 / 0 > 0",
    ],
)
def test_true(text: str) -> None:
    assert holds(text)
    assert not holds(f"not ({text.partition(' //')[0]})") or text.startswith("let")


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("stat.messages > 1", "stat", 'did you mean "state"?'),
        ("leng(config.subjects) > 1", "leng", 'did you mean "len"?'),
        ("state.messages >", "", "expected a value"),
        ("a b", "b", "unexpected 'b'"),
        ("config.name > 3", "> 3", "can't compare a text with a number"),
        ("(((", "", "expected a value"),
        ('"abc', '"abc', "no closing quote"),
        ("[1, 2].foo == 1", ".foo", "has no field foo"),
        ('("a" * 5) == "x"', "* 5", "can't take"),
        ("1 in 5", "in 5", "needs a list"),
        ('"a" matches "("', "matches", "no regular expression"),
        ("# > 1", "#", "only in a predicate"),
        ("1 / 0 > 1", "/ 0", "division by zero"),
        ("9 ** 9 ** 9 > 1", "** 9", "too large"),
        ("len(0..9999999) > 1", "..", "too long"),
        ("config.name.upper() == 'X'", ".upper", "no method"),
        ("(" * 5000, "", "too many"),
        ("!" * 5000 + "true", "", "too many"),
        ("state.messages @ 3", "@", "unexpected"),
        ("config.subjects[9] == 1", "[9]", "no item 9 of 2"),
        ("len(1, 2, 3) == 1", "len", "argument"),
        ('duration("soon") > duration("1s")', "duration", "no duration"),
        ("x = 1", "=", "unexpected '='"),
    ],
)
def test_mistakes_name_the_place(text: str, at: str, says: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Condition(text, ("config", "state", "info", "a", "x")).holds(VALUES, NOW)
    assert says in str(caught.value)
    assert text[caught.value.at :].startswith(at)
    assert len(str(caught.value)) < 200


def test_a_condition_is_true_or_false() -> None:
    with pytest.raises(ExpressionError, match="a number is neither true nor false"):
        holds("state.messages")


@given(st.text(alphabet="ab.()[]{}#|&!?:,\"'`<>=+-*/%0123456789 letinot", max_size=30))
def test_any_text_is_a_condition_or_an_expression_error(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        holds(text, {"a": {"b": [1, 2, "x"]}, "b": 3})


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab\"'\\\n", max_size=4),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=6,
    )
)
def test_a_literal_is_what_it_is(value: object) -> None:
    import json

    assert holds(f"v == {json.dumps(value)}", {"v": value})


def test_names_of_go() -> None:
    found = with_go_names({"state": {"messages": 3, "consumer_count": 2}, "config": {"max_age": 1}})
    values = {"Info": found}
    assert holds("Info.State.Msgs == 3 and Info.State.Consumers == 2", values)
    assert holds("Info.Config.MaxAge == 1 and Info.Nothing == nil", values)


def test_streams_and_consumers_by_expression(at: Run, unique: str) -> None:
    for end, count in (("a", 3), ("b", 0)):
        name = unique + end
        assert at("stream", "add", name, "--subjects", f"{name}.>", "--defaults").status == 0
        if count:
            assert at("pub", f"{name}.x", "x", "--count", count, "-J").status == 0
    for end, deliver in (("c", "all"), ("d", "new")):
        words = ("consumer", "add", f"{unique}a", unique + end, "--pull", "--defaults")
        assert at(*words, "--deliver", deliver).status == 0

    def streams(text: str, *more: str) -> list[str]:
        ran = at("stream", "find", "--names", "--json", "--expression", text, *more)
        assert ran.err == ""
        assert ran.status == (0 if ran.json else 1)
        return [name for name in ran.json if name.startswith(unique)]

    assert streams("state.messages == 3") == [f"{unique}a"]
    assert streams("Info.State.Msgs == 0", "--no-invert") == [f"{unique}b"]
    assert streams(f'"{unique}b.>" in config.subjects') == [f"{unique}b"]
    assert streams(f'config.name startsWith "{unique}"', "--empty") == [f"{unique}b"]
    assert f"{unique}a" not in streams("state.messages > 0", "--invert")
    ran = at("consumer", "find", f"{unique}a", "-n", "--expression", "state.num_pending > 2")
    assert ran.out == f"{unique}c\n"
    ran = at(
        "consumer", "find", f"{unique}a", "-n", "--expression", 'config.deliver_policy == "new"'
    )
    assert ran.out == f"{unique}d\n"
    wrong = at("stream", "find", "--expression", "state.mesages >")
    assert (wrong.status, wrong.out) == (2, "")
    assert wrong.err == (
        "pelton: expression, at the end: unexpected the end, expected a value;"
        " see pelton stream find --help\n"
    )
    none = at("stream", "find", "--cluster", "(")
    assert none.status == 2
    assert none.err.startswith("pelton: --cluster: '(' is not a regular expression")
    for option in ("--cluster", "--server-name"):
        assert streams("true", option, "nowhere") == []


def test_connections_by_expression(bertha: WithSystem, cli: Run) -> None:
    words = ("-s", bertha.system, "server", "report", "connections")
    ran = cli(*words, "--json", "--filter", 'conn.lang == "nothing"')
    assert (ran.status, ran.json) == (0, [])
    for text in (
        'conn.name == "pelton" and conn.pending_bytes < 1',
        "Conn.Port > 0 and Conn.NumSubs >= 0",
    ):
        ran = cli(*words, "--json", "--filter", text)
        assert ran.json, ran.err
        assert all(each["name"] == "pelton" for each in ran.json)
    ran = cli(*words, "--filter", "con.name == 'x'")
    assert ran.status == 2
    assert 'did you mean "conn"?' in ran.err
    ran = cli(*words, "--filter", "true", "--closed-reason", "x")
    assert ran.status == 2
