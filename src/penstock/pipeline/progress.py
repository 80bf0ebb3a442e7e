"""What a person sees of the main job: numbers while it runs, and the summary at its end.

On a terminal the numbers stay in place; elsewhere they are one plain line every few seconds. Both
are made of the same :class:`Numbers`.

Knows nothing of how the numbers come about.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

_PLAIN_EVERY_SECONDS = 5.0
_RATE_OVER_SECONDS = 10.0


@dataclass(frozen=True)
class Numbers:
    """How far the job is; ``stage`` is what it does, ``trouble`` what keeps it from that."""

    stage: str = "starting"
    files: int = 0
    stored: int = 0
    shipped: int = 0
    rows: int = 0
    lag: int = 0
    batches: int = 0
    trouble: str = ""


class Rate:
    """Events per second over the last seconds, of a count that only grows."""

    def __init__(self) -> None:
        """No rate yet."""
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, count: int, now: float) -> float:
        """The rate with the count at a time (seconds of a monotonic clock)."""
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_OVER_SECONDS:
            self._seen.popleft()
        (before, first), (after, last) = self._seen[0], self._seen[-1]
        return (last - first) / (after - before) if after > before else 0.0


class Display:
    """Shows numbers on a console; used as a context manager."""

    def __init__(self, console: Console) -> None:
        """``console`` decides whether there is a terminal."""
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._rate = Rate()
        self._shown: Numbers | None = None
        self._shown_at = 0.0

    def __enter__(self) -> Display:
        """Begin to show."""
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the live numbers away; what comes after is printed below."""
        self._live.stop()

    def show(self, numbers: Numbers) -> None:
        """Show the numbers of now."""
        now = time.monotonic()
        rate = self._rate.of(numbers.batches, now)
        if self._console.is_terminal:
            self._live.update(_table(numbers, rate))
        elif numbers != self._shown and (
            now - self._shown_at >= _PLAIN_EVERY_SECONDS or _stage_changed(numbers, self._shown)
        ):
            self._console.print(_plain(numbers, rate), highlight=False, soft_wrap=True)
            self._shown, self._shown_at = numbers, now


def _stage_changed(numbers: Numbers, shown: Numbers | None) -> bool:
    return shown is None or (numbers.stage, numbers.trouble) != (shown.stage, shown.trouble)


def _plain(numbers: Numbers, rate: float) -> str:
    text = (
        f"{numbers.stage}: {numbers.files} files, {numbers.shipped} lines shipped, "
        f"{numbers.stored} messages stored, {numbers.rows} rows landed, "
        f"lag {numbers.lag} messages, {rate:.1f} batches/s"
    )
    return f"{text}; {numbers.trouble}" if numbers.trouble else text


def _table(numbers: Numbers, rate: float) -> Table:
    table = Table(title=f"penstock: {numbers.stage}", title_justify="left", show_header=False)
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


@dataclass
class Summary:
    """What there is at the end. The job is well when every message is one row, counted once."""

    messages: int
    rows: int
    distinct_lines: int
    foreign_rows: int
    counted: int
    drained: bool
    programs: list[tuple[str, int]] = field(default_factory=list)
    levels: list[tuple[str, int]] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether stream and tables hold the same: messages, rows, distinct (file, offset) and
        counts.
        """
        distinct = self.distinct_lines + self.foreign_rows
        return self.messages == self.rows == distinct == self.counted

    def print(self, console: Console, where: str) -> None:
        """Print it; PASS or FAIL is only said when all of the input was to be drained."""
        table = Table(title="Summary", title_justify="left", show_header=False)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("messages in stream", f"{self.messages:,}")
        table.add_row("rows in table lines", f"{self.rows:,}")
        table.add_row("distinct (file, offset)", f"{self.distinct_lines:,}")
        if self.foreign_rows:
            table.add_row("rows not from log files", f"{self.foreign_rows:,}")
        table.add_row("lines in table counts", f"{self.counted:,}")
        table.add_section()
        for program, lines in self.programs:
            table.add_row(f"program {program or '(none)'}", f"{lines:,}")
        table.add_section()
        for level, lines in self.levels:
            table.add_row(f"level {level}", f"{lines:,}")
        console.print(table)
        console.print(f"tables: {where}", highlight=False, soft_wrap=True)
        if self.agrees:
            console.print("PASS: every message is one row", highlight=False)
        elif self.drained:
            console.print("FAIL: stream and tables do not agree", highlight=False)
        else:
            console.print(
                "stopped before everything landed; the next run goes on from here", highlight=False
            )
