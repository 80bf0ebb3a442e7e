"""Which node reads which: orders, cycles, and the node where the paths to a sink meet.

The *cut* of a sink is the first node that all its paths from streams pass through::

    a ──► x ──┐                          sink of a alone: its cut is a
              ├──► both ──► good ──► sink    of both: its cut is both
    b ────────┘

One query can feed the sinks that have the same cut: Spark streams up to the cut, and behind it each
micro-batch goes to all of them. Does not know Spark.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from pelton.pipeline.description.model import node_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.pipeline.description.model import Pipeline, Sink, Step


def ordered(pipeline: Pipeline) -> list[str]:
    """Sources and steps, each after its inputs, otherwise in the order of the file.

    Ignores unknown names. Raises ``graphlib.CycleError``.
    """
    nodes = [*pipeline.sources, *pipeline.steps]
    known = set(nodes)
    graph = {name: [each for each in pipeline.inputs(name) if each in known] for name in nodes}
    TopologicalSorter(graph).prepare()
    made: list[str] = []
    done: set[str] = set()

    def visit(name: str) -> None:
        if name not in done:
            done.add(name)
            for each in graph[name]:
                visit(each)
            made.append(name)

    for name in nodes:
        visit(name)
    return made


def circle(pipeline: Pipeline) -> list[str]:
    """A cycle of steps, with the first one again at the end; [] if there is none."""
    try:
        ordered(pipeline)
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def upstream(pipeline: Pipeline, name: str) -> set[str]:
    """A node and everything that it reads, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += pipeline.inputs(each)
    return found


def streams_of(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    """The streamed sources of a node, in the order it reads them."""
    found: list[str] = []

    def visit(each: str) -> None:
        source = pipeline.sources.get(each)
        if source is not None and not source.static and each not in found:
            found.append(each)
        for other in pipeline.inputs(each):
            visit(other)

    visit(name)
    return tuple(found)


def cut_of(pipeline: Pipeline, sink: Sink) -> str:
    """The first node that all streams of a sink pass through."""
    goal = pipeline.inputs(sink.name)[0]
    behind = upstream(pipeline, goal)

    def reaches_a_stream(name: str, without: str) -> bool:
        if name == without:
            return False
        source = pipeline.sources.get(name)
        if source is not None:
            return not source.static
        return any(reaches_a_stream(each, without) for each in pipeline.inputs(name))

    for name in ordered(pipeline):
        if name in behind and streams_of(pipeline, name) and not reaches_a_stream(goal, name):
            return name
    return goal


def uncatchable(pipeline: Pipeline, step: Step) -> Iterator[str]:
    """Why the rows of a step that throw cannot be rejected: they are found in a batch of a query."""
    streamed = [each for each in step.inputs if streams_of(pipeline, node_of(each))]
    if len(streamed) != 1:
        yield (
            f"the step has {len(streamed)} streamed inputs, but must have one; combine them in an"
            " earlier step"
        )
        return
    for sink in pipeline.sinks.values():
        if step.name not in upstream(pipeline, sink.name):
            continue
        cut = cut_of(pipeline, sink)
        if step.name in upstream(pipeline, cut):
            yield (
                f"the streams of sinks.{sink.name} meet in {cut}, and only steps after it can reject"
                f" rows that throw; use expect with try_cast here, or do this after {cut}"
            )
        elif not sink.once_by_batch:
            yield (
                f"sinks.{sink.name} has {'mode ' + sink.mode if sink.mode != 'append' else sink.format},"
                " which cannot skip a batch that it has; use expect with try_cast here, or a format of"
                " this package with mode append there"
            )


def readers(pipeline: Pipeline, name: str) -> list[str]:
    """The steps and sinks that read a node, in the order of the file."""
    return [each for each in (*pipeline.steps, *pipeline.sinks) if name in pipeline.inputs(each)]
