"""``pelton tables maintain`` as a user runs it."""

import json

import pytest

from pelton.cli.__main__ import main
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.places import place
from tests.spark.tables_help import sequences, write_of


@pytest.fixture
def table(tmp_path):
    where = place(tmp_path / "orders")
    for number in range(5):
        Tables().commit(where, write_of(where, [number]))
    return where


def test_tables_are_maintained(table, capsys):
    assert main(["tables", "maintain", table.uri, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "5 into 1" in out
    assert "dry run" in out
    assert main(["tables", "maintain", table.uri]) == 0
    assert "5 -> 1" in capsys.readouterr().out
    assert sequences(table) == [0, 1, 2, 3, 4]


def test_json_and_one_table_that_is_not_there(table, tmp_path, capsys):
    status = main(["tables", "maintain", str(tmp_path / "none"), table.uri, "--json"])
    reports = json.loads(capsys.readouterr().out)
    assert status == 1
    assert [report["table"] for report in reports] == [table.uri, str(tmp_path / "none")]
    assert reports[0]["compacted"] == 5
    assert "there is no table" in reports[1]["error"]


@pytest.mark.parametrize(
    ("status", "arguments", "wanted"),
    [
        (2, ["--retention", "10m"], "1h or more"),
        (2, ["--target-size", "0"], "1 byte or more"),
        (2, ["--storage", "region"], "NAME=VALUE"),
        (1, [], "none"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, status, arguments, wanted):
    assert main(["tables", "maintain", str(tmp_path / "none"), *arguments]) == status
    err = capsys.readouterr().err
    assert wanted in err
    assert err.count("\n") == 1
