"""Bars for the progress of transfers and of loads, on stderr if that is a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(what: str, *, wanted: bool = True) -> Iterator[Callable[[int, int | None], None]]:
    """Yields a function for the bytes that are done, and the total or None."""
    if not wanted or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from pelton.core.base.quoting import shown

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(shown(what)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextlib.contextmanager
def counting_bar(what: str, total: int, *, wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Yields a function for the number of things that are done, of ``total``."""
    if not wanted or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn

    from pelton.core.base.quoting import shown

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[rate]}"),
    )
    started = time.monotonic()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task(escape(shown(what)), total=total, rate="")

        def tell(done: int) -> None:
            rate = done / max(time.monotonic() - started, 1e-9)
            bar.update(task, completed=done, rate=f"{int(rate):,}/s", refresh=True)

        yield tell


@contextlib.contextmanager
def stages_bar(*, wanted: bool = True) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function of the current step, its progress, and its total (None: not known)."""
    if not wanted or not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        )
