"""Printing: tables with colour for people at a terminal, plain columns for pipes, JSON, CSV and
Markdown for programs. The form of lists is the one that ``--format`` of the running command names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pelton.api import encode
from pelton.api.times import format_duration, format_time
from pelton.cli.session import Session
from pelton.core.base.quoting import quoted_letter, shown

if TYPE_CHECKING:
    import msgspec

Rows = Sequence[Sequence[str]]

NO_REASON = "no server that holds it answers"
"""The reason for an offline stream or consumer, if the server gives none."""


def as_data(message: msgspec.Struct) -> Any:
    """An API message in its JSON form."""
    return json.loads(encode(message))


class Figure(str):
    """A number as people read it; ``value`` is the number."""

    __slots__ = ("value",)
    value: float

    def __new__(cls, text: str, value: float) -> Figure:
        """The text, with the number."""
        made = super().__new__(cls, text)
        made.value = value
        return made


class Moment(str):
    """A time to the nanosecond; ``short`` is the same to the second, for the tables of a terminal."""

    __slots__ = ("short",)
    short: str

    def __new__(cls, ns: int) -> Moment:
        """Of nanoseconds since 1970."""
        made = super().__new__(cls, format_time(ns))
        made.short = format_time(ns // 10**9 * 10**9)
        return made


def form_in_use() -> str:
    """The form of lists that the running command was asked for: one of ``session.FORMS``."""
    context = click.get_current_context(silent=True)
    session = context.find_object(Session) if context else None
    return session.form if session else "table"


def accent() -> str:
    """The style of the heads of tables and pages."""
    context = click.get_current_context(silent=True)
    session = context.find_object(Session) if context else None
    return f"bold {session.color}" if session else "bold cyan"


def print_json(data: object) -> None:
    """Print one JSON document, indented; with ``--format jsonl``, each item of a list on its line."""
    if form_in_use() != "jsonl":
        print(json.dumps(data, indent=2, ensure_ascii=False))
        return
    for each in data if isinstance(data, list) else [data]:
        print_json_line(each)


def print_json_line(data: object) -> None:
    """Print one JSON document on one line, at once: for sequences of documents."""
    print(json.dumps(data, ensure_ascii=False, separators=(",", ":")), flush=True)


def print_names(session: Session, names: Sequence[str]) -> None:
    """Print names, one per line."""
    if session.as_json:
        print_json(names)
    else:
        print("".join(f"{shown(name)}\n" for name in names), end="")


def print_table(columns: Sequence[str], rows: Rows, *, right: frozenset[str] = frozenset()) -> None:
    """Print a table; `right` names the columns of numbers, which are never broken.

    A terminal shows times to the second.
    """
    form = form_in_use()
    if form == "csv":
        _print_csv(columns, rows)
        return
    terminal = form != "md" and sys.stdout.isatty()
    rows = [
        [shown(cell.short if terminal and isinstance(cell, Moment) else cell) for cell in row]
        for row in rows
    ]
    if form == "md":
        _print_markdown(columns, rows, right)
        return
    if terminal:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console()
        if not rows and sum(map(len, columns)) + 3 * (len(columns) - 1) > console.width:
            console.print(Text("(none)", style="dim"))
            return
        if rows and _least_width(columns, rows, right) > console.width:
            _print_records(columns, rows)
            return
        table = Table(header_style=accent(), box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in columns:
            numeric = name in right
            table.add_column(
                name, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        if not rows:
            console.print(Text("(none)", style="dim"))
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = (
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, columns, strict=True)
        )
        print("  ".join(cells).rstrip())


_FOLDED = 6
"""A text is folded into lines, but not into shorter ones."""


def _least_width(columns: Sequence[str], rows: Rows, right: frozenset[str]) -> int:
    """The width of a terminal below which a table cannot be read."""
    longest = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    needed = [
        size if name in right else min(size, _FOLDED)
        for name, size in zip(columns, longest, strict=True)
    ]
    return sum(needed) + 3 * (len(columns) - 1)


def _print_records(columns: Sequence[str], rows: Rows) -> None:
    """Print the rows of a table that is too wide as pages of names and values, one below the other."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    width = max(len(name) for name in columns)
    for number_, row in enumerate(rows):
        if number_:
            print()
        for name, cell in zip(columns, row, strict=True):
            if cell:
                label = Text(f"{name.rjust(width)}: ", style=accent())
                console.print(label + Text(cell), soft_wrap=True)


