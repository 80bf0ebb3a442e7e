"""What the next run does with a changed file: the changes since the last run, each with its effect.

The definition of the last run (:mod:`pelton.pipeline.running.definition`) says what has changed; the
record of queries and their checkpoints say what follows from it. Needs no Spark and asks no server, so
faults that only Spark or a target finds are not known here.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.pipeline.description.graph import streams_of, upstream
from pelton.pipeline.running.definition import CODE, TOP, differences, parts_of, recorded
from pelton.pipeline.running.queries import checkpoint, committed, plan, recall
from pelton.spark.watching.report import sequences

if TYPE_CHECKING:
    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.description.problems import Problem
    from pelton.pipeline.running.definition import Definition, Keys
    from pelton.pipeline.running.queries import Memory, Query

ADDED, CHANGED, REMOVED, UNCHANGED = "added", "changed", "removed", "unchanged"
_PLACES = frozenset({"path", "upsert", "stream", "subject", "bucket", "table"})
_WHERE = frozenset({"stream", "streamPattern", "bucket"})
_FROM_NOW = "applies to batches from now on"
_OTHER = "give the sinks that read it other names and places, and they begin from nothing"
_STATEFUL = frozenset({"python", CODE, "with", "sql", "watermark", "columns", "select", "from"})
_FIXED = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.")


@dataclass(frozen=True)
class Change:
    """The change of a part, such as ``sinks.table``, and its effects in words.

    ``keys`` has the keys that differ, each with the value before and now. A refused change keeps the
    pipeline from running.
    """

    part: str
    kind: str
    keys: dict[str, tuple[str | None, str | None]] = field(default_factory=dict)
    effects: tuple[str, ...] = ()
    refused: bool = False

    def line(self) -> str:
        """The change in one line."""
        keys = f": {', '.join(self.keys)}" if self.keys else ""
        effects = f"; {'; '.join(self.effects)}" if self.effects else ""
        return f"{self.part} {self.kind}{keys}{effects}"


@dataclass(frozen=True)
class Upgrade:
    """All parts of a pipeline with their changes; ``last_run`` is None if it has never run."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    last_run: str | None

    @property
    def changed(self) -> list[Change]:
        """The changes, without unchanged parts."""
        return [each for each in self.changes if each.kind != UNCHANGED]

    @property
    def refused(self) -> bool:
        """Whether the pipeline cannot run as it is."""
        return any(each.refused for each in self.changes)


def upgrade_of(pipeline: Pipeline) -> Upgrade:
    """The upgrade from the last run to this file.

    Raises :class:`pelton.pipeline.running.queries.StateError`.
    """
    memory = recall(pipeline.state, pipeline.name)
    before = copy.deepcopy(memory)
    queries, problems = plan(pipeline, memory, lambda query: committed(pipeline.state, query))
    return compare(pipeline, before, queries, problems)


def compare(
    pipeline: Pipeline, before: Memory, queries: list[Query], problems: list[Problem]
) -> Upgrade:
    """As :func:`upgrade_of`, with the queries before, and those that are planned now."""
    return _Comparison(pipeline, before, queries, problems, recorded(pipeline.state)).upgrade()


