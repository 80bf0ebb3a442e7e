"""Tests of pipeline files: how they are read, and how rows are compared. No JVM."""

import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.pipeline.description.cases import CaseError, cases_of, rows_in
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.description.reading import load, read
from pelton.pipeline.testing.comparing import ADDITIONAL, DIFFERENT, MISSING, compare, equal
from pelton.pipeline.testing.reporting import lines_of

FILE = """\
pipeline: shop
sources:
  raw: {format: jetstream, stream: ORDERS, servers: "nats://127.0.0.1:9"}
steps:
  checked: {from: raw, expect: {some: length(data) > 0}}
sinks:
  table: {from: checked, format: jetstream_delta, path: table}
  bad: {from: checked.rejected, format: jetstream_delta, path: bad}
"""
GOOD = """\
tests:
  two rows:
    given:
      raw:
        - {seq: 7, data: {id: 1, amount: 12.50, code: "12.50", none: , words: [a, true]}}
        - not json
    expect: {checked: [{seq: 7}], checked.rejected: 0, table: {file: fixtures/t.jsonl}}
    ordered: true
  batches: {given: [{raw: []}, {raw: {file: r.jsonl}}], expect: {bad: []}}
"""


def test_values_are_those_that_are_written():
    pipeline = read(FILE + GOOD, Path("/x/shop.yaml"), environment={})
    rows, batches = pipeline.cases
    assert rows.ordered
    first, second = rows.given[0]["raw"].items
    assert first.value["data"] == {
        "id": 1,
        "amount": Decimal("12.50"),
        "code": "12.50",
        "none": None,
        "words": ["a", True],
    }
    assert (first.place, second.value) == ("/x/shop.yaml:13", "not json")
    assert rows.expect["checked.rejected"].count == 0
    assert rows.expect["table"].file == Path("/x/fixtures/t.jsonl")
    assert [list(batch) for batch in batches.given] == [["raw"], ["raw"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tests: []", "tests must have tests by name, or files"),
        ("tests: /etc/x.yaml", "/etc/x.yaml must be relative to this file"),
        ("tests: {a: x}", "test a: must be keys and values (given, expect)"),
        ("tests: {a: {given: {raw: []}, expect: {}}}", "expect must have rows by step or sink"),
        ("tests: {a: {expect: {table: 1}}}", "given must have rows by source"),
        (
            "tests: {a: {given: {row: []}, expect: {bad: 1}}}",
            "no source or step row; did you mean raw",
        ),
        ("tests: {a: {given: {raw: []}, expect: {bat: 1}}}", "sink bat; did you mean bad?"),
        ("tests: {a: {given: {raw: []}, expect: {raw.rejected: 1}}}", "raw has no expect"),
        ("tests: {a: {given: {raw: []}, expect: {bad: x}}}", "bad: must be a list of rows"),
        ("tests: {a: {given: {raw: [[1]]}, expect: {bad: 1}}}", "a row is names and values"),
        (
            "tests: {a: {given: {raw: {fil: x}}, expect: {bad: 1}}}",
            "unknown key 'fil'; did you mean file?",
        ),
        ("tests: {a: {given: {raw: {}}, expect: {bad: 1}}}", "give rows or file"),
        ("tests: {a: {gven: {}, given: {raw: []}, expect: {bad: 1}}}", "unknown key 'gven'"),
    ],
)
def test_what_is_wrong_has_its_line(text, said):
    with pytest.raises(PipelineError) as raised:
        read(FILE + text, Path("/x/shop.yaml"), environment={})
    lines = str(raised.value).splitlines()
    assert any(said in line for line in lines), lines
    assert all(line.startswith("/x/shop.yaml:") for line in lines)


