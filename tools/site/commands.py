"""The command line's reference: blocks for mkdocs-click, one for each command of the first level.

mkdocs-click imports the commands from here: ``tools.site.commands.stream`` is `pelton stream`.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click

from pelton.cli.tree import Lazy, pelton, servers

if TYPE_CHECKING:
    from collections.abc import Iterator

# Page -> the commands of the first level that it has. One that no page names is on the last one.
PAGES = {
    "messages": "pub sub req reply service counter bench events trace traffic top latency rtt",
    "streams": "stream explain replay diff-stream",
    "consumers": "consumer",
    "buckets": "kv object",
    "servers": "server account auth audit context errors schema",
    "files": "apply plan diff drift export validate sql store",
    "other": "",
}


def __getattr__(name: str) -> click.Command:
    """A command of the first level, with help texts that are Markdown."""
    if name.startswith("__"):
        raise AttributeError(name)
    found = command(name)
    written(found, ())
    return found


def command(name: str) -> click.Command:
    """A command of the first level."""
    found = servers if name == "server" else pelton.get_command(click.Context(pelton), name)
    assert found is not None, name
    return found


def page_of(name: str) -> str:
    """The page of a command of the first level."""
    return next((page for page, has in PAGES.items() if name in has.split()), "other")


def blocks(page: str) -> str:
    """What mkdocs-click puts on a page."""
    names = [name for name in pelton.list_commands(click.Context(pelton)) if page_of(name) == page]
    return "\n\n".join(
        f"::: mkdocs-click\n    :module: {__name__}\n    :command: {name}\n"
        f"    :prog_name: pelton {name}\n    :depth: 1"
        for name in names
    )


def table() -> str:
    """All commands, with the first sentence of their help, and where they are described."""
    rows = ["| command | does |", "|---|---|"]
    for path, each in leaves():
        link = f"cli-{page_of(path.split()[0])}.md#pelton-{path.replace(' ', '-')}"
        help_text = " ".join((each.help or "").strip().split("\n\n")[0].split())
        rows.append(f"| [`pelton {path}`]({link}) | {escaped(help_text)} |")
    return "\n".join(rows)


def leaves(group: Lazy = pelton, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, with their paths."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        inner = group.get_command(ctx, name) if path or name != "server" else servers
        assert inner is not None
        if isinstance(inner, Lazy):
            yield from leaves(inner, f"{path}{name} ")
        else:
            yield path + name, inner


def written(found: click.Command, others: tuple[str, ...]) -> None:
    """Make Markdown of the help texts of a command and those below it, and name its other names."""
    if getattr(found, "is_markdown", False):
        return
    found.is_markdown = True  # type: ignore[attr-defined]  # a mark of this module
    paragraphs = [paragraph(each) for each in re.split(r"\n\s*\n", (found.help or "").strip())]
    if others:
        paragraphs.append(f"Other names: {', '.join(f'`{each}`' for each in others)}.")
    found.help = "\n\n".join(paragraphs)
    if isinstance(found, Lazy):
        ctx = click.Context(found)
        for name in found.list_commands(ctx):
            inner = found.get_command(ctx, name)
            assert inner is not None
            inner.name = name  # mkdocs-click writes it into headings
            written(inner, tuple(sorted(k for k, v in found.aliases.items() if v == name)))


def paragraph(text: str) -> str:
    """A paragraph of a help text; lines after ``\\b`` are not to be joined."""
    if text.startswith("\b"):
        return "```text\n" + inspect.cleandoc(text.removeprefix("\b")) + "\n```"
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """A text in which Markdown and HTML find nothing of theirs."""
    return re.sub(r"([*_|`\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))
