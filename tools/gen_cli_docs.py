"""Makes the reference of the command line from its commands, and a page of cheat sheets.

Writes docs/reference/cli-*.md and cheat-sheets.md, and in cli.md only what stands between the two marker lines: all
else on that page is written by hand. With --check it writes nothing, and exits 1 when a page is not current. Needs
the built package with the extras "cli".
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from pelton.cli.cheat_sheets import CHEATS
from pelton.cli.tree import Lazy, pelton, servers

FOLDER = Path(__file__).resolve().parent.parent / "docs/reference"
BEGIN = "<!-- made by tools/gen_cli_docs.py: begin -->"
END = "<!-- made by tools/gen_cli_docs.py: end -->"
WIDTH = 140
_SHARED = {"--json", "--format"}  # options of every command

# Page -> its title, and the commands of the first level that it has.
PAGES: dict[str, tuple[str, str]] = {
    "cli-messages": (
        "messages, services, measurements",
        "pub sub req reply service counter bench events trace traffic top latency rtt",
    ),
    "cli-streams": ("streams", "stream explain replay diff-stream"),
    "cli-consumers": ("consumers", "consumer"),
    "cli-buckets": ("key-value buckets and object stores", "kv object"),
    "cli-servers": ("servers and accounts", "server account auth audit context errors schema"),
    "cli-files": ("files, stores, SQL", "apply plan diff drift export validate sql store"),
}
OTHER = ("cli-other", "everything else")


def commands(group: Lazy, path: str) -> Iterator[tuple[str, click.Command, list[str]]]:
    """All commands below a group: path, command, other names of the last word."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        inner = servers if f"{path}{name}" == "server" else group.get_command(ctx, name)
        assert inner is not None
        if isinstance(inner, Lazy):
            yield from commands(inner, f"{path}{name} ")
        else:
            others = [other for other, meant in group.aliases.items() if meant == name]
            yield path + name, inner, others


def page_of(path: str) -> str:
    """The page of a command."""
    first = path.split()[0]
    return next((page for page, (_, has) in PAGES.items() if first in has.split()), OTHER[0])


def anchor(path: str) -> str:
    """The anchor of a heading `pelton PATH`."""
    return "pelton-" + re.sub(r"[^a-z0-9 -]", "", path.lower()).replace(" ", "-")


def sentence(text: str) -> str:
    """The first sentence of a help text, on one line."""
    return " ".join(text.strip().split("\n\n")[0].split())


def cell(text: str) -> str:
    """A text in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def option_row(option: click.Option, ctx: click.Context) -> str:
    """The row of an option."""
    record = option.get_help_record(ctx)
    assert record is not None
    names, text = record
    return f"| `{cell(names).replace('&lt;', '<')}` | {cell(text)} |"


def paragraph(text: str) -> str:
    """A paragraph of a help text; lines behind a ``\\b`` are not to be joined."""
    text = inspect.cleandoc(text)
    if text.startswith("\b"):
        return "```text\n" + inspect.cleandoc(text.removeprefix("\b")) + "\n```"
    return " ".join(text.split()).replace("<", "&lt;")


def section(path: str, command: click.Command, others: list[str]) -> str:
    """The section of a command."""
    ctx = click.Context(command, info_name=f"pelton {path}")
    usage = " ".join(command.collect_usage_pieces(ctx))
    parts = [f"## pelton {path}", f"```text\npelton {path} {usage}".rstrip() + "\n```"]
    parts += [paragraph(each) for each in (command.help or "").strip().split("\n\n")]
    if others:
        names = ", ".join(f"`{name}`" for name in others)
        parts.append(f"Other names: {names}.")
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden and not _SHARED & {*each.opts}
    ]
    if options:
        rows = [option_row(each, ctx) for each in options]
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def pages() -> dict[str, str]:
    """The generated pages by name."""
    sections: dict[str, list[str]] = {}
    for path, command, others in commands(pelton, ""):
        sections.setdefault(page_of(path), []).append(section(path, command, others))
    titles = {page: title for page, (title, _) in PAGES.items()} | dict([OTHER])
    found = {}
    for page, parts in sections.items():
        head = (
            f"# Reference: `pelton`, {titles[page]}\n\n"
            "Every command with its options. `--json`, `--format` and `--help` are understood everywhere; the\n"
            "[options to connect](cli.md#connect-to-a-server) stand before the command or after it."
        )
        found[page] = "\n\n".join([head, *parts]) + "\n"
    return found | {"cheat-sheets": cheat_page()}


def cheat_page() -> str:
    """The page of cheat sheets."""
    parts = ["# Cheat sheets\n\n`pelton cheat TOPIC` prints one of these at the terminal."]
    for topic, lines in CHEATS.items():
        parts.append(f"## {topic}")
        blocks = ["\n".join([f"# {what}", *commands_]) for what, commands_ in lines.items()]
        parts.append("```text\n" + "\n\n".join(blocks) + "\n```")
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """The table of all commands."""
    rows = ["| command | does |", "|---|---|"]
    for path, command, _ in commands(pelton, ""):
        link = f"{page_of(path)}.md#{anchor(path)}"
        rows.append(f"| [`pelton {path}`]({link}) | {cell(sentence(command.help or ''))} |")
    return "\n".join(rows)


def overview() -> str:
    """cli.md with a new table between its markers."""
    text = (FOLDER / "cli.md").read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"cli.md has lost its marker lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{index()}\n{END}{after}"


def main() -> int:
    """Write the pages, or check them."""
    made = {FOLDER / f"{name}.md": text for name, text in pages().items()}
    made[FOLDER / "cli.md"] = overview()
    old = [path for path in made if not path.exists() or path.read_text() != made[path]]
    if sys.argv[1:] == ["--check"]:
        for path in old:
            print(f"{path.name} is not current")
        return 1 if old else 0
    for path in old:
        path.write_text(made[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
