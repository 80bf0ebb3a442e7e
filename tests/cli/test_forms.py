"""Lists in every form: the same rows as a table, JSON, JSON lines, CSV and Markdown; and what is said to
a command line that nobody knows.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli import output
from pelton.cli.output import Figure, number, print_table, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2)))
def test_csv_gives_back_every_cell(rows: list[list[str]]) -> None:
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "form_in_use", lambda: "csv")
        patch.setattr(output.sys, "stdout", written)
        print_table(("One", "Two"), rows)
    read = list(csv.reader(io.StringIO(written.getvalue(), newline=""), strict=True))
    assert read == [["One", "Two"], *rows]


def test_numbers_in_csv_have_no_units() -> None:
    assert number(1234567) == "1,234,567"
    figure = size(3 * 2**20)
    assert isinstance(figure, Figure)
    assert (figure, figure.value) == ("3.0 MiB", 3 * 2**20)


def test_a_list_in_every_form(at: Run, unique: str) -> None:
    assert at("stream", "add", unique, "--subjects", f"{unique}.>").status == 0
    assert at("pub", "-J", f"{unique}.a", "x" * 2000).status == 0
    ls, report = (("stream", verb, "--subject", f"{unique}.a") for verb in ("ls", "report"))
    assert at("--json", *ls).json == at(*ls, "--format", "json").json == [unique]
    (one,), (other,) = at("--json", *report).json, at(*report, "--format", "json").json
    assert (one["config"], one["state"]) == (other["config"], other["state"])
    (line,) = at(*report, "--format", "jsonl").lines
    assert line["config"]["name"] == unique
    head, row = list(csv.reader(io.StringIO(at("--format", "csv", *ls).out)))
    assert (head[0], row[0]) == ("Name", unique)
    assert int(row[head.index("Size")]) == line["state"]["bytes"]
    head, rule, row = at(*ls, "--format", "md").out.splitlines()
    assert head.startswith("| Name | ")
    assert set(rule) <= set("|-:")
    assert row.startswith(f"| {unique} |")
    assert at("stream", "info", unique, "--format", "md").out.startswith("## Stream ")
    assert f"Subjects,{unique}.>" in at("stream", "info", unique, "--format", "csv").out
    assert at("stream", "rm", "-f", unique).status == 0


def test_the_environment_chooses_a_form(
    at: Run, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ls = ("stream", "ls", "--subject", unique)
    monkeypatch.setenv("LLMFORMAT", "1")
    assert at(*ls).out.startswith("| Name |")
    assert at(*ls, "--json").json == []  # a flag goes over the environment
    monkeypatch.delenv("LLMFORMAT")
    monkeypatch.setenv("NATS_TABLE_FORMAT", "csv")
    assert at(*ls).out.startswith("Name,")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("strem ls", "No such command 'strem'; did you mean 'stream'?"),
        ("stream lst", "did you mean 'ls'?"),
        ("stream remove", "No such command 'remove'"),
        ("consumer inf", "did you mean 'info'?"),
        ("stream ls --subjct x", "--subject"),
    ],
)
def test_the_nearest_command_is_named(cli: Run, line: str, text: str) -> None:
    ran = cli(*line.split())
    assert (ran.status, ran.out) == (2, "")
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_a_mistake_is_json_if_json_was_asked_for(cli: Run) -> None:
    for form in (("--format", "jsonl"), ("--format=json",)):
        assert cli(*form, "strem").err.startswith('{"error"')
    assert cli("--format", "csv", "strem").err.startswith("pelton: ")
