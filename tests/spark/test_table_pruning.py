"""Pruning: a file that holds a row that meets the conditions is never left out."""

import math
import operator

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.spark.tables.commits import Tables, Write
from penstock.spark.tables.data_files import write_rows
from penstock.spark.tables.places import place
from penstock.spark.tables.pruning import may_hold
from tests.spark.test_data_files import ALL, ROWS

COMPARED = ["seq", "byte", "text", "day", "at", "local", "money", "number"]
OPERATORS = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def meets(row, condition):
    """What Spark says of a row; a NaN equals itself and is above all other numbers."""
    value = row[condition.attribute[0]]
    if isinstance(condition, IsNull | IsNotNull):
        return (value is None) == isinstance(condition, IsNull)
    if value is None:
        return False
    if isinstance(condition, In):
        return any(meets(row, EqualTo(condition.attribute, one)) for one in condition.value)
    if isinstance(condition, StringStartsWith):
        return value.startswith(condition.value)
    pair = [value, condition.value]
    if any(isinstance(one, float) for one in pair):
        pair = [(1, 0.0) if math.isnan(one) else (0, one) for one in pair]
    return OPERATORS[type(condition)](*pair)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=5),
    ROWS,
    st.sampled_from(COMPARED),
    st.sampled_from([*OPERATORS, In, IsNull, IsNotNull, StringStartsWith]),
    st.sampled_from([(), ("text",), ("day",)]),
    st.integers(0, 3),
)
def test_no_row_is_hidden(tmp_path_factory, rows, asked, name, kind, by, length):
    where = place(tmp_path_factory.mktemp("prune") / "t")
    batch = pa.RecordBatch.from_pylist(rows, schema=ALL)
    files = write_rows([batch], where, ALL, "w", partition_by=by)
    Tables().commit(where, Write(schema=ALL, files=files, partition_by=by or None))
    if kind is StringStartsWith:
        condition = kind(("text",), (asked["text"] or "")[:length])
    elif kind in (IsNull, IsNotNull):
        condition = kind((name,))
    else:
        value = asked[name]
        if value is None:
            return
        condition = kind((name,), [value] if kind is In else value)
    for row in batch.to_pylist():
        if by == ("text",) and row["text"] == "":
            row["text"] = None
        if meets(row, condition):
            actions = pa.table(DeltaTable(where.uri).get_add_actions(flatten=True)).to_pylist()
            kept = [action for action in actions if may_hold(action, [condition])]
            if by:
                assert any(action[f"partition.{by[0]}"] == row[by[0]] for action in kept)
            else:
                assert kept


FILE = {
    "num_records": 10,
    "min.seq": 5,
    "max.seq": 9,
    "null_count.seq": 0,
    "null_count.word": 10,
    "min.text": "ab",
    "max.text": "ad",
    "partition.p": 3,
}


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        (EqualTo(("seq",), 4), False),
        (EqualTo(("seq",), 5), True),
        (EqualNullSafe(("seq",), 10), False),
        (GreaterThan(("seq",), 9), False),
        (GreaterThanOrEqual(("seq",), 9), True),
        (LessThan(("seq",), 5), False),
        (LessThanOrEqual(("seq",), 5), True),
        (In(("seq",), [1, 2]), False),
        (In(("seq",), [1, 7]), True),
        (In(("seq",), ["x"]), True),
        (EqualTo(("seq",), "x"), True),
        (IsNull(("seq",)), False),
        (IsNotNull(("word",)), False),
        (StringStartsWith(("text",), "b"), False),
        (StringStartsWith(("text",), "a"), True),
        (StringStartsWith(("text",), "aca"), True),
        (StringStartsWith(("text",), "ae"), False),
        (EqualTo(("p",), 3), True),
        (EqualTo(("p",), 4), False),
        (IsNull(("p",)), False),
        (EqualTo(("nobody",), 3), True),
        (EqualTo(("seq", "inner"), 1), True),
        (Not(EqualTo(("seq",), 5)), True),
    ],
)
def test_what_the_statistics_prove(condition, kept):
    assert may_hold(FILE, [condition]) is kept
