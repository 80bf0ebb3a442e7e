"""The command line beside that of the ``nats`` tool; cheat sheets."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from pelton.cli.cheat_sheets import CHEATS
from pelton.cli.commands import SECTIONS, TOP
from pelton.cli.session import Session
from pelton.cli.tree import pelton
from tests.cli.nats_commands import ABSENT, OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

ROOT = Path(__file__).parents[2]


def found(path: str) -> click.Command | None:
    """The command with the words of the path."""
    command: click.Command = pelton
    ctx = click.Context(pelton, info_name="pelton")
    for word in path.split():
        assert isinstance(command, click.Group), path
        inner = command.get_command(ctx, word)
        if inner is None:
            return None
        command = inner
        ctx = click.Context(command, parent=ctx, info_name=word)
    return command


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: path or "pelton")
def test_a_command_understands_the_options_of_the_nats_tool(path: str) -> None:
    command = found(path)
    assert command is not None, f"no command {path}"
    known = {
        name
        for each in command.params
        if isinstance(each, click.Option)
        for name in (*each.opts, *each.secondary_opts)
    }
    missing = [name for name in OPTIONS[path].split() if name not in known]
    assert not missing, f"pelton {path} does not understand {missing}"


@pytest.mark.parametrize("path", ABSENT)
def test_what_is_not_here_is_said_with_what_to_use(cli: Run, path: str) -> None:
    ran = cli(*path.split())
    assert (ran.status, ran.out) == (2, "")
    assert "No such command" in ran.err
    assert ABSENT[path] in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("server", "generate", "--source", "x", "y"), "templates in Go's language"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_option_that_is_not_here_is_refused_with_what_to_do(
    cli: Run, words: tuple[str, ...], says: str
) -> None:
    ran = cli(*words)
    assert (ran.status, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("topic", CHEATS)
def test_every_line_of_a_cheat_sheet_is_understood(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("orders.json", "config.jsonl", "report.pdf", "prod.creds", "user.nk", "audit.zip"):
        (tmp_path / name).write_text("{}")
    for name in ("backups/orders", "backups/all", "streams"):
        (tmp_path / name).mkdir(parents=True)
    for lines in CHEATS[topic].values():
        for line in lines:
            words = shlex.split(line)
            assert words[0] == "pelton"
            _understand(pelton, words[1:], None)


def _understand(command: click.Command, words: list[str], parent: click.Context | None) -> None:
    if command is pelton:
        ctx = command.make_context("pelton", words)
        given = dict(ctx.params)
        given.pop("form")
        ctx.obj = Session(**given)
    else:
        ctx = command.make_context(command.name, words, parent=parent)
    if isinstance(command, click.Group):
        rest = [*ctx._protected_args, *ctx.args]
        _, inner, left = command.resolve_command(ctx, rest)
        assert inner is not None
        _understand(inner, left, ctx)


def test_cheat_sheets(cli: Run) -> None:
    assert "bench" in cli("cheat").out
    assert cli("cheat", "--json").json == list(CHEATS)
    assert cli("cheat", "publish").out.startswith("# Publish a message")
    assert cli("cheat", "kv", "--json").json["Follow changes, list keys"]
    wrong = cli("cheat", "strem")
    assert (wrong.status, wrong.out) == (2, "")
    assert "did you mean 'stream'?" in wrong.err


def commands(group: click.Group, path: str = "") -> list[tuple[str, click.Command]]:
    """All commands below a group."""
    listed = []
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        inner = group.get_command(ctx, name)
        assert inner is not None
        if isinstance(inner, click.Group):
            listed += commands(inner, f"{path}{name} ")
        else:
            listed.append((path + name, inner))
    return listed


def test_the_help_text_names_every_command_in_one_part(cli: Run) -> None:
    listed = [name for names in SECTIONS.values() for name in names.split()]
    assert sorted(listed) == sorted(TOP)
    out = cli("--help").out
    assert all(f"{title}:\n" in out for title in SECTIONS)
    assert all(re.search(rf"^  {name} +\S", out, re.MULTILINE) for name in TOP)


def test_every_command_and_option_has_a_text() -> None:
    bare = []
    for path, command in commands(pelton):
        if not (command.help or "").strip():
            bare.append(path)
        bare += [
            f"{path} {each.opts}"
            for each in command.params
            if isinstance(each, click.Option) and not (each.help or each.hidden)
        ]
    assert not bare


def test_help_loads_no_client() -> None:
    """What makes the help text slow is what is loaded for it."""
    code = (
        "import sys; from pelton.cli.__main__ import main; main(['--help']);"
        "print([n for n in ('asyncio', 'rich', 'pelton.client', 'pelton.server', 'duckdb',"
        " 'msgspec', 'ssl') if n in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("str edit", "  pelton stream edit ORDERS -i"),
        ("auth op add", "  pelton auth operator add acme"),
        ("ctx save", "context add prod --select"),
    ],
)
def test_a_help_text_shows_lines_to_copy(cli: Run, words: str, line: str) -> None:
    text = cli(*words.split(), "--help").out
    assert line in text.partition("\nExamples:\n")[2]


def test_a_help_text_has_one_set_of_examples_and_a_group_its_cheat_sheet(cli: Run) -> None:
    assert "Examples:" not in cli("sql", "--help").out
    assert cli("kv", "--help").out.endswith("\npelton cheat kv shows lines to copy.\n")
