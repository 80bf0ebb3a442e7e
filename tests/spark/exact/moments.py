"""When the job is killed, and what the kill met.

==============  ===================================================================================
``startup``     from the start of the process to where its first batch may begin
``under way``   a batch is being read or written
``landed``      a batch is in the lake or in the stream, and Spark has not noted it yet
==============  ===================================================================================

A moment is aimed at; what was met is looked up afterwards, in the checkpoint and in what the job
writes into.
"""

from __future__ import annotations

import base64
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Protocol

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from pelton.spark.iceberg.options import DEFAULT_CATALOG, address
from pelton.spark.tables.commits import Tables
from tests.spark.exact.lives import Job
from tests.spark.exact.reading import Line

STARTUP, UNDER_WAY, LANDED = "startup", "under way", "landed"
_WEIGHTS = {STARTUP: 2, UNDER_WAY: 4, LANDED: 4}
BEGIN_SECONDS = 600.0
_STEADY_SECONDS = 0.03
_PARTITIONS = 16  # more than a batch has here
_NOTHING_SECONDS = 60.0  # then there is nothing more to do, and the kill meets that
_COPIED_SECONDS = 15.0  # the same where all that is to be written was there from the begin


class Watched(Protocol):
    """What a step writes into."""

    def landed(self) -> int:
        """A number that grows as batches arrive."""

    def met(self, query: str, batch: int) -> str:
        """How far a batch is that Spark has not noted."""


class Lake:
    """A table."""

    steady = False

    def __init__(self, path: str) -> None:
        self._path = path

    def landed(self) -> int:
        log = Path(self._path, "_delta_log")
        versions = [int(p.stem) for p in log.glob("*.json") if p.stem.isdigit()]
        return max(versions, default=-1)

    def met(self, query: str, batch: int) -> str:
        try:
            held = DeltaTable(self._path).transaction_version(query)
        except TableNotFoundError:
            held = None
        return "in the table, not noted" if held is not None and held >= batch else UNDER_WAY


class Upserted:
    """An Iceberg table of counts."""

    steady = False

    def __init__(self, name: str, catalog: dict[str, str]) -> None:
        self._where = address(name, DEFAULT_CATALOG, catalog)

    def landed(self) -> int:
        table = Tables().opened(self._where)
        return -1 if table is None else table.version()

    def met(self, query: str, batch: int) -> str:
        table = Tables().opened(self._where)
        held = None if table is None else table.last(query)
        return "in the table, not noted" if held is not None and held >= batch else UNDER_WAY


class Copy:
    """A stream that a table is written into; `marks` is where the sink's records are."""

    steady = True

    def __init__(self, port: int, stream: str, once: str) -> None:
        self._line = Line(port)
        self._stream = stream
        if once == "ids":
            self._kept, self._marks = "KV_pelton_spark", "$KV.pelton_spark.{query}." + stream
            self._done = "rows"  # which a record has when all are in
        else:
            self._kept, self._marks = stream, "spark.progress." + stream + ".{query}"
            self._done = "done"

    def landed(self) -> int:
        count = self._line.wire().ok(f"STREAM.INFO.{self._stream}")["state"]["messages"]
        return int(count)

    def met(self, query: str, batch: int) -> str:
        states = []
        for partition in range(_PARTITIONS):
            subject = f"{self._marks.format(query=query)}.{partition}"
            answer = self._line.wire().api(
                f"STREAM.MSG.GET.{self._kept}", {"last_by_subj": subject}
            )
            if "error" in answer:
                continue  # a partition without rows, or not begun
            record = json.loads(base64.b64decode(answer["message"].get("data", "")) or b"{}")
            if record.get("epoch", 0) == batch:
                done = record.get(self._done) not in (None, False)
                states.append(done)
        if not states:
            return "no row in the stream"
        return "all rows begun are in, not noted" if all(states) else "some rows in the stream"


