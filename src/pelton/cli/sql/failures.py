"""The errors of ``pelton sql`` for a query that is wrong or cannot be answered."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.sql import Database


class QueryError(click.ClickException):
    """The query is wrong, or could not be answered; has the exit status."""

    def __init__(self, text: str, status: int) -> None:
        """``text`` may have several lines: first the error, then the place."""
        super().__init__(show_place(text))
        self.exit_code = status  # type: ignore[misc]  # a class variable of click


_NO_TABLE = re.compile(
    r"Catalog Error: Table with name (.+?) does not exist!(?:\nDid you mean .*)?"
)
_NO_COLUMN = re.compile(r'Referenced column "[^"]*" not found in FROM clause!')
_NO_ADVISORIES = (
    "no stream stores advisories; this one would: "
    "pelton stream add ADVISORIES --subjects '$JS.EVENT.ADVISORY.>' --defaults"
)


def hinted(text: str, database: Database) -> str:
    """DuckDB's text with more information: the names of streams, and the origin of columns."""
    if found := _NO_TABLE.match(text):
        name = found[1]
        if name.lower() == "advisories":
            return _NO_ADVISORIES + text[found.end() :]
        from difflib import get_close_matches

        near = get_close_matches(name, names_of(database), 1, 0.6)
        hint = f"; did you mean {near[0]}?" if near else "; the streams are the tables"
        return f"there is no table {name}{hint}{text[found.end() :]}"
    if (found := _NO_COLUMN.search(text)) and database.named():
        hint = " --json-columns STREAM makes columns of JSON payloads."
        return f"{text[: found.end()]}{hint}{text[found.end() :]}"
    return text


def names_of(database: Database) -> list[str]:
    """The tables that a query can name."""
    found = []
    for name in database.source.streams():
        for prefix, schema in (("KV_", "kv"), ("OBJ_", "object")):
            if name.startswith(prefix):
                found.append(f"{schema}.{name.removeprefix(prefix)}")
                break
        else:
            found.append(name)
    return [*found, "streams", "consumers", "advisories"]


def show_place(text: str) -> str:
    """The error; at a terminal also the place, with a mark below."""
    reason, found, place = text.partition("\n\nLINE ")
    _, _, place = place.partition(": ")
    line, _, mark = place.partition("\n")
    if found and mark and sys.stderr.isatty():
        skipped = len(found.strip()) + len(" 1: ")  # as far as the line is indented
        click.echo(f"{shown(line)}\n{mark[skipped:]}", err=True)
    return reason