class _Comparison:
    def __init__(
        self,
        pipeline: Pipeline,
        before: Memory,
        queries: list[Query],
        problems: list[Problem],
        last: Definition | None,
    ) -> None:
        self._pipeline = pipeline
        self._before = before
        self._queries = queries
        self._problems = problems
        self._last = last
        self._query_of = {sink: query for query in queries for sink in query.sinks}

    def upgrade(self) -> Upgrade:
        now = parts_of(self._pipeline)
        was = {} if self._last is None else self._last.parts
        changes = [self._part(part, was.get(part), now.get(part)) for part in {**now, **was}]
        order = {"sources": 1, "steps": 2, "sinks": 3}
        changes.sort(key=lambda each: order.get(each.part.partition(".")[0], 0))
        notes = []
        if self._last is None and self._before.queries:
            notes.append("the state folder does not say what the last run's file was")
        changed = {each.part.partition(".")[2] for each in changes if each.kind != UNCHANGED}
        notes += [note for query in self._queries if (note := self._interrupted(query, changed))]
        return Upgrade(tuple(changes), tuple(notes), self._last.at if self._last else None)

    def _part(self, part: str, was: Keys | None, now: Keys | None) -> Change:
        kind, _, name = part.partition(".")
        if part == TOP:
            return self._top(was, now or {})
        keys = differences(was, now) if was is not None and now is not None else {}
        change = CHANGED if keys else UNCHANGED
        if was is None:
            change = ADDED
        elif now is None:
            change = REMOVED
        effects, refused = {
            "sources": self._source,
            "steps": self._step,
            "sinks": self._sink,
        }[kind](name, change, keys)
        if refused and change == UNCHANGED:
            change = CHANGED  # by what it reads
        return Change(part, change, keys, tuple(effects), refused)

    def _top(self, was: Keys | None, now: Keys) -> Change:
        keys = {} if was is None else differences(was, now)
        effects = ["applies from the next start on"] if keys else []
        effects += [
            f"queries that have begun keep the {name} of their checkpoint"
            for name in keys
            if name.startswith(_FIXED)
        ]
        return Change(TOP, CHANGED if keys else UNCHANGED, keys, tuple(effects))

    def _sink(
        self, name: str, change: str, keys: dict[str, tuple[str | None, str | None]]
    ) -> tuple[list[str], bool]:
        label = f"sinks.{name}: "
        wrong = [
            each.text.removeprefix(label) for each in self._problems if each.text.startswith(label)
        ]
        if wrong:
            return [f"refused: {text}" for text in wrong], True
        former = self._before.of(name)
        query = self._query_of.get(name)
        if change == REMOVED:
            return [self._left(former)], False
        if change == ADDED and query is not None:
            return [self._begins(name, query, former)], False
        effects = []
        if _PLACES & keys.keys():
            effects.append("the new place begins with the rows from now on; the old one stays")
        if "keys" in keys:
            effects.append("rows that the table has stay as they are: give new keys a new place")
        if keys.keys() - _PLACES - {"keys"}:
            effects.append(_FROM_NOW)
        return effects, False

    def _left(self, former: str | None) -> str:
        if former is None:
            return "it had not begun"
        if any(query.name == former for query in self._queries):
            return (
                f"query {former} continues without it; it can come back until {former} has done"
                " another batch"
            )
        return f"query {former} stops; its position stays in the state folder"

    def _begins(self, name: str, query: Query, former: str | None) -> str:
        if former is not None:
            batch = committed(self._pipeline.state, former)
            return f"continues in query {former} after batch {batch}"
        starts = []
        for source in streams_of(self._pipeline, name):
            options = self._pipeline.sources[source].options
            given = next((v for k, v in options.items() if k.lower() == "startingoffsets"), None)
            starts.append(source if given is None else f"{source} from {given}")
        return f"begins with a new query, {query.name}, which reads {', '.join(starts)}"

    def _step(
        self, name: str, change: str, keys: dict[str, tuple[str | None, str | None]]
    ) -> tuple[list[str], bool]:
        if change != CHANGED:
            return [], False
        effects = [_FROM_NOW]
        own = [
            query.name
            for query in self._queries
            if not query.shared and self._begun(query) and self._reads(query, name)
        ]
        if own and _STATEFUL & keys.keys():
            effects.append(
                f"if query {' or '.join(own)} keeps state, Spark may refuse the old one; then give"
                " the sink another name and place"
            )
        return effects, False

    def _source(
        self, name: str, change: str, keys: dict[str, tuple[str | None, str | None]]
    ) -> tuple[list[str], bool]:
        if change != CHANGED:
            return [], False
        begun = [each for each in self._queries if name in each.sources and self._begun(each)]
        if not begun:
            return [_FROM_NOW], False
        names = ", ".join(query.name for query in begun)
        if "format" in keys:
            before = keys["format"][0]
            return [f"refused: query {names} began with format {before}: {_OTHER}"], True
        effects = []
        if _WHERE & keys.keys():
            for query in begun:
                if lost := self._lost(name, query):
                    return [f"refused: {lost}: {_OTHER}"], True
            effects.append("a stream that is new is read whole; one that is gone is left")
        if "startingOffsets" in keys:
            effects.append(f"only for queries that begin; {names} continues from its position")
        if "servers" in keys:
            effects.append("the stream there must be the same one, not one that was created anew")
        if "consumer" in keys and (old := keys["consumer"][0]):
            effects.append(f"consumer {old} stays on the server until you delete it")
        if keys.keys() - _WHERE - {"startingOffsets", "servers", "consumer"}:
            effects.append(_FROM_NOW)
        return effects, False

    def _lost(self, source: str, query: Query) -> str:
        """The reason why a query cannot continue with the streams that a source names now; or ""."""
        options = {k.lower(): v for k, v in self._pipeline.sources[source].options.items()}
        named = [each.strip() for each in options.get("stream", "").split(",") if each.strip()]
        if "bucket" in options:
            named = [f"KV_{options['bucket']}"]
        place = query.sources.index(source)
        offsets = self._offsets(query)
        read = sequences(offsets[place]) if place < len(offsets) else {}
        if not named or not read or set(read) & set(named):
            return ""
        where = ", ".join(f"{name} up to sequence {seq:,}" for name, seq in read.items())
        return f"query {query.name} has read {where}, and cannot continue with {', '.join(named)}"

    def _offsets(self, query: Query) -> list[str]:
        batch = committed(self._pipeline.state, query.name)
        path = checkpoint(self._pipeline.state, query.name) / "offsets" / str(batch)
        try:
            return path.read_text().splitlines()[2:]
        except OSError:
            return []

    def _begun(self, query: Query) -> bool:
        return query.name in self._before.queries

    def _reads(self, query: Query, node: str) -> bool:
        return any(node in upstream(self._pipeline, sink) for sink in query.sinks)

    def _interrupted(self, query: Query, changed: set[str]) -> str:
        batch = committed(self._pipeline.state, query.name) + 1
        folder = checkpoint(self._pipeline.state, query.name)
        if not (folder / "offsets" / str(batch)).exists():
            return ""
        nodes = {each for sink in query.sinks for each in upstream(self._pipeline, sink)}
        if not nodes & changed:
            return ""
        return (
            f"query {query.name} was interrupted in batch {batch}, which runs again with the changes;"
            " a sink that has it with another number of rows refuses it"
        )