class Checkpoint:
    """How far Spark says a query is; of a batch job without one, nothing is ever noted."""

    def __init__(self, step: dict[str, Any]) -> None:
        folder = step.get("checkpoint")
        self._folder = None if folder is None else Path(folder)
        self._write_id = step.get("write_id", "")

    def _newest(self, kind: str) -> int:
        if self._folder is None or not (self._folder / kind).is_dir():
            return -1
        names = [p.name for p in (self._folder / kind).iterdir() if p.name.isdigit()]
        return max(map(int, names), default=-1)

    @property
    def planned(self) -> int:
        return 0 if self._folder is None else self._newest("offsets")

    @property
    def noted(self) -> int:
        return self._newest("commits")

    def batch_seconds(self) -> float:
        """How long a batch takes, about: the time from one note to the next."""
        if self._folder is None or self.noted < 1:
            return 1.5
        folder = self._folder / "commits"
        times = sorted(p.stat().st_mtime for p in folder.iterdir() if p.name.isdigit())
        return statistics.median(b - a for a, b in pairwise(times))

    @property
    def query(self) -> str:
        if self._folder is None:
            return str(self._write_id)
        found = self._folder / "metadata"
        return str(json.loads(found.read_text())["id"]) if found.exists() else ""


def deck(rng: Random, kills: int, first: str) -> list[str]:
    """At which moments a step is killed: the first as told, the others by chance."""
    others = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=max(0, kills - 1))
    return [first, *others][:kills]


class Aim:
    """Waits for the moment to kill a life."""

    def __init__(
        self,
        job: Job,
        step: dict[str, Any],
        watched: Lake | Copy | Upserted,
        rng: Random,
        began: Callable[[], None],
    ) -> None:
        """`began` is called when the step has begun; that of a table, when it has rows."""
        self._began = began
        self._job = job
        self._step = step
        self._watched = watched
        self._rng = rng
        self._checkpoint = Checkpoint(step)

    def wait(self, moment: str) -> bool:
        """True when it has come; False when the life ended before by itself."""
        checkpoint, rng = self._checkpoint, self._rng
        if moment == STARTUP:
            return self._sleep(rng.uniform(0.2, 9.0))
        noted = checkpoint.noted
        if not self._until(lambda: self._job.said(f"began {self._step['name']}"), 0.02):
            return False
        if not self._watched.steady and not self._until(lambda: self._watched.landed() > 0, 0.01):
            return False
        self._began()
        nothing = _COPIED_SECONDS if self._watched.steady else _NOTHING_SECONDS
        skip = 0 if self._step["kind"] == "copy-batch" else rng.randrange(2)
        if not self._until(lambda: checkpoint.noted >= noted + skip, 0.005, nothing):
            return False
        landed = self._watched.landed()
        seconds = checkpoint.batch_seconds()
        self._until(lambda: checkpoint.planned > checkpoint.noted, 0.003, nothing)
        if moment == UNDER_WAY and self._watched.steady and rng.random() < 0.7:
            # Writing is a small part of a batch's time: the first rows that arrive tell of it.
            self._until(lambda: self._watched.landed() > landed, 0.002, nothing)
            return self._sleep(rng.uniform(0, 0.01))
        if moment == UNDER_WAY:
            return self._sleep(rng.uniform(0, seconds))
        self._until(lambda: self._watched.landed() > landed, 0.002, nothing)
        if self._watched.steady and not self._until_steady():
            return False
        return self._sleep(rng.uniform(0, 0.02))

    def _until_steady(self) -> bool:
        count, since = self._watched.landed(), time.monotonic()
        while time.monotonic() - since < _STEADY_SECONDS:
            if self._job.status is not None:
                return False
            time.sleep(0.004)
            now = self._watched.landed()
            if now != count:
                count, since = now, time.monotonic()
        return True

    def _sleep(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._job.status is None:
            time.sleep(min(0.05, max(0.0, end - time.monotonic())))
        return self._job.status is None

    def _until(self, done: Callable[[], bool], every: float, at_most: float = 0.0) -> bool:
        end = time.monotonic() + (at_most or BEGIN_SECONDS)
        while not done():
            if self._job.status is not None:
                return False
            if time.monotonic() > end:
                if at_most:
                    break
                raise TimeoutError(
                    f"life {self._job.number} does not go on: {self._job.last_words()}"
                )
            time.sleep(every)
        return self._job.status is None

    def met(self) -> str:
        """What the kill met, looked up afterwards."""
        checkpoint = self._checkpoint
        if not self._job.said(f"began {self._step['name']}"):
            return STARTUP
        if checkpoint.planned <= checkpoint.noted:
            return "between batches"
        return self._watched.met(checkpoint.query, checkpoint.planned)
