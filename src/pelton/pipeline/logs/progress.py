"""The display of the main job: numbers during a run, and the summary at its end.

Does not know how the numbers are computed or printed (:mod:`pelton.pipeline.display`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.table import Table

from pelton.pipeline.display import Line, Rate, Screen

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Numbers:
    """The progress of the job; ``stage`` is its activity, ``trouble`` an obstacle."""

    stage: str = "starting"
    files: int = 0
    stored: int = 0
    shipped: int = 0
    rows: int = 0
    lag: int = 0
    batches: int = 0
    trouble: str = ""


class Display(Screen):
    """Shows numbers on a console; a context manager."""

    def __init__(self, console: Console) -> None:
        """``console`` decides whether there is a terminal."""
        super().__init__(console)
        self._rate = Rate()

    def __enter__(self) -> Display:
        """Start to show."""
        super().__enter__()
        return self

    def tell(self, numbers: Numbers) -> None:
        """Show the current numbers."""
        self.show(_View(numbers, self._rate.of(numbers.batches, time.monotonic())))


@dataclass(frozen=True)
class _View:
    numbers: Numbers
    rate: float

    def table(self) -> Table:
        return _table(self.numbers, self.rate)

    def lines(self) -> list[Line]:
        numbers = self.numbers
        urgent = numbers.stage, numbers.trouble
        return [Line("", _plain(numbers, self.rate), numbers, urgent)]


def _plain(numbers: Numbers, rate: float) -> str:
    text = (
        f"{numbers.stage}: {numbers.files} files, {numbers.shipped} lines shipped, "
        f"{numbers.stored} messages stored, {numbers.rows} rows landed, "
        f"lag {numbers.lag} messages, {rate:.1f} batches/s"
    )
    return f"{text}; {numbers.trouble}" if numbers.trouble else text


def _table(numbers: Numbers, rate: float) -> Table:
    table = Table(title=f"pelton: {numbers.stage}", title_justify="left", show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right", min_width=12)
    for name, value in (
        ("files followed", f"{numbers.files:,}"),
        ("lines shipped", f"{numbers.shipped:,}"),
        ("messages stored", f"{numbers.stored:,}"),
        ("rows landed", f"{numbers.rows:,}"),
        ("lag, messages", f"{numbers.lag:,}"),
        ("batches per second", f"{rate:.1f}"),
    ):
        table.add_row(name, value)
    table.caption = numbers.trouble or "Ctrl-C stops"
    return table


_UNREAD_NAMED_MAX = 20


@dataclass
class Summary:
    """The result of a run. It is correct if every message is one row, counted once."""

    messages: int
    rows: int
    distinct_lines: int
    foreign_rows: int
    counted: int
    drained: bool
    programs: list[tuple[str, int]] = field(default_factory=list)
    levels: list[tuple[str, int]] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    """Files whose lines are not in the stream, or not all of them, with the reason."""

    @property
    def agrees(self) -> bool:
        """Whether stream and tables agree: messages, rows, distinct (file, offset), counts."""
        distinct = self.distinct_lines + self.foreign_rows
        return self.messages == self.rows == distinct == self.counted

    def print(self, console: Console, where: str) -> None:
        """Print the summary; with PASS or FAIL only if all input was to be processed."""
        table = Table(title="Summary", title_justify="left", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("messages in stream", f"{self.messages:,}")
        table.add_row("rows in table lines", f"{self.rows:,}")
        table.add_row("distinct (file, offset)", f"{self.distinct_lines:,}")
        if self.foreign_rows:
            table.add_row("rows not from log files", f"{self.foreign_rows:,}")
        table.add_row("lines in table counts", f"{self.counted:,}")
        if self.unread:
            table.add_row("files not read, or in part", f"{len(self.unread):,}")
        table.add_section()
        for program, lines in self.programs:
            table.add_row(f"program {program or '(none)'}", f"{lines:,}")
        table.add_section()
        for level, lines in self.levels:
            table.add_row(f"level {level}", f"{lines:,}")
        console.print(table)
        named = sorted(self.unread.items())
        for path, reason in named[:_UNREAD_NAMED_MAX]:
            # A name may hold any byte, also those that a terminal acts on.
            text = f"not read: {repr(path)[1:-1]}: {reason}"
            console.print(text, highlight=False, soft_wrap=True, markup=False)
        if len(named) > _UNREAD_NAMED_MAX:
            console.print(f"not read: {len(named) - _UNREAD_NAMED_MAX:,} more", highlight=False)
        console.print(f"tables: {where}", highlight=False, soft_wrap=True)
        if self.agrees:
            console.print("PASS: every message is one row", highlight=False)
        elif self.drained:
            console.print("FAIL: stream and tables do not agree", highlight=False)
        else:
            console.print(
                "stopped before everything landed; the next run continues from here",
                highlight=False,
            )
