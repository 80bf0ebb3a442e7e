"""``pelton completion``: the script for a shell; and the names that are completed from a server."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.values import Word

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.shell_completion import CompletionItem

    from pelton.client.sync.jetstream import JetStream

    _Kind = click.ParamType[str]
else:
    _Kind = click.ParamType  # not generic in every supported version of click

VARIABLE = "_PELTON_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
_HINT = {
    "bash": '# in ~/.bashrc: eval "$(pelton completion bash)"',
    "zsh": '# in ~/.zshrc: eval "$(pelton completion zsh)"',
    "fish": "# pelton completion fish > ~/.config/fish/completions/pelton.fish",
}


@click.command()
@click.argument("shell", type=Word(SHELLS), required=False)
@click.pass_context
def completion(ctx: click.Context, shell: str | None) -> None:
    """Print the script that lets SHELL (yours) complete commands, options and names.

    Names of streams, consumers, buckets and contexts come from the server and the files of the context
    that is in use.
    """
    from click.shell_completion import get_completion_class

    name = shell or PurePath(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise click.UsageError(f"which shell? One of {', '.join(SHELLS)}")
    found = get_completion_class(name)
    assert found is not None
    print(_HINT[name])
    print(found(ctx.find_root().command, {}, "pelton", VARIABLE).source())


class Names(_Kind):
    """Any text; a shell completes it to names that the server has."""

    name = "text"

    def __init__(self, of: Callable[[click.Context], list[str]]) -> None:
        """``of``: the names, for a command line that does not run."""
        self._of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The value."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin so; none if the server does not answer."""
        from click.shell_completion import CompletionItem

        from pelton.errors import PeltonError

        try:
            names = self._of(ctx)
        except (OSError, ValueError, KeyError, click.ClickException, PeltonError):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _asking(look: Callable[[JetStream, click.Context], list[str]]) -> Names:
    def of(ctx: click.Context) -> list[str]:
        from pelton.cli.prompts import session_of

        session = session_of(ctx)
        with session.connect() as client:
            return look(session.jetstream(client), ctx)

    return Names(of)


def _contexts(ctx: click.Context) -> list[str]:
    from pelton.client.protocol.contexts import context_names

    return list(context_names())


STREAMS = _asking(lambda js, ctx: js.stream_names())
CONSUMERS = _asking(lambda js, ctx: js.consumer_names(ctx.params["stream"]))
BUCKETS = _asking(lambda js, ctx: js.key_value_names())
OBJECT_STORES = _asking(lambda js, ctx: js.object_store_names())
CONTEXTS = Names(_contexts)

_EVERYWHERE = {"stream": STREAMS, "consumer": CONSUMERS, "bucket": BUCKETS}
_IN = {
    "object": {"bucket": OBJECT_STORES},
    "context": {"name": CONTEXTS, "names": CONTEXTS, "source": CONTEXTS},
}


def offer_names(group: str, command: click.Command) -> None:
    """Let a shell complete parameters that name streams, consumers and the like on the server."""
    from pelton.cli.prompts import Asked

    known = _EVERYWHERE | _IN.get(group, {})
    for each in command.params:
        plain = each.type.name == "text" and not isinstance(each, Asked)
        if plain and each.name in known:
            each.type = known[each.name]
