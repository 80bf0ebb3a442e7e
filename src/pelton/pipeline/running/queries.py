"""Assigns sinks to queries, and records the assignment in the state folder.

Sinks that begin together and have the same cut (:mod:`pelton.pipeline.description.graph`) share
one query, which reads its sources once. The checkpoint of a query has its position, which is the
same for all its sinks. So the sinks of a query never change silently::

    sink is new                      it gets its own query, from startingOffsets on
    sink is removed for a while      its query continues; it may return until the query has moved
    sink reads other sources now     refused: with another name the sink begins from nothing

One file is enough: ``pipeline.json`` has the queries, their checkpoints have the rest.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pelton.pipeline.description.graph import cut_of, streams_of
from pelton.pipeline.description.problems import Problem, Problems
from pelton.pipeline.running.durable import write_durably

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pelton.pipeline.description.model import Pipeline, Sink

RECORD = "pipeline.json"
_VERSION = 1


@dataclass
class Begun:
    """A query that was begun; ``left`` has the batch after which each removed sink left."""

    sources: list[str]
    shared: bool
    sinks: list[str] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)


@dataclass
class Memory:
    """The queries of a pipeline that were ever begun, by name."""

    pipeline: str
    queries: dict[str, Begun] = field(default_factory=dict)

    def of(self, sink: str) -> str | None:
        """The query that a sink belonged to."""
        for name, begun in self.queries.items():
            if sink in begun.sinks or sink in begun.left:
                return name
        return None


@dataclass(frozen=True)
class Query:
    """A query to run: it streams up to ``cut``; a shared one hands each batch to its sinks."""

    name: str
    cut: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    shared: bool


class StateError(RuntimeError):
    """The state folder cannot be used; the text says why."""


def checkpoint(state: Path, query: str) -> Path:
    """The folder of a query's checkpoint."""
    return state / "checkpoints" / query


def committed(state: Path, query: str) -> int:
    """The last batch that Spark recorded as done; -1 before the first."""
    return last_batch(checkpoint(state, query) / "commits")


def last_batch(folder: Path) -> int:
    """The greatest number of a file in a folder of a checkpoint; -1 if there is none."""
    try:
        names = os.listdir(folder)
    except OSError:
        return -1
    return max((int(name) for name in names if name.isdigit()), default=-1)


def offsets_of(path: Path) -> list[str]:
    """The offsets of the sources in a file of a checkpoint, as Spark wrote them; [] if it is not there."""
    try:
        return path.read_text().splitlines()[2:]
    except OSError:
        return []


def recall(state: Path, pipeline: str) -> Memory:
    """The recorded queries, except those without a checkpoint, which were not begun.

    Raises :class:`StateError`.
    """
    path = state / RECORD
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        queries = {
            name: Begun(
                [str(each) for each in one["sources"]],
                bool(one["shared"]),
                [str(each) for each in one["sinks"]],
                {str(each): int(batch) for each, batch in one["left"].items()},
            )
            for name, one in data["queries"].items()
            if any(checkpoint(state, name).glob("offsets/[0-9]*"))
        }
        memory = Memory(str(data["pipeline"]), queries)
    except FileNotFoundError:
        return Memory(pipeline)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(f"{path} cannot be read: {error!r}") from None
    if memory.pipeline != pipeline:
        raise StateError(
            f"{state} is the state of pipeline {memory.pipeline}, not of {pipeline}: choose another"
            " folder with state: or --state"
        )
    return memory


def remember(state: Path, memory: Memory) -> None:
    """Write the record durably."""
    queries = {name: vars(begun) for name, begun in memory.queries.items()}
    text = json.dumps({"version": _VERSION, "pipeline": memory.pipeline, "queries": queries})
    write_durably(state / RECORD, text)


def plan(
    pipeline: Pipeline, memory: Memory, committed_of: Callable[[str], int]
) -> tuple[list[Query], list[Problem]]:
    """The queries to run. Updates ``memory``; write it down before you start them.

    ``committed_of`` gives the last batch of a query by its name.
    """
    return _Planner(pipeline, memory, committed_of).plan()


class _Planner:
    def __init__(
        self, pipeline: Pipeline, memory: Memory, committed_of: Callable[[str], int]
    ) -> None:
        self._pipeline = pipeline
        self._memory = memory
        self._committed_of = committed_of
        self._problems = Problems()
        self._running: dict[str, list[Sink]] = {}

    def plan(self) -> tuple[list[Query], list[Problem]]:
        for sink in self._pipeline.sinks.values():
            name = self._memory.of(sink.name)
            if name is not None and self._may_go_on(sink, name):
                self._running.setdefault(name, []).append(sink)
        self._place_new()
        for name, begun in self._memory.queries.items():
            sinks = [sink.name for sink in self._running.get(name, [])]
            for gone in set(begun.sinks) - set(sinks):
                begun.left[gone] = self._committed_of(name)
            begun.left = {each: batch for each, batch in begun.left.items() if each not in sinks}
            begun.sinks = sinks
        queries = [self._query(name, sinks) for name, sinks in self._running.items()]
        return queries, self._problems.found

    def _may_go_on(self, sink: Sink, name: str) -> bool:
        """Whether a sink can continue in its former query."""
        begun = self._memory.queries[name]
        sources = list(streams_of(self._pipeline, sink.name))
        hint = "give the sink another name and place, and it begins from nothing"
        if begun.shared != sink.shareable:
            was, now = ("shared", "its own") if begun.shared else ("its own", "shared")
            self._tell(sink, f"its query {name} began as {was} and cannot become {now}: {hint}")
        elif begun.sources != sources:
            self._tell(
                sink,
                f"its query {name} began with {', '.join(begun.sources)}, but it reads"
                f" {', '.join(sources)} now: {hint}",
            )
        elif begun.shared and begun.left.get(sink.name, at := self._committed_of(name)) != at:
            self._tell(
                sink,
                f"it was left out since batch {begun.left[sink.name]} of query {name}, which is now"
                f" at batch {at}, so it lacks the rows between: {hint}",
            )
        else:
            return True
        return False

    def _place_new(self) -> None:
        groups: dict[str, str] = {}
        for sink in self._pipeline.sinks.values():
            if self._memory.of(sink.name) is not None:
                continue
            cut = cut_of(self._pipeline, sink)
            if not sink.shareable:
                name = self._free(sink.name)
            else:
                name = groups.get(cut) or self._free(cut)
                groups[cut] = name
            sources = list(streams_of(self._pipeline, sink.name))
            begun = self._memory.queries.setdefault(name, Begun(sources, sink.shareable))
            begun.sinks.append(sink.name)
            self._running.setdefault(name, []).append(sink)

    def _free(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._memory.queries:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def _query(self, name: str, sinks: list[Sink]) -> Query:
        begun = self._memory.queries[name]
        cuts = {cut_of(self._pipeline, sink): sink for sink in sinks}
        if begun.shared and len(cuts) > 1:
            for cut, sink in list(cuts.items())[1:]:
                self._tell(
                    sink,
                    f"it shares query {name} with others, whose ways meet in {next(iter(cuts))}, its"
                    f" own in {cut}: have them read one step again",
                )
        return Query(
            name,
            next(iter(cuts)),
            tuple(begun.sources),
            tuple(sink.name for sink in sinks),
            begun.shared,
        )

    def _tell(self, sink: Sink, text: str) -> None:
        self._problems.add(sink.line, f"sinks.{sink.name}: {text}")
