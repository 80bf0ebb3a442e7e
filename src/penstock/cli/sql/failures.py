"""What ``penstock sql`` says when a query is wrong or cannot be answered."""

from __future__ import annotations

import sys

import click

from penstock.core.base.quoting import shown


class QueryError(click.ClickException):
    """The query is wrong, or could not be answered; has the exit status."""

    def __init__(self, text: str, status: int) -> None:
        """``text`` may have several lines: the first ones say what is wrong, the last ones where."""
        super().__init__(show_place(text))
        self.exit_code = status  # type: ignore[misc]  # a class variable of click


def show_place(text: str) -> str:
    """What is wrong; where, with a mark below, is shown to somebody at a terminal."""
    reason, found, place = text.partition("\n\nLINE ")
    _, _, place = place.partition(": ")
    line, _, mark = place.partition("\n")
    if found and mark and sys.stderr.isatty():
        skipped = len(found.strip()) + len(" 1: ")  # as far as the line is indented
        click.echo(f"{shown(line)}\n{mark[skipped:]}", err=True)
    return reason
