"""Event stores on the command line: a SQLite file, or the URL of a MongoDB server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pelton.cli.inputs import read_input
from pelton.cli.plgd.lines import needs
from pelton.errors import not_installed

if TYPE_CHECKING:
    from pelton.plgd.store import EventStore


TARGET = re.compile(r"(?:[^\s:/]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
"""An address: host:port."""


def open_store(place: str) -> EventStore:
    """The event store of a SQLite file or of MongoDB; a file that is missing is an error, not a new store."""
    if place.startswith(("mongodb://", "mongodb+srv://")):
        try:
            from pelton.plgd.store.mongo import MongoStore
        except ImportError as problem:
            raise click.ClickException(str(not_installed(problem, "plgd,mongo"))) from None
        return MongoStore.connect(place)
    try:
        from pelton.plgd.store import SqliteStore
    except ImportError as problem:
        raise needs(problem) from None
    if not Path(place).is_file():
        raise click.ClickException(f"there is no event store {place}")
    return SqliteStore(place)


def contents(path: str, what: str) -> bytes:
    """A file's bytes; ClickException if it cannot be read."""
    try:
        return read_input(Path(path))
    except OSError as error:
        raise click.ClickException(f"cannot read {what} {path}: {error.strerror}") from None


def pem(path: str, what: str) -> bytes:
    """A file's bytes; ClickException if it is no PEM."""
    data = contents(path, what)
    if b"-----BEGIN " not in data:
        raise click.ClickException(f"{what} {path} is no PEM file")
    return data
