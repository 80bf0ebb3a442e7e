"""Questions at a terminal: names that are missing, values, and whether something is really meant.

Without a terminal there are no questions: a missing name is wrong usage, and ``confirm`` reads the
answer from standard input if there is one.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.session import Session
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.shell_completion import CompletionItem

    _Kind = click.ParamType[Any] | type


def may_ask() -> bool:
    """Whether there is a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, *, option: str = "--force") -> None:
    """Ask until the answer is yes; Abort for no, UsageError without a terminal."""
    if may_ask():
        click.confirm(question, abort=True, err=True)
        return
    answer = sys.stdin.readline()
    if not answer:
        raise click.UsageError(f"there is no terminal for the question: {question} Give {option}")
    if answer.strip().lower() not in ("y", "yes"):
        raise click.Abort


def ask(label: str, option: str, default: object, kind: _Kind = str) -> Any:
    """A value that the user types; the question names the option that gives it."""
    return click.prompt(
        f"{label} ({option})", default=default, type=kind, err=True, show_default=default != ""
    )


def choose(what: str, names: Sequence[str]) -> str:
    """One of the names, by number or name; ClickException if there is none."""
    if not names:
        raise click.ClickException(f"there is no {what}")
    for index, name in enumerate(names, 1):
        click.echo(f"{index:4}  {shown(name)}", err=True)

    def chosen(text: str) -> str:
        if text in names:
            return text
        if text.isdigit() and 0 < int(text) <= len(names):
            return names[int(text) - 1]
        raise click.UsageError(f"there is no {what} {text}")

    found: str = click.prompt(f"Which {what}", value_proc=chosen, err=True)
    return found


def session_of(ctx: click.Context) -> Session:
    """The session; also while a shell completes a command line that does not run."""
    if (session := ctx.find_object(Session)) is not None:
        return session
    given = dict(ctx.find_root().params)
    form = given.pop("form", None)
    session = Session(**given)
    session.choose_form(form or "table")
    return session


NOT_ASKED = "pelton.not_asked"
"""The entry of a context's ``meta`` that says that no name is asked for."""

NO_SELECT = click.option(
    "--no-select",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, parameter, value: ctx.meta.update({NOT_ASKED: value}),
    help="Ask for no name at a terminal: a missing one is wrong usage.",
)
"""For scripts that run at a terminal."""


class Asked(click.Argument):
    """The name of a stream, or of a consumer after it; at a terminal the user is asked for a missing name."""

    def __init__(self, declarations: Sequence[str], **attributes: Any) -> None:
        """``of``: the argument with the stream, for the name of a consumer."""
        self.of: str | None = attributes.pop("of", None)
        super().__init__(declarations, **attributes)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """The value; if it is missing, the user's choice."""
        silent = ctx.resilient_parsing or ctx.meta.get(NOT_ASKED)
        if self.value_is_missing(value) and not silent and may_ask():
            value = choose("consumer" if self.of else "stream", self._names(ctx))
        return super().process_value(ctx, value)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of the server that begin so; none if it does not answer."""
        from click.shell_completion import CompletionItem

        try:
            names = self._names(ctx)
        except (OSError, ValueError, click.ClickException, _errors()):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    def _names(self, ctx: click.Context) -> list[str]:
        session = session_of(ctx)
        with session.connect() as client:
            js = session.jetstream(client)
            return js.consumer_names(ctx.params[self.of]) if self.of else js.stream_names()


def _errors() -> type[Exception]:
    from pelton.errors import PeltonError

    return PeltonError


def command_line(words: Sequence[str], options: Sequence[tuple[str, object]]) -> str:
    """The command line with these words and options, for a shell."""
    line = list(words)
    for option, value in options:
        if isinstance(value, bool):
            line.append(option if value else "--no-" + option.removeprefix("--"))
        else:
            line += [option, str(value)]
    return shlex.join(line)
