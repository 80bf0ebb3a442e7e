"""The start of ``pelton plgd run`` and ``backfill``: lock the folder, and find where to continue."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.values import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pelton.client.base.models import StreamInfo
    from pelton.plgd.spark.lake import Lake

EARLIEST = "earliest"
_WORDS = re.compile(r"(\d+) *(millisecond|second|minute|hour)s?")


class Interval(Duration):
    """A duration as `Duration`, or in Spark's words (``5 seconds``). In Spark's words."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Spark's words."""
        text = str(value).strip()
        if _WORDS.fullmatch(text):
            return text
        return f"{super().convert(text, param, ctx) // 1_000_000} milliseconds"


@contextmanager
def alone_on(folder: Path) -> Iterator[None]:
    """Locks a folder for the time of the context; an error when another run has locked it."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "run.lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise click.ClickException(
                f"another run works on {folder} (process {file.read().strip() or 'unknown'})"
            ) from None
        except OSError:
            pass  # a file system without locks: the tables' marks still refuse the second
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def beginning(
    lake: Lake, checkpoint: Path, stream: str, info: StreamInfo, *, allow_data_loss: bool
) -> str:
    """Where a run begins to read: at its checkpoint, or after the last message in the tables."""
    from pelton.plgd.spark.resuming import begin_behind, finish_last_batch, is_fresh
    from pelton.spark.tables.places import TableError

    if not is_fresh(checkpoint):
        return EARLIEST
    try:
        place = finish_last_batch(lake)
        if place is None:
            return EARLIEST
        born = datetime.fromtimestamp(info.created / 1e9, UTC)
        begin = begin_behind(place, stream, born, info.state.last_seq)
    except TableError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{checkpoint} has no position: continuing after sequence {place.seq}", err=True)
    if info.state.first_seq > place.seq + 1 and not allow_data_loss:  # Spark would say so later
        raise click.ClickException(
            f"stream {stream} begins at sequence {info.state.first_seq}; {begin} and later were not read"
            " yet. --allow-data-loss goes on with what is left"
        )
    return begin