def test_tests_in_other_files(tmp_path):
    (tmp_path / "shop.yaml").write_text(FILE + "tests: [tests/*.yaml]\n")
    pipeline = load(tmp_path / "shop.yaml")
    assert cases_of(pipeline, {}) == ()
    (tmp_path / "tests").mkdir()
    one, two = (tmp_path / "tests" / name for name in ("a.yaml", "b.yaml"))
    one.write_text("one: {given: {raw: {file: rows.jsonl}}, expect: {table: 2}}\n")
    two.write_text("two: {given: {raw: []}, expect: {table: 0}}\n")
    found = cases_of(pipeline, {})
    assert [case.name for case in found] == ["one", "two"]
    rows = found[0].given[0]["raw"]
    with pytest.raises(CaseError, match=r"a\.yaml:1: cannot read .*rows\.jsonl: No such file"):
        rows_in(rows)
    (tmp_path / "tests" / "rows.jsonl").write_text('{"seq": 1, "data": {"a": 1.10}}\n\n"text"\n')
    assert [row.value for row in rows_in(rows)] == [
        {"seq": 1, "data": {"a": Decimal("1.10")}},
        "text",
    ]
    (tmp_path / "tests" / "rows.jsonl").write_text('{"seq": 1}\n{"seq"\n')
    with pytest.raises(CaseError, match=r"rows\.jsonl:2: this is not a line of JSON"):
        rows_in(rows)
    two.write_text("one: {given: {raw: []}, expect: {tabl: 0}}\n- x")
    with pytest.raises(PipelineError, match=r"b\.yaml:2: this is not YAML"):
        cases_of(pipeline, {})
    two.write_text("one: {given: {raw: []}, expect: {tabl: 0}}\n")
    with pytest.raises(PipelineError) as raised:
        cases_of(pipeline, {})
    assert "did you mean table?" in str(raised.value)
    assert "b.yaml:1: test one is in " in str(raised.value)


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        (Decimal("12.5"), Decimal("12.50"), True),
        (Decimal("0.3"), 0.1 + 0.2, True),
        (Decimal("0.1"), 0.10000000149011612, True),
        (Decimal("0.1"), 0.1001, False),
        (1234567890, 1234567891.0, False),
        (7, "7", False),
        ("7", 7, False),
        (1, True, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        ("NaN", float("nan"), True),
        ("-Infinity", float("-inf"), True),
        (1, float("inf"), False),
        ("2026-01-31T12:00:00Z", NOON, True),
        ("2026-01-31 13:00:00+01:00", NOON, True),
        ("2026-01-31 12:00", NOON, True),
        ("noon", NOON, False),
        (12, NOON, False),
        ("2026-01-31", date(2026, 1, 31), True),
        ("text", b"text", True),
        ({"id": 7}, b'{"id": 7, "more": 1}', True),
        ({"id": 7}, b"{", False),
        ({"id": 7}, '{"id": 8}', False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": ["x"]}, [("a", ["x"]), ("b", [])], True),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
    ],
)
def test_values_compare_as_their_author_means(expected, got, same):
    assert equal(expected, got) is same


ROW = st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.integers(0, 2)})
PART = st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), min_size=1)


@given(st.lists(PART, max_size=4), st.lists(ROW, max_size=4))
def test_rows_are_paired_if_any_order_pairs_them(expected, got):
    """A model by trying: rows are as expected if some order of the rows that were made is."""
    right = len(expected) == len(got) and any(
        all(all(row[name] == value for name, value in part.items()) for part, row in pairs)
        for pairs in (
            list(zip(expected, order, strict=True)) for order in itertools.permutations(got)
        )
    )
    found = compare("x", expected, got, ["a", "b"])
    assert (found is None) == right
    if found is not None:
        kinds = [row.kind for row in found.rows]
        assert len(expected) - kinds.count(MISSING) == len(got) - kinds.count(ADDITIONAL)


@given(st.lists(ROW, max_size=5), st.lists(ROW, max_size=5))
def test_in_order_each_row_has_its_place(expected, got):
    found = compare("x", expected, got, ["a", "b"], ordered=True)
    assert (found is None) == (expected == got)


def test_a_difference_is_a_table():
    got = [{"id": "7", "n": 1, "x": 0}, {"id": "8", "n": 2, "x": 0}, {"id": "9", "n": 9, "x": 0}]
    expected = [{"id": 7, "n": 1}, {"id": "8", "n": 3}, {"id": "6", "n": 6}]
    found = compare("checked", expected, got, ["id", "n", "x"])
    assert [row.kind for row in found.rows] == [DIFFERENT, DIFFERENT, MISSING, ADDITIONAL]
    assert list(lines_of(found)) == [
        "checked: 2 differ, 1 missing, 1 additional, 0 as expected",
        "              id     n",
        "  expected    »7«    1",
        "  got         »'7'«  1",
        "  expected    8      »3«",
        "  got         8      »2«",
        "  missing     6      6",
        "  additional  9      9",
    ]
    found = compare("checked", [{"ide": 7}], got, ["id", "n", "x"])
    assert list(lines_of(found)) == ["checked: there is no column ide; there are: id, n, x"]
