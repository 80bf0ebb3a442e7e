"""Options of all commands behind a verb, and options of a verb before it; leaders that are balanced."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.placement import MARK, take_connection_options
from pelton.cli.streams.balancing import Led, moves
from pelton.cli.tree import pelton, servers
from tests.cli.test_command_tree import commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran, WithSystem
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

NOWHERE = "nats://127.0.0.1:1"


def test_how_to_connect_stands_before_or_behind_the_verb(
    cli: Run, peer: ServerProcess, unique: str
) -> None:
    for words in (
        ("-s", peer.url, "stream", "ls", "--names"),
        ("stream", "ls", "--names", "-s", peer.url),
        ("stream", "--names", "ls", f"--server={peer.url}"),
        ("stream", "-s", peer.url, "ls", "-n", "--timeout", "9s", "--connection-name", "x"),
        ("-s", NOWHERE, "stream", "ls", "-n", "--server", peer.url),
    ):
        ran = cli(*words)
        assert (ran.status, ran.err) == (0, ""), words
    assert cli("pub", unique, "text", "-s", peer.url, "--no-context").status == 0
    ran = cli("stream", "ls", "--context", "none")
    assert (ran.status, ran.out) == (1, "")
    assert "there is no context 'none'" in ran.err
    ran = cli("rtt", "--timeout", "soon", "-s", peer.url)
    assert ran.status == 2
    assert '"soon" is not a duration' in ran.err
    traced = cli("stream", "ls", "-s", peer.url, "--trace")
    assert ">>> CONNECT" in traced.err
    ran = cli("stream", "ls", "--creds", "/nowhere/x.creds", "-s", peer.url)
    assert ran.status == 1
    assert "/nowhere/x.creds" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("stream", "--names", "ls"),
        ("stream", "-n", "-a", "ls"),
        ("stream", "-a", "info", "NAME"),
        ("stream", "--subject", "ls", "ls"),
        ("consumer", "-a", "--json", "ls", "NAME"),
        ("kv", "--names", "ls"),
        ("context", "--names", "ls"),
        ("server", "check", "--format", "json", "connection"),
        ("errors", "--reverse", "ls"),
    ],
    ids=lambda words: " ".join(words),
)
def test_options_of_a_verb_stand_before_it(at: Run, unique: str, words: tuple[str, ...]) -> None:
    assert at("stream", "add", unique, "--defaults", "--subjects", f"{unique}.>").status == 0
    ran = at(*(each.replace("NAME", unique) for each in words))
    assert (ran.status, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("stream", "--nonsense", "ls"), "No such option '--nonsense'; see pelton stream --help"),
        (("stream", "--config", "ls"), "No such option '--config'; see pelton stream --help"),
        (("stream", "--names=yes", "ls"), "No such option '--names'"),
        (("stream", "--", "--names", "ls"), "No such command '--names'"),
        (("stream", "--subject", "a", "lst"), "No such option '--subject'"),
        (("bench", "--clients", "2"), "No such option '--clients'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_no_verb_understands(cli: Run, words: tuple[str, ...], says: str) -> None:
    ran = cli(*words)
    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_options_of_groups_of_servers(bertha: WithSystem, cli: Run) -> None:
    for words in (
        ("server", "report", "--reverse", "accounts"),
        ("server", "report", "-R", "--sort", "cid", "connections"),
        ("server", "request", "--limit", "3", "--name", "bertha", "connections"),
        ("server", "account", "--json", "info", "A"),
    ):
        ran = cli(*words, "-s", bertha.system)
        assert (ran.status, ran.err) == (0, ""), words


def test_no_command_loses_an_option_to_a_copy() -> None:
    """A copy is added only for letters that the command has not, and is seen by nobody."""
    for path, command in commands(pelton):
        if path.split()[0] in ("server", "run") and path.count(" ") == 0:
            continue
        take_connection_options(command, pelton)
        letters = Counter(
            each
            for option in command.params
            if isinstance(option, click.Option)
            for each in (*option.opts, *option.secondary_opts)
        )
        assert not [each for each, count in letters.items() if count > 1], path
        copies = [each for each in command.params if (each.name or "").startswith(MARK)]
        assert all(isinstance(each, click.Option) and each.hidden for each in copies), path
    assert servers.name == "server"


SERVERS = ("n1", "n2", "n3", "n4", "n5")


@st.composite
def _led(draw: st.DrawFn) -> list[Led]:
    found = []
    for index in range(draw(st.integers(0, 14))):
        peers = draw(st.permutations(SERVERS))[: draw(st.integers(1, 5))]
        found.append(Led(f"s{index}", "c", peers[0], tuple(peers[1:])))
    return found


@given(_led())
def test_balanced_leaders_cannot_be_more_even(everything: list[Led]) -> None:
    """Beside an exhaustive look for a better single move or chain: no server leads two more than one it can reach."""
    moved = dict(moves(everything))
    after = {each: moved.get(each, each.leader) for each in everything}
    for each, server in after.items():
        assert server in (each.leader, *each.others)
    assert all(server != each.leader for each, server in moved.items())
    counts = Counter(after.values())
    known = {name for each in everything for name in (each.leader, *each.others)}
    for begin in known:
        reached, waiting = {begin}, [begin]
        while waiting:
            server = waiting.pop()
            for each, leader in after.items():
                new = {each.leader, *each.others} - reached if leader == server else set()
                reached |= new
                waiting += new
        assert all(counts[begin] - counts[other] <= 1 for other in reached)


def test_even_leaders_stay() -> None:
    led = [Led(f"s{n}", "c", SERVERS[n % 3], SERVERS[:3]) for n in range(9)]
    assert moves(led) == []
    uneven = [Led(f"s{n}", "c", "n1", ("n2", "n3")) for n in range(9)]
    assert Counter(target for _, target in moves(uneven)) == {"n2": 3, "n3": 3}


def test_nothing_to_balance(at: Run, unique: str) -> None:
    assert at("stream", "add", unique, "--defaults", "--subjects", f"{unique}.>").status == 0
    for words in (("stream", "cluster", "balance"), ("consumer", "cluster", "balance", unique)):
        ran = at(*words, "--json")
        assert ran.status == 1
        assert "has copies on several servers" in json.loads(ran.err)["error"]["message"]
