"""A text that the user changes in ``$EDITOR``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import click

from pelton.cli.prompts import confirm, may_ask
from pelton.core.base.quoting import shown
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Mistakes(click.UsageError):
    """Mistakes of a file or an edited text, each on a separate line."""

    problems: tuple[str, ...]

    def __init__(self, *problems: str) -> None:
        """At least one."""
        super().__init__("\n".join(problems))
        self.problems = problems


def edited(text: str, read: Callable[[str], T]) -> T | None:
    """The result of ``read`` for the edited text; None if nothing is changed.

    At a terminal the user sees a mistake (ClickException, PeltonError) and may continue to edit
    the text.
    """
    now = text
    while True:
        after = click.edit(now, extension=".json")
        if after is None and now is not text:
            raise click.Abort
        if after is None or after == text:
            return None
        try:
            return read(after)
        except (click.ClickException, PeltonError) as mistake:
            if not may_ask():
                raise
            for line in getattr(mistake, "problems", ()) or (_message(mistake),):
                click.echo(f"pelton: {shown(line)}", err=True)
        confirm("Edit again?")
        now = after


def _message(mistake: Exception) -> str:
    return mistake.format_message() if isinstance(mistake, click.ClickException) else str(mistake)
