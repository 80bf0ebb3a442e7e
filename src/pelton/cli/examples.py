"""The examples below the options of a help text: lines of the cheat sheets that show the command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pelton.cli.cheat_sheets import CHEATS, topic_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click


def examples_of(words: Sequence[str]) -> list[str]:
    """The lines of all cheat sheets that are of the command with these words."""
    command = " ".join(map(re.escape, words))
    pattern = re.compile(rf"pelton (--\S+ \S+ )*{command}( |$)")
    lines = (line for sheet in CHEATS.values() for each in sheet.values() for line in each)
    return [line for line in lines if pattern.match(line)]


def write_examples(
    ctx: click.Context, formatter: click.HelpFormatter, words: Sequence[str]
) -> None:
    """Write the examples of a command; nothing if there are none, or its help text shows some."""
    if "\b" in (ctx.command.help or ""):
        return
    if lines := examples_of(words):
        with formatter.section("Examples"):
            formatter.write("".join(f"{'':>{formatter.current_indent}}{line}\n" for line in lines))


def write_sheet(formatter: click.HelpFormatter, topic: str) -> None:
    """Write where the lines to copy are."""
    if topic_of(topic) in CHEATS:
        formatter.write_paragraph()
        formatter.write_text(f"pelton cheat {topic} shows lines to copy.")
