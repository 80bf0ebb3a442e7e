"""``pelton consumer``: add, edit, copy, pause, resume, reset; report, find, graph; next, sub."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest

from pelton.cli.consumers.fields import beginning, moment_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]


@pytest.fixture
def stream(at: Run, unique: str) -> str:
    """A stream with four messages."""
    assert at("stream", "add", unique, "--subjects", f"{unique}.>").status == 0
    for index, body in enumerate(("one", "two", "three", "four")):
        assert at("pub", "-J", f"{unique}.{'ab'[index % 2]}", body).status == 0
    return unique


EVERY_OPTION: dict[str, dict[str, Any]] = {
    "--description d": {"description": "d"},
    "--ack all --wait 10s": {"ack_policy": "all", "ack_wait": 10_000_000_000},
    "--max-deliver 4 --max-pending 5": {"max_deliver": 4, "max_ack_pending": 5},
    "--max-waiting 9": {"max_waiting": 9},
    "--max-pull-batch 7 --max-pull-expire 1m --max-pull-bytes 1k": {
        "max_batch": 7,
        "max_expires": 60_000_000_000,
        "max_bytes": 1024,
    },
    "--deliver new": {"deliver_policy": "new"},
    "--deliver 3": {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
    "--deliver 1h": {"deliver_policy": "by_start_time"},
    "--target t.x --deliver-group g": {"deliver_subject": "t.x", "deliver_group": "g"},
    "--target t.x --heartbeat 5s --flow-control": {
        "idle_heartbeat": 5_000_000_000,
        "flow_control": True,
    },
    "--target t.x --bps 1000": {"rate_limit_bps": 1000},
    "--headers-only --replay original": {"headers_only": True, "replay_policy": "original"},
    "--sample 30": {"sample_freq": "30"},
    "--backoff linear --backoff-steps 3 --backoff-min 1s --backoff-max 4s --max-deliver 5": {
        "backoff": [1_000_000_000, 2_000_000_000, 3_000_000_000],
        "max_deliver": 5,
    },
    # the nats command ends one step before --backoff-max, and limits the deliveries
    "--pull --backoff linear --backoff-steps 3 --backoff-min 1s --backoff-max 5s --defaults": {
        "backoff": [1_000_000_000, 2_333_333_333, 3_666_666_666],
        "max_deliver": 4,
        "ack_policy": "explicit",
    },
    "--target t.x --deliver all --defaults": {"ack_policy": "none", "deliver_subject": "t.x"},
    "--target t.x --ack explicit": {"ack_policy": "explicit"},
    "--pull --deliver subject --defaults": {
        "deliver_policy": "last_per_subject",
        "filter_subject": ">",
    },
    "--metadata a:b=c --metadata d=e:f": {"metadata": {"a": "b=c", "d": "e:f"}},
    "--inactive-threshold 1h --memory": {
        "inactive_threshold": 3_600_000_000_000,
        "mem_storage": True,
    },
    "--pinned-groups a --pinned-ttl 1m": {
        "priority_groups": ["a"],
        "priority_policy": "pinned_client",
    },
    "--overflow-groups a": {"priority_policy": "overflow"},
}


@pytest.mark.parametrize("options", EVERY_OPTION)
def test_every_option_reaches_the_server(at: Run, stream: str, options: str) -> None:
    ran = at("consumer", "add", stream, "c", *options.split())
    assert ran.status == 0, ran.err
    found = at("consumer", "info", stream, "c", "-j").json["config"]
    own = {n: v for n, v in found.get("metadata", {}).items() if not n.startswith("_nats")}
    found["metadata"] = own
    assert {name: found[name] for name in EVERY_OPTION[options]} == EVERY_OPTION[options]


def test_an_edit_shows_what_it_changes(at: Run, stream: str) -> None:
    for name in ("c1", "c2", "other"):
        assert at("consumer", "add", stream, name).status == 0
    edit = ("consumer", "edit", stream, "c*", "--max-pending", 5)
    assert at(*edit, "--dry-run").status == 1
    assert at(*edit, stdin=b"n\n").status == 130
    changed = at(*edit, "-f", "-j").json
    assert [(each["name"], each["config"]["max_ack_pending"]) for each in changed] == [
        ("c1", 5),
        ("c2", 5),
    ]
    assert at(*edit, "-f").out == "no difference in configuration\n"
    assert at("consumer", "edit", stream, "nobody*", "-f", "--wait", "1s").status == 1


def test_a_consumer_out_of_a_file_and_a_copy(at: Run, stream: str, tmp_path: Path) -> None:
    assert at("consumer", "add", stream, "c", "--filter", f"{stream}.a", "--wait", "7s").status == 0
    file = tmp_path / "c.json"
    file.write_text(at("consumer", "info", stream, "c", "-j").out)
    again = at("consumer", "add", stream, "d", "--config", file, "--wait", "9s", "-j").json
    assert (again["name"], again["config"]["ack_wait"]) == ("d", 9_000_000_000)
    assert again["config"]["filter_subject"] == f"{stream}.a"
    copied = at("consumer", "cp", stream, "c", "e", "--description", "copy", "-j").json
    assert (copied["config"]["durable_name"], copied["config"]["description"]) == ("e", "copy")
    out = tmp_path / "out.json"
    assert at("consumer", "add", stream, "f", "--output", out).status == 0
    assert json.loads(out.read_text())["durable_name"] == "f"
    assert at("consumer", "ls", stream, "-n").out.split() == ["c", "d", "e"]


def test_pause_resume_reset_unpin(at: Run, stream: str) -> None:
    assert at("consumer", "add", stream, "c").status == 0
    assert at("consumer", "pause", stream, "c", "1h", "-j").json["paused"] is True
    assert "Paused: for " in at("consumer", "state", stream, "c").out
    assert at("consumer", "next", stream, "c", "--wait", "50ms").status == 1
    assert at("consumer", "resume", stream, "c").out == "consumer c delivers\n"
    assert at("consumer", "pause", stream, "c", "some day").status == 2
    assert at("consumer", "next", stream, "c", "-n", 4, "--raw").out.split()[0] == "one"
    assert at("consumer", "reset", stream, "c", "--sequence", 3, "-f").status == 0
    assert at("consumer", "next", stream, "c", "--raw").out == "three\n"
    assert at("consumer", "unpin", stream, "c", "g", "-f").status == 1  # it has no groups
    assert at("consumer", "cluster", "step-down", stream, "c").status == 1


def test_next_refuses_and_sub_goes_on(at: Run, stream: str) -> None:
    assert at("consumer", "add", stream, "c").status == 0
    assert at("consumer", "next", stream, "c", "--nak", "--raw").out == "one\n"
    (again,) = at("consumer", "next", stream, "c", "--term", "-j").lines
    assert (again["data"], again["deliveries"]) == ("one", 2)
    assert at("consumer", "sub", stream, "c", "-n", 3, "-r").out == "two\nthree\nfour\n"
    assert at("consumer", "sub", stream, "c", "--wait", "100ms", "-r") == (0, "", "")
    assert at("consumer", "state", stream, "c", "-j").json["num_ack_pending"] == 0
    push = ("consumer", "add", stream, "p", "--target", f"{stream}p", "--deliver-group", "g")
    assert at(*push).status == 0
    assert at("consumer", "sub", stream, "p", "-n", 2, "-r").out == "one\ntwo\n"


def test_reports_and_searches(at: Run, stream: str) -> None:
    assert at("consumer", "add", stream, "pull").status == 0
    assert at("consumer", "add", stream, "push", "--target", "t.t").status == 0
    assert at("consumer", "next", stream, "pull", "--no-ack").status == 0
    rows = {line.split()[0]: line for line in at("consumer", "report", stream).out.splitlines()}
    assert "75%" in rows["pull"]
    find = ("consumer", "find", stream)  # in a pipe: names
    assert at(*find, "--push").out == "push\n"
    assert at(*find, "--push", "--invert").out == "pull\n"
    assert at(*find, "--ack-pending", 2).out == "pull\n"  # as nats: without those that have none
    assert at(*find, "--pending", 4).out == "pull\n"
    assert at(*find, "--bound").status == 1
    assert at("consumer", "graph", stream, "pull", "--interval", "1ms", "--count", 1).out == (
        "delivered 0/s  acknowledged 0/s\n"
    )


def test_times_and_places() -> None:
    hour = 3_600_000_000_000
    assert moment_of("1h", 10 * hour) == 11 * hour
    assert moment_of("1h", 10 * hour, back=True) == 9 * hour
    texts = ("1970-01-01 01:00:00", "1970-01-01T01:00:00Z")
    assert {moment_of(text, 0) for text in texts} == {hour}
    assert beginning("7", 0)["opt_start_seq"] == 7
    assert beginning("subject", 0)["deliver_policy"] == "last_per_subject"
    for text in ("0", "never", "1970-01-41"):
        with pytest.raises(click.UsageError):
            beginning(text, 0)
