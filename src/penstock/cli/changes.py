"""Changes to existing streams and consumers: a plan is shown, a question asked, then all is applied."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import DONE, FAILED
from penstock.cli.output import as_data, print_json
from penstock.cli.prompts import confirm
from penstock.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import msgspec

    from penstock.apply.planning import Change
    from penstock.cli.session import Session

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


def edited(config: msgspec.Struct, read: Callable[[bytes, str], Any]) -> Any:
    """The configuration as the user leaves it in an editor; Abort if it is not saved."""
    import json

    text = click.edit(json.dumps(as_data(config), indent=2) + "\n", extension=".json")
    if text is None:
        raise click.Abort
    return read(text.encode(), "the edited configuration")


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
    from penstock.apply.planning import Plan
    from penstock.apply.showing import as_json, lines

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
        count = f"{len(updates)} {what}s" if len(updates) > 1 else f"{what} {updates[0].title}"
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
