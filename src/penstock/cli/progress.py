"""A bar for the progress of a transfer, on stderr if that is a terminal."""

from __future__ import annotations

import contextlib
import sys
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

    from penstock.core.base.quoting import shown

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(shown(what)), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
