"""Conditions of ``where()`` against rows: nothing that a row needs is lost, and what is called exact
is.
"""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from penstock.core.subjects import matches
from penstock.spark.reading.pushdown import CLOCK_SLACK, Wanted, narrowed

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TOKENS = ["a", "b", "ab", "*", ">"]

subjects = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3).map(".".join)
texts = subjects | st.sampled_from(["", "a.", ".a", "a..b", "a b", "a.b.", "a.*.", "ab.b"])
times = st.integers(-100, 100).map(lambda seconds: BEGIN + timedelta(seconds=seconds))
SUBJECTS = [".".join(each) for length in (1, 2, 3) for each in product(TOKENS, repeat=length)]
PLAIN = {"stream": "A", "seq": 5, "subject": "a.b", "ts": BEGIN, "headers": None}
ROWS = [
    *({**PLAIN, "seq": seq} for seq in range(1, 12)),
    *({**PLAIN, "subject": subject} for subject in SUBJECTS),
    *({**PLAIN, "ts": BEGIN + timedelta(seconds=seconds)} for seconds in range(-100, 101, 10)),
    {**PLAIN, "stream": "B"},
    {**PLAIN, "stream": "B", "seq": 7, "subject": "ab.b"},
]


def test_conditions_are_understood():
    """The meaning used below, where it is easy to get wrong."""
    row = {"seq": 3, "headers": None}
    assert holds(row, spark.Not(spark.EqualTo(("seq",), 4)))
    assert not holds(row, spark.IsNotNull(("headers",)))


def holds(row, condition):
    if isinstance(condition, spark.Not):
        return not holds(row, condition.child)
    found, kind = row[condition.attribute[0]], type(condition).__name__
    value = getattr(condition, "value", None)
    return {
        "EqualTo": lambda: found == value,
        "EqualNullSafe": lambda: found == value,
        "GreaterThan": lambda: found > value,
        "GreaterThanOrEqual": lambda: found >= value,
        "LessThan": lambda: found < value,
        "LessThanOrEqual": lambda: found <= value,
        "In": lambda: found in value,
        "IsNull": lambda: found is None,
        "IsNotNull": lambda: found is not None,
        "StringStartsWith": lambda: found.startswith(value),
        "StringEndsWith": lambda: found.endswith(value),
        "StringContains": lambda: value in found,
    }[kind]()


def on(column, values, *kinds):
    return st.one_of(*(st.builds(kind, st.just((column,)), values) for kind in kinds))


COMPARISONS = (
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.GreaterThan,
    spark.GreaterThanOrEqual,
    spark.LessThan,
    spark.LessThanOrEqual,
)
TEXTUAL = (
    spark.EqualTo,
    spark.EqualNullSafe,
    spark.StringStartsWith,
    spark.StringEndsWith,
    spark.StringContains,
)
plain = st.one_of(
    on("seq", st.integers(-2, 12), *COMPARISONS),
    on("seq", st.lists(st.integers(-2, 12), min_size=1, max_size=4), spark.In),
    on("ts", times, *COMPARISONS),
    on("subject", texts, *TEXTUAL),
    on("subject", st.lists(texts, min_size=1, max_size=3), spark.In),
    on("stream", st.sampled_from(["A", "B", "C"]), *TEXTUAL),
    on("stream", st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=3), spark.In),
    st.builds(spark.IsNotNull, st.sampled_from([("seq",), ("headers",)])),
    st.builds(spark.IsNull, st.sampled_from([("subject",), ("headers",)])),
)
conditions = st.lists(plain | plain.map(spark.Not), min_size=1, max_size=2)


def gives(wanted, row):
    return (
        (wanted.subjects is None or any(matches(row["subject"], each) for each in wanted.subjects))
        and (wanted.streams is None or row["stream"] in wanted.streams)
        and wanted.first_seq <= row["seq"] <= wanted.last_seq
        and (wanted.not_before is None or row["ts"] >= wanted.not_before)
        and (wanted.not_after is None or row["ts"] < wanted.not_after)
    )


@settings(max_examples=400)
@given(conditions, st.none() | st.just(("a.>", "*.b")))
def test_spark_sees_every_row_it_needs_and_only_those(given_conditions, before):
    begin = Wanted(before)
    wanted, left = narrowed(begin, given_conditions)
    assert all(any(each is mine for mine in given_conditions) for each in left)
    for row in ROWS:
        if not gives(begin, row):
            assert not gives(wanted, row)
            continue
        needed = all(holds(row, each) for each in given_conditions)
        seen = gives(wanted, row) and all(holds(row, each) for each in left)
        assert seen == needed, (row, wanted, left)


@pytest.mark.parametrize(
    ("condition", "exact"),
    [
        (spark.EqualTo(("subject",), "a.b"), True),
        (spark.In(("subject",), ["a.b", "c"]), True),
        (spark.StringStartsWith(("subject",), "a.b."), True),
        (spark.StringStartsWith(("subject",), "a.b"), False),
        (spark.StringEndsWith(("subject",), ".b"), False),
        (spark.GreaterThan(("seq",), 5), True),
        (spark.In(("seq",), [5, 6, 7]), True),
        (spark.In(("seq",), [5, 7]), False),
        (spark.GreaterThan(("ts",), BEGIN), False),
        (spark.EqualTo(("data",), b"x"), False),
        (spark.IsNotNull(("subject",)), True),
        (spark.Not(spark.EqualTo(("seq",), 5)), False),
    ],
)
def test_what_is_taken_over(condition, exact):
    _, left = narrowed(Wanted(), [condition])
    assert left == ([] if exact else [condition])


def test_times_keep_a_margin():
    wanted, _ = narrowed(Wanted(), [spark.GreaterThan(("ts",), BEGIN)])
    assert wanted.not_before == BEGIN - CLOCK_SLACK
    for at in (datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)):
        narrowed(Wanted(), [spark.EqualTo(("ts",), at)])
    naive, _ = narrowed(Wanted(), [spark.GreaterThan(("ts",), datetime(2026, 1, 1))])
    assert naive == Wanted()
