"""Event stores of every kind for one test body: SQLite, and MongoDB on ours and on an installed ``mongod``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pelton.plgd.store import SqliteStore
from pelton.plgd.store.mongo import MongoStore
from tests.plgd.mongods import MONGOD, running_mongod

KINDS = [
    "sqlite",
    "mongo",
    pytest.param(
        "mongod",
        marks=pytest.mark.skipif(
            MONGOD is None, reason="no mongod is installed (PATH, or PELTON_MONGOD=file)"
        ),
    ),
]


def open_place(place: str, history: bool = True) -> Any:
    """The store at a place: a URL of MongoDB or a file. With history it keeps events."""
    if place.startswith("mongodb:"):
        return MongoStore.connect(place, every_event=history)
    return SqliteStore(place, history=history)


Opener = Callable[..., Any]


class Place:
    """Where a store is; call it to open the store."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __call__(self, history: bool = True) -> Any:
        return open_place(self.place, history)


def places(kind: str, folder: Path) -> Iterator[Place]:
    """A place for a store of a kind."""
    if kind == "sqlite":
        yield Place(str(folder / "store"))
        return
    with running_mongod("ours" if kind == "mongo" else "mongod") as server:
        yield Place(server.url)
