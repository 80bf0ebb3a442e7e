"""Every option that describes a stream, consumer or bucket has an effect on what is made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest

from pelton.cli.server.reporting import compacted
from tests.cli.terminal import Terminal
from tests.cli.test_command_tree import found

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

# option -> words that follow it; other options that it needs
STREAM: dict[str, tuple[str, ...]] = {
    "--subjects": ("b.>",),
    "--description": ("text",),
    "--storage": ("memory",),
    "--compression": ("s2",),
    "--replicas": ("3",),
    "--tag": ("fast",),
    "--tags": ("fast",),
    "--cluster": ("east",),
    "--no-ack": (),
    "--retention": ("work",),
    "--discard": ("new",),
    "--discard-per-subject": ("--max-msgs-per-subject", "1"),
    "--first-sequence": ("7",),
    "--max-age": ("1h",),
    "--max-bytes": ("1MB",),
    "--max-consumers": ("3",),
    "--max-msg-size": ("1KB",),
    "--max-msgs": ("9",),
    "--max-msgs-per-subject": ("2",),
    "--dupe-window": ("30s",),
    "--mirror": ("OTHER",),
    "--source": ("OTHER",),
    "--allow-batch": (),
    "--allow-fast": (),
    "--allow-counter": (),
    "--allow-rollup": (),
    "--deny-delete": (),
    "--deny-purge": (),
    "--no-allow-direct": (),
    "--allow-mirror-direct": (),
    "--allow-msg-ttl": (),
    "--allow-schedules": (),
    "--subject-del-markers-ttl": ("1m",),
    "--transform-source": ("a.>", "--transform-destination", "z.>"),
    "--metadata": ("k=v",),
    "--republish-source": ("a.>", "--republish-destination", "r.>"),
    "--republish-destination": ("r.>",),
    "--republish-headers": ("--republish-destination", "r.>"),
    "--limit-consumer-inactive": ("1m",),
    "--limit-consumer-max-pending": ("5",),
    "--persist-mode": ("async",),
}
CONSUMER: dict[str, tuple[str, ...]] = {
    "--ack": ("none",),
    "--bps": ("1000", "--target", "t"),
    "--backoff": ("linear",),
    "--backoff-steps": ("3", "--backoff", "linear"),
    "--backoff-min": ("5s", "--backoff", "linear"),
    "--backoff-max": ("9m", "--backoff", "linear"),
    "--deliver": ("new",),
    "--deliver-group": ("g", "--target", "t"),
    "--queue": ("g", "--target", "t"),
    "--description": ("text",),
    "--ephemeral": (),
    "--filter": ("a.b",),
    "--flow-control": ("--target", "t", "--heartbeat", "5s"),
    "--heartbeat": ("5s", "--target", "t"),
    "--headers-only": (),
    "--max-deliver": ("3",),
    "--max-outstanding": ("5",),
    "--max-pending": ("5",),
    "--max-waiting": ("9",),
    "--max-pull-batch": ("5",),
    "--max-pull-expire": ("5s",),
    "--max-pull-bytes": ("500",),
    "--replay": ("original",),
    "--sample": ("50",),
    "--target": ("t",),
    "--wait": ("9s",),
    "--inactive-threshold": ("9m",),
    "--inactive": ("9m",),
    "--memory": (),
    "--replicas": ("1",),
    "--metadata": ("k=v",),
    "--pause": ("1h",),
    "--pinned-groups": ("a",),
    "--pinned-ttl": ("9s", "--pinned-groups", "a"),
    "--overflow-groups": ("a",),
    "--prioritized-groups": ("a",),
}
# what says something else than the configuration, or is the usual value
OTHER = {
    *("--config", "--validate", "--output", "--defaults", "--json", "-j", "--format", "--ack"),
    *(
        "--transform-destination",
        "--no-mirror",
        "--no-transform",
        "--no-republish",
        "--allow-direct",
        "--pull",
    ),
}


def made(cli: Run, tmp_path: Path, *words: str) -> Any:
    """The configuration that a command would make."""
    path = tmp_path / "made.json"
    ran = cli(*words, "--defaults", "--output", path)
    assert (ran.status, ran.err) == (0, ""), words
    return json.loads(path.read_text())


def letters(path: str) -> set[str]:
    command = found(path)
    assert command is not None
    return {
        each
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for each in (*option.opts, *option.secondary_opts)
    }


def test_every_option_of_a_configuration_is_tried() -> None:
    def positive(known: set[str], tried: set[str]) -> set[str]:
        # --no-x beside --x: one of them says nothing new
        return {
            each
            for each in known - tried - OTHER
            if each.replace("--no-", "--") not in tried and f"--no-{each[2:]}" not in tried
        }

    assert not positive(letters("stream add"), set(STREAM))
    assert not positive(letters("consumer add"), set(CONSUMER))


@pytest.mark.parametrize("option", STREAM)
def test_an_option_of_a_stream(cli: Run, tmp_path: Path, option: str) -> None:
    words = (
        "stream",
        "add",
        "S",
        *(() if option in ("--subjects", "--mirror") else ("--subjects", "a.>")),
    )
    rest = STREAM[option]
    takes = bool(rest[:1]) and not rest[0].startswith("-")
    others = () if option == "--transform-source" else rest[1:] if takes else rest
    before = made(cli, tmp_path, *words, *others)
    assert made(cli, tmp_path, *words, option, *rest) != before


@pytest.mark.parametrize("option", CONSUMER)
def test_an_option_of_a_consumer(cli: Run, tmp_path: Path, option: str) -> None:
    words = ("consumer", "add", "S", "c")
    rest = CONSUMER[option]
    takes = bool(rest[:1]) and not rest[0].startswith("-")
    before = made(cli, tmp_path, *words, *(rest[1:] if takes else rest))
    assert made(cli, tmp_path, *words, option, *rest) != before


KV: dict[str, tuple[str, ...]] = {
    "--description": ("text",),
    "--history": ("5",),
    "--storage": ("memory",),
    "--ttl": ("1h",),
    "--marker-ttl": ("1m",),
    "--max-value-size": ("1KB",),
    "--max-bucket-size": ("1MB",),
    "--compress": (),
    "--metadata": ("k=v",),
    "--republish-source": ("a.>", "--republish-destination", "r.>"),
    "--republish-destination": ("r.>",),
    "--republish-headers": ("--republish-destination", "r.>"),
    "--source": ("OTHER",),
}
OBJECT: dict[str, tuple[str, ...]] = {
    "--description": ("text",),
    "--storage": ("memory",),
    "--ttl": ("1h",),
    "--max-bucket-size": ("1MB",),
    "--compress": (),
    "--metadata": ("k=v",),
}


@pytest.mark.parametrize(
    ("noun", "option"), [("kv", each) for each in KV] + [("object", each) for each in OBJECT]
)
def test_an_option_of_a_bucket(at: Run, unique: str, noun: str, option: str) -> None:
    rest = (KV if noun == "kv" else OBJECT)[option]

    def config(name: str, *words: str) -> Any:
        assert at(noun, "add", name, *words).status == 0
        prefix = "KV" if noun == "kv" else "OBJ"
        found = at("stream", "info", f"{prefix}_{name}", "--json").json["config"]
        return json.loads(json.dumps(found).replace(name, "NAME"))

    takes = bool(rest[:1]) and not rest[0].startswith("-")
    before = config(f"{unique}a", *(rest[1:] if takes else rest))
    assert config(f"{unique}b", option, *rest) != before


def test_no_name_is_asked_for_at_a_terminal(peer: ServerProcess) -> None:
    for words in (("stream", "info"), ("consumer", "ls"), ("stream", "state")):
        with Terminal("-s", peer.url, *words, "--no-select") as screen:
            assert screen.status() == 2
            assert "Missing argument" in screen.shown


def test_a_request_that_waits_for_no_answer(at: Run, unique: str) -> None:
    assert at("req", unique, "x").status == 1
    ran = at("req", unique, "x", "--no-wait")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a.lon.example.com", "b.par.example.com"], ["a.lon", "b.par"]),
        (["a.example.com", "example.com"], ["a.example", "example"]),
        (["a", "b"], ["a", "b"]),
        (["a.x", "b.x"], ["a", "b"]),
        (["a.x"], ["a.x"]),
        ([], []),
    ],
)
def test_names_of_servers_without_their_domain(names: list[str], short: list[str]) -> None:
    assert compacted(names) == short
