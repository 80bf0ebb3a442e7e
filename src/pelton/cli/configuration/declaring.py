"""The common part of the commands for configuration as code: options, declared files, the plan and its display."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.inputs import read_text_input
from pelton.cli.output import print_json
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.apply.model import Declared
    from pelton.apply.planning import Plan
    from pelton.apply.together import Together
    from pelton.cli.session import Session
    from pelton.client.sync.jetstream import JetStream

CHANGES = 2
_COLOURS = {"create": "green", "update": "yellow", "replace": "magenta", "delete": "red"}


_MISTAKES_SHOWN = 50


class Wrong(click.ClickException):
    """Mistakes of files, each on a separate line; of very many the first ones."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Print the lines."""
        found = self.message.splitlines()
        if (more := len(found) - _MISTAKES_SHOWN) > 0:
            found[_MISTAKES_SHOWN:] = [f"and {more:,} more mistake{'s' * (more > 1)}"]
        return tuple(found)


class WrongUsage(click.ClickException):
    """The command line is wrong."""

    exit_code = 1

    def __init__(self, mistake: click.UsageError) -> None:
        """Say what click says."""
        super().__init__(mistake.format_message())
        self.ctx = mistake.ctx


class Command(click.Command):
    """A command whose wrong usage ends with 1, because 2 means that there are changes."""

    def make_context(self, *given: Any, **extra: Any) -> click.Context:
        """Parse the command line."""
        try:
            return super().make_context(*given, **extra)
        except click.UsageError as mistake:
            raise WrongUsage(mistake) from None


FILES = click.argument("files", nargs=-1, required=True, metavar="FILE...")
VARIABLES = click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of Terraform files."
)
OWNER = click.option(
    "--owner", default="", help="Label what is declared: metadata managed-by is this name."
)
PRUNE = click.option(
    "--prune", is_flag=True, help="Delete resources with the owner's label that are not declared."
)


def planned(
    declared: Declared,
    jetstream: JetStream,
    owner: str,
    prune: bool,
    together: Together | None = None,
) -> Plan:
    """The changes that this server needs. Raises ClickException, PeltonError.

    ``together`` asks it several things at a time; None: one by one.
    """
    from pelton.apply.inspecting import inspect
    from pelton.apply.planning import plan as make
    from pelton.apply.together import one_by_one
    from pelton.cli.configuration.rules import ServerRules

    keys = [each.key for each in declared.entries]
    try:
        live = inspect(jetstream, keys, together=together or one_by_one)
        rules = ServerRules(jetstream, prune=prune)
        return make(declared, live, owner=owner, prune=prune, rules=rules)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def show(session: Session, found: Plan) -> None:
    """Print a plan."""
    from pelton.apply.showing import as_json, lines

    if session.as_json:
        print_json(as_json(found))
        return
    for line in lines(found):
        text = shown(line.text)
        colour = _COLOURS.get(line.style, "bright_red" if line.style == "refuse" else "")
        click.echo(click.style(text, fg=colour) if colour and sys.stdout.isatty() else text)


def warn(warnings: Iterable[object]) -> None:
    """Print warnings on stderr."""
    for each in warnings:
        click.echo(f"pelton: warning: {shown(str(each))}", err=True)


def declared_in(files: tuple[str, ...], variables: tuple[str, ...]) -> Declared:
    """The declarations of files. Raises ClickException with every mistake; warnings go to stderr."""
    from pelton.apply.model import ConfigurationError
    from pelton.apply.reading import checked, read

    given: dict[str, str] = {}
    for each in variables:
        name, sign, value = each.partition("=")
        if not sign:
            raise click.ClickException(f'--var "{each}": expected NAME=VALUE')
        given[name] = value
    try:
        declared = checked(read(_texts(files), given))
    except ConfigurationError as error:
        raise Wrong(str(error)) from None
    warn(declared.warnings)
    return declared


def _texts(files: tuple[str, ...]) -> list[Any]:
    """The files with their texts; a folder is all files in it that may be configurations."""
    from pelton.apply.reading import known
    from pelton.apply.terraform import File

    found: list[File] = []
    for name in files:
        path = Path(name)
        if name == "-":
            found.append(File("stdin", sys.stdin.read()))
        elif path.is_dir():
            inside = sorted(
                each
                for each in path.rglob("*")
                if each.is_file() and known(each.name) and not _hidden(each.relative_to(path))
            )
            if not inside:
                raise click.ClickException(f"{name}: no configuration files in this folder")
            found += [File(str(each), _text(each)) for each in inside]
        else:
            found.append(File(name, _text(path)))
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _text(path: Path) -> str:
    try:
        return read_text_input(path, encoding="utf-8-sig")
    except OSError as error:
        raise click.ClickException(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.ClickException(f"cannot read {path}: it is not UTF-8") from None
