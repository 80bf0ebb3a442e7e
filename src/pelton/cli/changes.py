"""Changes to existing streams and consumers: a plan is shown, a question asked, then all is applied.

And what is common to ``--config`` of their commands: a configuration in a file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from pelton.cli.editing import Mistakes, edited
from pelton.cli.failures import DONE, FAILED
from pelton.cli.output import as_data, print_json
from pelton.cli.prompts import confirm
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    import msgspec

    from pelton.apply.planning import Change
    from pelton.cli.session import Session

F = TypeVar("F", bound=Callable[..., object])
C = TypeVar("C", bound="msgspec.Struct")
R = TypeVar("R")

COLOURS = {"update": "yellow"}


def matching(patterns: Sequence[str], names: Sequence[str], what: str) -> list[str]:
    """The names that are given, or match a pattern with * and ?; ClickException for none of one."""
    found: dict[str, None] = {}
    for pattern in patterns:
        wild = any(letter in pattern for letter in "*?[")
        hits = [name for name in names if fnmatchcase(name, pattern)] if wild else [pattern]
        if not hits:
            raise click.ClickException(f'no {what} matches "{pattern}"')
        found.update(dict.fromkeys(hits))
    return list(found)


def read_fields(text: bytes, place: str, kind: type[msgspec.Struct]) -> bytes:
    """The fields of a configuration in a text, as JSON of the API; Mistakes."""
    from pelton.apply.single import read_fields as read

    return json.dumps(of_file(text, place, lambda plain: read(plain, place, kind))).encode()


def of_file(text: bytes, place: str, read: Callable[[str], R]) -> R:
    """The result of a function that reads the text of a configuration; Mistakes."""
    from pelton.apply.model import ConfigurationError

    try:
        return read(text.decode("utf-8-sig"))
    except UnicodeDecodeError:
        problems: tuple[str, ...] = (f"{place}: this is not UTF-8",)
    except ConfigurationError as error:
        problems = tuple(map(str, error.problems))
    raise Mistakes(*problems) from None


def config_option(function: F) -> F:
    """``--config FILE``."""
    return click.option(
        "--config",
        "file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A configuration in JSON (comments are allowed), YAML or TOML; options go over it.",
    )(function)


def edited_config(config: C, read: Callable[[bytes, str], C]) -> C:
    """The configuration as the user leaves it in an editor."""
    text = json.dumps(as_data(config), indent=2) + "\n"
    found = edited(text, lambda after: read(after.encode(), "the edited configuration"))
    return config if found is None else found


def change_all(
    session: Session,
    changes: Sequence[Change],
    apply: Callable[[Change], msgspec.Struct],
    *,
    what: str,
    force: bool,
    dry_run: bool,
) -> int:
    """Show what changes, ask, and apply; the exit status: 1 for a dry run with changes."""
    from pelton.apply.planning import Plan
    from pelton.apply.showing import as_json, lines

    updates = [each for each in changes if each.action == "update"]
    plan = Plan(list(changes))
    quiet = session.as_json and (force or dry_run or not updates)
    if updates and not quiet:
        for line in lines(plan):
            style = COLOURS.get(line.style) if sys.stdout.isatty() else None
            click.secho(shown(line.text), fg=style, err=session.as_json)
    if dry_run or not updates:
        if session.as_json:
            print_json(as_json(plan))
        elif not updates:
            print("no difference in configuration")
        return FAILED if updates else DONE
    if not force:
        count = f"{len(updates)} {what}s" if len(updates) > 1 else updates[0].title
        confirm(f"Really change {count}?")
    infos = []
    for each in updates:
        infos.append(apply(each))
        if not session.as_json:
            print(shown(f"changed {what} {each.consumer or each.stream}"))
    if session.as_json:
        data = [as_data(info) for info in infos]
        print_json(data[0] if len(changes) == 1 else data)
    return DONE
