"""``pelton stream``: add, edit, copy, seal; report, subjects, gaps, graph; get, view, rmm."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.streams.graphs import bars
from pelton.cli.streams.reports import runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]


@pytest.fixture
def stream(at: Run, unique: str) -> str:
    """A stream with six messages of three subjects."""
    assert at("stream", "add", unique, "--subjects", f"{unique}.>").status == 0
    for index, body in enumerate(("one", "two", "three", '{"a": 4}', "five", "six")):
        assert at("pub", "-J", f"{unique}.{'abc'[index % 3]}", body).status == 0
    return unique


def config_of(at: Run, name: str) -> dict[str, Any]:
    found: dict[str, Any] = at("stream", "info", name, "-j").json["config"]
    return found


EVERY_OPTION = {
    "--description d": ("description", "d"),
    "--storage m": ("storage", "memory"),
    "--retention work": ("retention", "workqueue"),
    "--discard new": ("discard", "new"),
    "--max-age 1h": ("max_age", 3_600_000_000_000),
    "--max-bytes 1MB": ("max_bytes", 2**20),
    "--max-consumers 3": ("max_consumers", 3),
    "--max-msg-size 1k": ("max_msg_size", 1024),
    "--max-msgs 9": ("max_msgs", 9),
    "--max-msgs-per-subject 2": ("max_msgs_per_subject", 2),
    "--dupe-window 30s": ("duplicate_window", 30_000_000_000),
    "--no-ack": ("no_ack", True),
    "--compression s2": ("compression", "s2"),
    "--first-sequence 10": ("first_seq", 10),
    "--allow-batch": ("allow_atomic", True),
    "--allow-fast": ("allow_batched", True),
    "--allow-rollup": ("allow_rollup_hdrs", True),
    "--deny-delete": ("deny_delete", True),
    "--deny-purge": ("deny_purge", True),
    "--no-allow-direct": ("allow_direct", False),
    "--allow-msg-ttl": ("allow_msg_ttl", True),
    "--allow-schedules": ("allow_msg_schedules", True),
    "--persist-mode async": ("persist_mode", "async"),
    "--limit-consumer-max-pending 5": ("consumer_limits", {"max_ack_pending": 5}),
    "--limit-consumer-inactive 1m": ("consumer_limits", {"inactive_threshold": 60_000_000_000}),
    "--transform-source NAME.> --transform-destination t.>": (
        "subject_transform",
        {"src": "NAME.>", "dest": "t.>"},
    ),
    "--republish-source NAME.> --republish-destination r.> --republish-headers": (
        "republish",
        {"src": "NAME.>", "dest": "r.>", "headers_only": True},
    ),
}


@pytest.mark.parametrize("options", EVERY_OPTION)
def test_every_option_reaches_the_server(at: Run, unique: str, options: str) -> None:
    words = options.replace("NAME", unique).split()
    ran = at("stream", "add", unique, "--subjects", f"{unique}.>", *words)
    assert ran.status == 0, ran.err
    field, expected = EVERY_OPTION[options]
    text = json.dumps(expected).replace("NAME", unique)
    assert config_of(at, unique)[field] == json.loads(text)
    assert at("stream", "rm", "-f", unique).status == 0


def test_a_stream_out_of_a_file_and_back(at: Run, stream: str, tmp_path: Path) -> None:
    file, other = tmp_path / "info.json", tmp_path / "config.json"
    file.write_text(at("stream", "info", stream, "-j").out)
    words = ("--subjects", f"{stream}.other", "--config", file)
    assert at("stream", "add", f"{stream}B", *words, "--output", other).status == 0
    assert json.loads(other.read_text())["subjects"] == [f"{stream}.other"]
    assert at("stream", "add", f"{stream}B", *words, "--validate").status == 0
    assert at("stream", "info", f"{stream}B").status == 1
    assert at("stream", "add", "--config", other).status == 1  # its subjects are taken
    assert at("stream", "rm", "-f", stream).status == 0
    assert at("stream", "add", "--config", other).status == 0
    file.write_text(
        '{"name": "X", // comments and units are allowed\n"subjects": ["x"], "max_age": "1d",}'
    )
    ran = at("stream", "add", "--config", file, "--output", other)
    assert (ran.status, json.loads(other.read_text())["max_age"]) == (0, 86_400_000_000_000)
    file.write_text('{"name": "X", "subject": ["x"]}')
    ran = at("stream", "add", "--config", file)
    said = f'pelton: {file}:1:15: unknown key "subject"; did you mean "subjects"?\n'
    assert (ran.status, ran.err) == (2, said)
    file.write_text('{"name": "X", "max_age": "soon"}')
    ran = at("stream", "add", "--config", file)
    assert (ran.status, ran.err.count("\n")) == (2, 1)


def test_an_edit_shows_what_it_changes(at: Run, stream: str) -> None:
    edit = ("stream", "edit", stream, "--max-age", "1h", "--metadata", "team=a")
    dry = at(*edit, "--dry-run")
    assert (dry.status, config_of(at, stream)["max_age"]) == (1, 0)
    assert "max_age" in dry.out
    assert at(*edit, stdin=b"n\n").status == 130
    nobody = at(*edit, stdin=b"")
    assert (nobody.status, nobody.err.count("\n")) == (2, 1)
    assert "--force" in nobody.err
    assert config_of(at, stream)["max_age"] == 0
    assert at(*edit, stdin=b"y\n").status == 0
    found = config_of(at, stream)
    assert (found["max_age"], found["metadata"]["team"]) == (3_600_000_000_000, "a")
    again = at(*edit, "-f")
    assert (again.status, again.out) == (0, "no difference in configuration\n")
    assert at("stream", "edit", stream, "-f").status == 2
    assert at("stream", "edit", f"{stream}X*", "-f", "--max-age", "1h").status == 1


def test_many_streams_are_edited_with_one_plan(at: Run, unique: str) -> None:
    names = [f"{unique}{letter}" for letter in "ABC"]
    for name in names:
        assert at("stream", "add", name, "--subjects", f"{name}.>").status == 0
    assert at("stream", "edit", names[0], "--max-msgs", 7, "-f").status == 0
    ran = at("stream", "edit", f"{unique}*", "--max-msgs", 7, "--json", "--force")
    assert [each["config"]["max_msgs"] for each in ran.json] == [7, 7]
    # one that cannot be read stops all before anything changes
    ran = at("stream", "edit", f"{unique}*", f"{unique}Z", "--max-msgs", 8, "-f")
    assert ran.status == 1
    assert {config_of(at, name)["max_msgs"] for name in names} == {7}


def test_a_copy_has_no_messages(at: Run, stream: str) -> None:
    copied = at("stream", "cp", stream, f"{stream}C", "--subjects", "x.y." + stream, "-j").json
    assert (copied["config"]["name"], copied["state"]["messages"]) == (f"{stream}C", 0)
    assert copied["config"]["subjects"] == [f"x.y.{stream}"]


def test_a_sealed_stream_takes_nothing(at: Run, stream: str) -> None:
    assert at("stream", "seal", stream, stdin=b"no\n").status == 130
    assert at("stream", "seal", "-f", stream).status == 0
    assert at("pub", "-J", f"{stream}.a", "x").status == 1


def test_subjects_and_reports(at: Run, stream: str) -> None:
    assert at("stream", "subj", stream, "-j").json == {f"{stream}.{each}": 2 for each in "abc"}
    assert at("stream", "subjects", stream, f"{stream}.b", "--names").out == f"{stream}.b\n"
    names = at("stream", "subjects", stream, "--sort", "name", "-R", "--names").out.split()
    assert names == [f"{stream}.{each}" for each in "cba"]
    _, row = at("stream", "report", "--subject", f"{stream}.a").out.splitlines()
    assert row.split()[:4] == [stream, "file", "0", "6"]
    whole = at("stream", "state", stream, "-j").json
    assert (whole["state"]["messages"], whole["config"]["name"]) == (6, stream)
    assert at("stream", "info", stream, "--state").out.startswith("State")
    assert at("stream", "graph", stream, "--interval", "1ms", "--count", 1).out == (
        "stored 0/s  removed 0/s\n"
    )


def test_a_report_draws_what_copies_what(at: Run, stream: str, tmp_path: Path) -> None:
    assert at("stream", "add", f"{stream}M", "--mirror", stream).status == 0
    ran = at("stream", "report", "--dot", tmp_path / "graph.dot")
    assert "Origin" in ran.out
    assert f'"{stream}" -> "{stream}M"' in (tmp_path / "graph.dot").read_text()


def test_single_messages(at: Run, stream: str) -> None:
    assert at("stream", "rmm", "-f", stream, 2).status == 0
    assert at("stream", "rmm", "-f", stream, 3).status == 0
    assert at("stream", "rmm", "-f", stream, 5).status == 0
    assert at("stream", "gaps", stream, "-j").json == [[2, 3], [5, 5]]
    assert [each["seq"] for each in at("stream", "view", stream, "-j").lines] == [1, 4, 6]
    assert at("stream", "view", stream, 1, "--raw").out == "one\n"
    assert at("stream", "view", stream, "--id", 5, "--raw").out == "six\n"
    assert at("stream", "view", stream, "--subject", "none.at.all").status == 1
    assert at("stream", "get", stream, "-S", f"{stream}.a", "--decode", "json", "-j").json[
        "value"
    ] == {"a": 4}
    assert at("stream", "get", stream, 1, "--translate", "tr a-z A-Z", "-r").out == "ONE"
    assert "not decoded" in at("stream", "get", stream, 1, "--decode", "json").out


def test_a_cluster_is_needed_to_hand_over(at: Run, stream: str) -> None:
    ran = at("stream", "cluster", "step-down", stream)
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert at("stream", "cluster", "pr", "-f", stream, "other").status == 1


@given(st.sets(st.integers(1, 60)))
def test_runs_are_the_sequences(numbers: set[int]) -> None:
    found = list(runs(sorted(numbers)))
    assert {each for first, last in found for each in range(first, last + 1)} == numbers
    assert all(a[1] + 1 < b[0] for a, b in pairwise(found))


@given(st.lists(st.floats(0, 1e9)))
def test_each_rate_has_a_bar(rates: list[float]) -> None:
    drawn = bars(rates)
    assert len(drawn) == len(rates)
    if max(rates, default=0) > 0:
        assert drawn[rates.index(max(rates))] == "█"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("-1", 0),
        ("0s", 0),
        ("90s", 90),
        ("1d12h", 129_600),
        ("1.5d", 129_600),
        ("12h1d", 129_600),
        ("2w", 1_209_600),
        ("1M", 2_592_000),
        ("1y1d", 31_622_400),
        ("500ms", 0.5),
    ],
)
def test_an_age_is_said_in_any_unit(cli: Run, tmp_path: Path, given: str, seconds: float) -> None:
    file = tmp_path / "config.json"
    words = ("X", "--subjects", "x", "--defaults", "--output", file)
    assert cli("stream", "add", *words, f"--max-age={given}").status == 0
    assert json.loads(file.read_text())["max_age"] == seconds * 1_000_000_000


@pytest.mark.parametrize("given", ["-2s", "1d-1h", "1", "d", "1dd", "y1", "1.5.d"])
def test_no_age_is_guessed(cli: Run, given: str) -> None:
    ran = cli("stream", "add", "X", "--subjects", "x", "--defaults", f"--max-age={given}")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
