"""The places of options: those of all commands may also follow a verb, those of a verb may also
precede it.

``pelton stream ls -s URL`` is ``pelton -s URL stream ls``; ``pelton stream --names ls`` is
``pelton stream ls --names``. The ``nats`` command understands both, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_OWN = ("--help", "--version", "--json", "--format")
"""Options that every command has itself."""
MARK = "everywhere_"
"""The names of the copies begin so, because a command may have a parameter of that name."""


def take_connection_options(command: click.Command, top: click.Command) -> None:
    """Give a command copies of the options of all commands, as far as it has none with these letters."""
    if any((each.name or "").startswith(MARK) for each in command.params):
        return
    known = {
        letters for each in command.params for letters in (*each.opts, *each.secondary_opts)
    } | set(_OWN)
    for each in top.params:
        if not isinstance(each, click.Option) or each.name is None:
            continue
        free = [letters for letters in each.opts if letters not in known]
        if free:
            command.params.append(_copy(each, free))


def _copy(option: click.Option, letters: Sequence[str]) -> click.Option:
    given: dict[str, Any] = {"is_flag": True} if option.is_flag else {"type": option.type}
    return click.Option(
        [*letters, MARK + str(option.name)],
        **given,
        default=None,
        hidden=True,
        expose_value=False,
        is_eager=True,
        callback=_setter(str(option.name)),
        shell_complete=option._custom_shell_complete,  # of --context
        help=option.help,
    )


def _setter(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def set_field(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        session = ctx.find_object(Session)
        if value is not None and session is not None:
            setattr(session, field, value)

    return set_field


def behind_the_verb(group: click.Group, ctx: click.Context, words: Sequence[str]) -> list[str]:
    """The words with the options of the verb moved after it; unchanged if no verb has them."""
    own = {letters for each in group.get_params(ctx) for letters in each.opts}
    first = next((at for at, word in enumerate(words) if word not in own), len(words))
    for at, word in enumerate(words[first:], first):
        if word == "--":
            break
        if not word.startswith("-") and at == first:
            break
        if not word.startswith("-") and _understands(group, ctx, word, words[first:at]):
            return [*words[:first], word, *words[first:at], *words[at + 1 :]]
    return list(words)


def _understands(group: click.Group, ctx: click.Context, verb: str, options: Sequence[str]) -> bool:
    """Whether the words are options, with their values, of a verb of the group."""
    command = group.get_command(ctx, verb)
    if command is None:
        return False
    known = dict(_widths(command, ctx))
    at = 0
    while at < len(options):
        name, equals, _ = options[at].partition("=")
        width = known.get(name)
        if width is None or (equals and (not width or not name.startswith("--"))):
            return False
        at += 1 if equals else 1 + width
    return at == len(options)


def _widths(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, int]]:
    """The options of a command, or of a group's verbs, and how many values each takes."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            if inner is not None:
                yield from _widths(inner, ctx)
        return
    for each in command.get_params(ctx):
        if isinstance(each, click.Option):
            width = 0 if each.is_flag or each.count else each.nargs
            yield from ((letters, width) for letters in (*each.opts, *each.secondary_opts))
