"""The option ``where``: what it means, which files and sequences it leaves out, and that rows are never wrong."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.spark.conditions import Term, parse_condition
from pelton.spark.filters import Filter, comparable
from pelton.spark.parsing import OptionError

BEGIN = datetime(2026, 11, 29, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("t", pa.string()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("yes", pa.bool_()),
        ("c", pa.decimal128(6, 2)),
    ]
)
LONG = "x" * 40
ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-3, 3),
        "f": st.none() | st.sampled_from([-1.5, 0.0, 1.0, 0.5, math.nan, math.inf]),
        "t": st.none() | st.sampled_from(["", "a", "b", "it's", LONG, LONG + "y"]),
        "d": st.none() | st.integers(0, 3).map(lambda days: date(2026, 11, 29) + timedelta(days)),
        "at": st.none() | st.integers(0, 2000).map(lambda us: BEGIN + timedelta(microseconds=us)),
        "yes": st.none() | st.booleans(),
        "c": st.none() | st.integers(-2, 2).map(lambda cents: Decimal(cents) / 100),
    }
)
SIGNS = ["=", "!=", "<", "<=", ">", ">="]


def spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"TIMESTAMP'{value.isoformat()}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """A condition's text, and a function for each of its terms."""
    texts, tests = [], []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(SCHEMA.names))
        values = draw(
            st.lists(
                ROWS.map(lambda row, name=name: row[name]).filter(  # type: ignore[misc]  # of the loop
                    lambda one: one is not None and one == one and one != math.inf
                ),
                min_size=1,
                max_size=3,
            )
        )
        kind = draw(st.sampled_from([*SIGNS, "in", "not in", "between", "null", "not null"]))
        texts.append(term(name, kind, values))
        tests.append((name, kind, values))
    return draw(st.sampled_from([" and ", " AND\n"])).join(texts), tests


def term(name: str, kind: str, values: list[Any]) -> str:
    if kind in ("in", "not in"):
        return f"{name} {kind} ({', '.join(map(spelled, values))})"
    if kind == "between":
        return f"`{name}` between {spelled(values[0])} and {spelled(values[-1])}"
    if "null" in kind:
        return f"{name.upper()} is {kind}"
    return f"{name}{kind} {spelled(values[0])}"


def order(value: Any) -> tuple[bool, Any]:
    """As Spark orders values: NaN is above all numbers."""
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value


def holds(row: dict[str, Any], name: str, kind: str, values: list[Any]) -> bool:
    """What Spark's SQL says of a row."""
    value = row[name]
    if value is None or "null" in kind:
        return kind == ("null" if value is None else "not null")
    if kind in ("in", "not in"):
        return (value in values) == (kind == "in")
    one, first, last = order(value), order(values[0]), order(values[-1])
    return {
        "=": one == first,
        "!=": one != first,
        "<": one < first,
        "<=": one <= first,
        ">": one > first,
        ">=": one >= first,
        "between": first <= one <= last,
    }[kind]


@given(st.lists(ROWS, max_size=6), conditions())
def test_rows_are_those_of_spark(rows: list[dict[str, Any]], condition: Any) -> None:
    text, tests = condition
    found = Filter.of(parse_condition(text), SCHEMA)
    batch = pa.RecordBatch.from_pylist(
        [{**row, "i": number} for number, row in enumerate(rows)],
        pa.schema([*SCHEMA, ("i", pa.int64())]),
    )
    wanted = [n for n, row in enumerate(rows) if all(holds(row, *one) for one in tests)]
    assert found.kept(batch)["i"].to_pylist() == wanted, text


@given(st.lists(ROWS, min_size=1, max_size=4), conditions(), st.booleans())
def test_no_file_with_such_rows_is_left_out(
    rows: list[dict[str, Any]], condition: Any, cut: bool
) -> None:
    text, tests = condition
    found = Filter.of(parse_condition(text), SCHEMA)
    bounds: dict[str, Any] = {}
    for name in ("n", "t", "d", "at"):
        values = [
            comparable(pa.scalar(row[name], SCHEMA.field(name).type))
            for row in rows
            if row[name] is not None
        ]
        low: Any = min(values) if values else None
        high: Any = max(values) if values else None
        if cut and name == "at" and values:  # as writers cut times
            low, high = low // 1000 * 1000, high // 1000 * 1000
        if cut and name == "t" and values:
            low, high = low[:32], high[:32]
        bounds[name] = low, high
    some = any(all(holds(row, *one) for one in tests) for row in rows)
    assert found.may_be_in({}, bounds) or not some
    partition = {name: pa.scalar(rows[0][name], SCHEMA.field(name).type) for name in SCHEMA.names}
    one = all(holds(rows[0], *each) for each in tests)
    assert found.may_be_in(partition, {}) == one, text


def test_files_are_left_out() -> None:
    found = Filter.of(parse_condition("n between 5 and 7 and t = 'm'"), SCHEMA)
    assert found.may_be_in({}, {"n": (7, 9), "t": ("a", "z")})
    assert not found.may_be_in({}, {"n": (8, 9)})
    assert not found.may_be_in({}, {"n": (0, 4)})
    assert not found.may_be_in({}, {"t": ("n", "z")})
    assert found.may_be_in({}, {"n": (None, None)})


def test_the_terms_of_a_text() -> None:
    assert parse_condition("a.b".replace(".", "_") + " == -1.5e3 AND `x y` is not null") == (
        Term("a_b", "=", (Decimal("-1.5e3"),)),
        Term("x y", "not null"),
    )
    for wrong in (
        *("", "a", "a =", "a = b", "a = 1 or b = 2", "a = 1 b = 2", "(a = 1)", "not a = 1"),
        *(
            "a in ()",
            "a in (1",
            "a between 1",
            "a is 5",
            "a not between 1 and 2",
            "a = 'x",
            "a ~ 1",
        ),
        *("and = 1", "a = 1 and", "length(a) = 1", "a like 'x'"),
    ):
        with pytest.raises(OptionError, match="comparisons joined by and"):
            parse_condition(wrong)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nn = 1", "where names the column nn; did you mean n"),
        ("n = 1.5", "where compares n, which is int64, with 1.5"),
        ("n = '1'", "which is int64, with 1"),
        ("n = 99999999999999999999", "which is int64"),
        ("t = 1", "which is string, with 1"),
        ("d = '2026-02-30'", "which is date32"),
        ("at = 'now'", "which is timestamp"),
        ("yes = 1", "which is bool"),
        ("c = 0.001", "which is decimal128"),
    ],
)
def test_values_that_a_column_does_not_have(text: str, said: str) -> None:
    with pytest.raises(OptionError, match="where ") as error:
        Filter.of(parse_condition(text), SCHEMA)
    assert said in str(error.value)
