"""Common parts of ``pelton store``: the folder, exit statuses, progress, confirmation.

Exit status: 0 everything is sound (or done); 1 damage was found, or is left, or there is no store;
2 the command could not do its work (in use, the disk refuses, wrong usage); 130 interrupted.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.output import print_json
from pelton.cli.tree import Lazy
from pelton.core.base.quoting import shown
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.cli.session import Session

F = TypeVar("F", bound="Callable[..., object]")

SOUND, DAMAGED, FAILED = 0, 1, 2
NO_STORE = DAMAGED

STORE = "PELTON_STORE"

STREAMS = click.option("--stream", "streams", multiple=True, help="Only this stream; repeatable.")


class StoreFailure(click.ClickException):
    """The command could not do its work; has the exit status."""

    exit_code = FAILED


class NoStoreThere(StoreFailure):
    """There is no store in the folder or below it."""

    exit_code = NO_STORE


class StoreGroup(Lazy):
    """The group of commands, which have exit statuses of their own for failures."""

    def invoke(self, ctx: click.Context) -> Any:
        """The status of the command; StoreFailure."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, click.exceptions.NoArgsIsHelpError, click.UsageError):
            raise
        except click.ClickException as mistake:
            raise StoreFailure(mistake.format_message()) from mistake
        except (PeltonError, OSError, ValueError) as problem:
            from pelton.store.layout import NoStoreError

            failure = NoStoreThere if isinstance(problem, NoStoreError) else StoreFailure
            raise failure(str(problem) or type(problem).__name__) from problem


def complain(text: str) -> None:
    """Print one line on stderr; the command continues."""
    print(f"pelton: {shown(' '.join(text.split()))}", file=sys.stderr)


def store_argument(function: F) -> F:
    """The folder, from an argument or the environment."""
    made = click.argument("store", envvar=STORE, required=True, type=click.Path(file_okay=False))
    return made(function)


@contextlib.contextmanager
def progress(session: Session, what: str, total: int) -> Iterator[Callable[[int], object]]:
    """A progress bar on stderr, if that is a terminal; called with the number of bytes done."""
    if session.as_json or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True))
    with Progress(
        *columns, TransferSpeedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)


def show_json(value: object) -> None:
    """A report as JSON."""
    import msgspec

    print_json(msgspec.to_builtins(value))


def style(text: str, state: str) -> str:
    """The text with the colour of its state, on a terminal."""
    colours = {"sound": "green", "damaged": "red", "not recoverable": "red", "worn": "yellow"}
    colours |= {"lost": "red", "note": "cyan", "ok": "green"}
    if not sys.stdout.isatty() or state not in colours:
        return text
    return click.style(text, fg=colours[state], bold=state in ("lost", "damaged"))


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Lock a folder for this process, as a server locks its store; StoreError."""
    from pelton.core.log.store_lock import FolderInUse, FolderLock
    from pelton.store.layout import StoreError

    try:
        lock = FolderLock(folder)
    except FolderInUse as other:
        raise StoreError(f"{folder} is in use by another process (pid {other.pid})") from None
    try:
        yield
    finally:
        lock.close()
