"""``penstock errors``: what the ``err_code`` of an answer of JetStream means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.output import print_facts, print_json, print_table
from penstock.cli.session import Session, command

if TYPE_CHECKING:
    from penstock.api.errors import ApiError


def _known() -> dict[int, type[ApiError]]:
    """All documented errors, by err_code."""
    from penstock.api import errors_generated
    from penstock.api.errors import ApiError

    kinds = [each for each in vars(errors_generated).values() if isinstance(each, type)]
    found = [each for each in kinds if issubclass(each, ApiError) and each.err_code]
    return {each.err_code: each for each in sorted(found, key=lambda each: each.err_code)}


def _data(kind: type[ApiError]) -> dict[str, object]:
    return {
        "err_code": kind.err_code,
        "code": kind.code,
        "name": kind.__name__.removesuffix("Error"),
        "description": kind.template,
    }


@click.command()
@click.argument("match", default="")
@command
@click.pass_obj
def ls(session: Session, match: str) -> None:
    """List the errors of JetStream, or those with MATCH in their name or description."""
    text = match.lower()
    found = [
        each for each in _known().values() if text in f"{each.__name__} {each.template}".lower()
    ]
    if session.as_json:
        print_json([_data(each) for each in found])
        return
    columns = ("err_code", "code", "Name", "Description")
    rows = [tuple(str(value) for value in _data(each).values()) for each in found]
    print_table(columns, rows, right=frozenset(columns[:2]))


@click.command()
@click.argument("code", type=int)
@command
@click.pass_obj
def lookup(session: Session, code: int) -> None:
    """Show the error with the err_code CODE, such as 10059."""
    found = _known().get(code)
    if found is None:
        raise click.ClickException(f"JetStream has no error {code}")
    if session.as_json:
        print_json(_data(found))
        return
    data = _data(found)
    print_facts(
        f"Error {code}",
        [
            ("Name", str(data["name"])),
            ("Code", str(data["code"])),
            ("Description", str(data["description"])),
        ],
    )
