"""Drivers of one query that die, start again, race and overtake each other: a model of what a table
must hold then, for any kind of table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from hypothesis import strategies as st

from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import TableError


class Store(Protocol):
    """A table in a place of its own."""

    def tables(self) -> Any:
        """What a process that has just started knows of tables."""

    def write_of(self, seqs: Iterable[int], mark: Mark) -> Any:
        """Files with these rows, to be committed."""

    def add(self, table: Any, write: Any) -> None:
        """One attempt to commit to the table as it was read."""

    def commit(self, tables: Any, write: Any, change: Callable[[Any], None]) -> bool:
        """What a driver does, with ``change`` for each attempt."""

    def maintain(self) -> None:
        """What somebody else does to the table meanwhile."""

    def sequences(self) -> list[int]:
        """What another reader finds, in order."""


@dataclass
class Driver:
    """One driver of the query: a process, a run in it, and where the run is."""

    tables: Any
    run: str
    batch: int
    met: bool = False  # whether another driver was there in its time
    written: Any = None


class Query:
    """Drivers that share one checkpoint, and die, start again, race and overtake each other at any
    point between reading the checkpoint and noting a batch in it.
    """

    def __init__(self, store):
        self.store = store
        self.checkpoint = -1  # the last batch noted as done
        self.batches = {}  # what each batch holds: planned once, as in Spark's offset log
        self.committed = set()
        self.drivers = {}
        self.runs = 0

    def rows(self, batch):
        if batch not in self.batches:
            first = sum(len(rows) for rows in self.batches.values())
            self.batches[batch] = range(first, first + 1 + batch % 3)
        return self.batches[batch]

    def start(self, name, *, same_process):
        before = self.drivers.get(name)
        tables = before.tables if before and same_process else self.store.tables()
        self.runs += 1
        self.drivers[name] = Driver(tables, f"run {self.runs}", self.checkpoint + 1)
        for driver in self.drivers.values():
            driver.met |= len(self.drivers) > 1

    def write(self, name):
        driver = self.drivers[name]
        mark = Mark("q", driver.batch, driver.run)
        driver.written = self.store.write_of(self.rows(driver.batch), mark)

    def commit(self, name, *, noted, rival=None, late_error=False):
        driver = self.drivers[name]

        def change(table):
            if rival is not None and rival in self.drivers:
                self.commit(rival, noted=True)
            self.store.add(table, driver.written)
            if late_error:
                raise OSError("the answer got lost")

        try:
            made = self.store.commit(driver.tables, driver.written, change)
        except TableError as refused:
            if not driver.met:  # who is alone is never refused
                raise AssertionError from refused
            del self.drivers[name]
            return
        assert made == (driver.batch not in self.committed)
        self.committed.add(driver.batch)
        if not noted:
            del self.drivers[name]  # killed between the two
            return
        self.checkpoint = max(self.checkpoint, driver.batch)
        driver.batch += 1
        driver.written = None

    def step(self, name, action, other):
        if name not in self.drivers:
            self.start(name, same_process=False)
        elif action == "restart":
            self.start(name, same_process=other)
        elif action == "kill":
            del self.drivers[name]
        elif action == "maintain" and self.committed:
            self.store.maintain()
        else:
            if self.drivers[name].written is None:
                self.write(name)
            if action == "write":
                return
            rival = {"a": "b", "b": "a"}[name] if action == "race" else None
            if rival is not None and rival not in self.drivers:
                self.start(rival, same_process=False)
            if rival is not None and self.drivers[rival].written is None:
                self.write(rival)
            died = action == "die before the note"
            self.commit(name, noted=not died, rival=rival, late_error=other)

    def check(self):
        """The table holds batches 0 to n, the rows of each once."""
        if self.committed:
            assert self.committed == set(range(max(self.committed) + 1))
            wanted = [seq for batch in self.committed for seq in self.batches[batch]]
            assert self.store.sequences() == sorted(wanted)


ACTIONS = ["commit", "die before the note", "write", "race", "kill", "restart", "maintain"]
STEPS = st.tuples(st.sampled_from("aaab"), st.sampled_from(ACTIONS), st.booleans())
