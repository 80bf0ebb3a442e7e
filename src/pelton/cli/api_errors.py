"""``pelton errors``: the meaning of each ``err_code`` of JetStream, and files with lists of
errors.

A file of errors, such as a server's ``errors.json``, is a list of
``{"constant", "code", "error_code", "description", "comment", "help", "url"}``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.editing import Mistakes, edited
from pelton.cli.inputs import read_input
from pelton.cli.output import print_facts, print_json, print_table
from pelton.cli.session import Session, command
from pelton.cli.values import PATTERN_ERRORS, WHOLE, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.api.errors import ApiError

_FILE = click.option(
    "--errors",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read this file of errors instead.",
)
_SORTS = {"code": "err_code", "http": "code", "description": "description", "descr": "description"}
_SORTS |= {"d": "description", "desc": "description"}
_LOWEST, _HIGHEST = 10_000, 65_535


def _known(file: Path | None = None) -> dict[int, dict[str, Any]]:
    """All documented errors, or those of a file, by err_code."""
    if file is not None:
        return {
            int(each.get("error_code") or 0): {
                "err_code": each.get("error_code"),
                "code": each.get("code"),
                "name": str(each.get("constant", "")),
                "description": str(each.get("description", "")),
                **{name: each[name] for name in ("comment", "help", "url") if each.get(name)},
            }
            for each in _read(file)
        }
    from pelton.api import errors_generated
    from pelton.api.errors import ApiError

    kinds = [each for each in vars(errors_generated).values() if isinstance(each, type)]
    found = [each for each in kinds if issubclass(each, ApiError) and each.err_code]
    return {each.err_code: _data(each) for each in sorted(found, key=lambda each: each.err_code)}


def _data(kind: type[ApiError]) -> dict[str, Any]:
    return {
        "err_code": kind.err_code,
        "code": kind.code,
        "name": kind.protocol_name,
        "description": kind.template,
    }


def _read(path: Path) -> list[dict[str, Any]]:
    """A file of errors; ClickException for any other file."""
    try:
        found = json.loads(read_input(path))
    except json.JSONDecodeError as error:
        raise click.ClickException(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{path}: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise click.ClickException(f"{path} is no list of errors")
    return found


@click.command()
@click.argument("match", default="")
@click.argument("sort", type=Word(list(_SORTS)), default="code")
@click.option("-R", "--reverse/--no-reverse", default=False, help="The other way round.")
@_FILE
@command
@click.pass_obj
def ls(session: Session, match: str, sort: str, reverse: bool, file: Path | None) -> None:
    """List the errors of JetStream, or those with the regular expression MATCH in name, code or description.

    SORT is code, http or description.
    """
    try:
        wanted = re.compile(match, re.IGNORECASE)
    except PATTERN_ERRORS as error:
        raise click.UsageError(f'"{match}" is not a regular expression: {error}') from None
    found = [
        each
        for each in _known(file).values()
        if any(wanted.search(str(each[n])) for n in ("name", "description", "err_code", "code"))
    ]
    field = _SORTS[sort]
    found.sort(key=lambda each: each[field] or 0, reverse=reverse)
    if session.as_json:
        print_json(found)
        return
    columns = ("err_code", "code", "Name", "Description")
    names = ("err_code", "code", "name", "description")
    rows = [tuple(str(each[name]) for name in names) for each in found]
    print_table(columns, rows, right=frozenset(columns[:2]))


@click.command()
@click.argument("code", type=WHOLE)
@_FILE
@command
@click.pass_obj
def lookup(session: Session, code: int, file: Path | None) -> None:
    """Show the error with the err_code CODE, such as 10059."""
    found = _known(file).get(code)
    if found is None:
        raise click.ClickException(f"JetStream has no error {code}")
    if session.as_json:
        print_json(found)
        return
    print_facts(
        f"Error {code}",
        [
            ("Name", str(found["name"])),
            ("Code", str(found["code"])),
            ("Description", str(found["description"])),
            ("Comment", str(found.get("comment", ""))),
            ("Help", str(found.get("help", ""))),
            ("URL", str(found.get("url", ""))),
        ],
    )


def problems(found: list[dict[str, Any]]) -> list[str]:
    """The mistakes in a list of errors."""
    bad: list[str] = []
    codes: dict[object, str] = {}
    constants: dict[object, object] = {}
    for index, each in enumerate(found, 1):
        code, constant = each.get("error_code"), each.get("constant")
        name = f"error {code}" if code else f"entry {index}"
        text = str(each.get("description") or "")
        if not isinstance(code, int) or isinstance(code, bool) or not _LOWEST <= code <= _HIGHEST:
            bad.append(f"{name}: error_code is not between {_LOWEST} and {_HIGHEST}")
        elif code in codes:
            bad.append(f"{name}: {codes[code]} has the same error_code")
        if not isinstance(each.get("code"), int) or not each["code"]:
            bad.append(f"{name}: code is missing")
        if not constant:
            bad.append(f"{name}: constant is missing")
        elif constant in constants:
            bad.append(f"{name}: error {constants[constant]} has the same constant {constant}")
        if not text:
            bad.append(f"{name}: description is missing")
        if text.count("{") != text.count("}"):
            bad.append(f"{name}: the braces of the description do not match")
        if re.fullmatch(r"\{[^}]+\}", text) and not each.get("comment"):
            bad.append(f"{name}: a description of one placeholder needs a comment")
        codes.setdefault(code, str(constant))
        constants.setdefault(constant, code)
    return bad


@click.command()
@click.argument(
    "checked",
    metavar="FILE",
    required=False,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@_FILE
@command
@click.pass_obj
def validate(session: Session, checked: Path | None, file: Path | None) -> int:
    """Check a FILE of errors. Ends with 1 if something is wrong."""
    file = checked or file
    if file is None:
        raise click.UsageError("Missing argument 'FILE'.")
    found = _read(file)
    bad = problems(found)
    if session.as_json:
        print_json({"errors": len(found), "problems": bad})
    elif bad:
        for each in bad:
            print(shown(each))
    else:
        print(f"{len(found)} errors are sound")
    return 1 if bad else 0


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("code", type=WHOLE, required=False)
@click.option(
    "--errors", hidden=True, expose_value=False, help="Accepted for scripts: FILE counts."
)
@command
@click.pass_obj
def edit(session: Session, file: Path, code: int | None) -> int:
    """Change the error CODE of FILE in $EDITOR, or add one. It writes only valid entries."""
    found = _read(file)
    at = next((i for i, each in enumerate(found) if each.get("error_code") == code), None)
    if code is not None and at is None:
        raise click.ClickException(f"{file} has no error {code}")
    highest = max((int(each.get("error_code") or 0) for each in found), default=_LOWEST - 1)
    new = {"constant": "", "code": 400, "error_code": highest + 1, "description": ""}
    text = json.dumps(new if at is None else found[at], indent=2) + "\n"
    changed = edited(text, lambda after: _edited(found, at, after))
    if changed is None:
        raise click.Abort
    file.write_text(json.dumps(changed, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if session.as_json:
        print_json({"file": str(file), "errors": len(changed)})
    else:
        print(shown(f"wrote {len(changed)} errors to {file}"))
    return 0


def _edited(found: list[dict[str, Any]], at: int | None, text: str) -> list[dict[str, Any]]:
    """The list with the edited error; Mistakes."""
    try:
        entry = json.loads(text)
    except ValueError as error:
        raise Mistakes(f"this is no JSON: {error}") from None
    if not isinstance(entry, dict):
        raise Mistakes("this is no JSON object")
    changed = [*found, entry] if at is None else [*found[:at], entry, *found[at + 1 :]]
    if bad := problems(changed):
        raise Mistakes(*bad)
    return changed