def _print_csv(columns: Sequence[str], rows: Rows) -> None:
    """Numbers without units and separators; a line ends with a line feed."""
    for row in (columns, *rows):
        cells = (str(cell.value if isinstance(cell, Figure) else cell) for cell in row)
        print(",".join(_quoted_cell(cell) for cell in cells))


def _quoted_cell(cell: str) -> str:
    # the csv module leaves a carriage return bare if lines end with a line feed
    plain = cell and not any(letter in cell for letter in ',"\r\n')
    return cell if plain else '"' + cell.replace('"', '""') + '"'


def _print_markdown(columns: Sequence[str], rows: Rows, right: frozenset[str]) -> None:
    def line(cells: Sequence[str]) -> str:
        escaped = (cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
        return "| " + " | ".join(" ".join(cell.split()) for cell in escaped) + " |"

    print(line(columns))
    print("|" + "|".join("--:" if name in right else "---" for name in columns) + "|")
    for row in rows:
        print(line(row))


def print_facts(title: str, facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values under a title; facts with an empty value are left out."""
    form = form_in_use()
    if form == "csv":
        _print_csv(("Field", "Value"), [fact for fact in facts if fact[1]])
        return
    facts = [(shown(name), shown(value)) for name, value in facts if value]
    title = shown(title)
    if form == "md":
        print(f"## {title}\n")
        _print_markdown(("Field", "Value"), facts, frozenset())
        print()
        return
    width = max((len(name) for name, _ in facts), default=0)
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console()
        console.print(Text(title, style=accent()), soft_wrap=True)
        for name, value in facts:
            line = Text.assemble((f"  {name.rjust(width)}: ", "dim"), value)
            console.print(line, soft_wrap=True)
        return
    print(title)
    for name, value in facts:
        print(f"  {name.rjust(width)}: {value}")


def number(value: int) -> str:
    """1,234,567."""
    return Figure(f"{value:,}", value)


def plural(count: int, what: str) -> str:
    """1 file, 2 files."""
    return f"{number(count)} {what}{'' if count == 1 else 's'}"


def limit(value: int) -> str:
    """A limit; None and -1 mean no limit."""
    return "unlimited" if value <= 0 else number(value)


def size(value: int) -> str:
    """Bytes for people: 12 B, 3.4 KiB."""
    if value < 1024:
        return Figure(f"{value} B", value)
    units = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min((value.bit_length() - 1) // 10, len(units))
    return Figure(f"{value / 1024**power:.1f} {units[power - 1]}", value)


def size_limit(value: int) -> str:
    """A limit of bytes; None and -1 mean no limit."""
    return "unlimited" if value <= 0 else size(value)


def duration(ns: int) -> str:
    """A duration; "" for 0."""
    return format_duration(ns) if ns else ""


def moment(ns: int | None) -> str:
    """A time; "" for none."""
    return Moment(ns) if ns else ""


def age(ns: int, now_ns: int) -> str:
    """The age of a time, in its two largest units: 3d4h, 5m12s, 0s; "never" for none."""
    if not ns:
        return "never"
    seconds = max(now_ns - ns, 0) // 10**9
    parts = []
    for unit, length in (("y", 31_536_000), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length:
            parts.append(f"{seconds // length}{unit}")
            seconds %= length
        elif parts:
            parts.append("")
    return "".join(parts[:2]) or "0s"


def print_unavailable(kind: str, unavailable: Mapping[str, str]) -> None:
    """Print the streams or consumers that the server cannot describe, with the reason."""
    rows = [(name, reason or NO_REASON) for name, reason in unavailable.items()]
    print_table((f"Offline {kind}", "Reason"), rows)


def payload(data: bytes) -> dict[str, str]:
    """A payload in JSON: as text if it is text, else in base64."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        import base64

        return {"data_base64": base64.b64encode(data).decode()}


def payload_of(found: Mapping[str, object]) -> bytes:
    """The bytes in a JSON object as ``payload`` writes it; ValueError for another one."""
    import base64

    given = {name: found[name] for name in ("data", "data_base64") if name in found}
    (text,) = given.values() if len(given) == 1 else (None,)
    if not isinstance(text, str):
        raise ValueError('expected the text "data" or "data_base64", one of them')
    return base64.b64decode(text, validate=True) if "data_base64" in given else text.encode()


def readable(data: bytes) -> str:
    """A payload for people: control characters that move the cursor are shown as escapes."""
    text = data.decode("utf-8", "replace")
    return "".join(c if c.isprintable() or c in "\n\t" else quoted_letter(c) for c in text)
