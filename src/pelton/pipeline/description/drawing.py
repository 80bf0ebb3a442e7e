"""A pipeline's graph as text, drawn from its sources to its sinks.

A node with several inputs is drawn below its first input; the other inputs point to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.pipeline.description.graph import readers
from pelton.pipeline.description.model import REJECTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.pipeline.description.model import Pipeline, Sink, Source, Step

_WIDEST = 60


def draw(pipeline: Pipeline) -> list[str]:
    """Lines of text."""
    drawn: set[str] = set()
    lines: list[str] = []
    for name in pipeline.sources:
        lines.append(f"{name}  {_source(pipeline.sources[name])}")
        lines += _below(pipeline, name, "", drawn)
    return lines


def _below(pipeline: Pipeline, name: str, indent: str, drawn: set[str]) -> Iterator[str]:
    children = readers(pipeline, name)
    for place, child in enumerate(children):
        last = place == len(children) - 1
        branch, trunk = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if child in drawn:
            yield f"{indent}{branch}{child} ↑"
            continue
        drawn.add(child)
        yield f"{indent}{branch}{_node(pipeline, child, name)}"
        yield from _below(pipeline, child, indent + trunk, drawn)


def _node(pipeline: Pipeline, name: str, parent: str) -> str:
    if name in pipeline.sinks:
        sink = pipeline.sinks[name]
        rejected = "rejected " if sink.input == parent + REJECTED else ""
        return f"{rejected}=> {name}  {_sink(sink)}"
    step = pipeline.steps[name]
    others = [each for each in step.inputs if each != parent]
    also = f"  (with {', '.join(others)})" if others else ""
    return f"{name}  {_step(step)}{also}"


def _source(source: Source) -> str:
    folded = {name.lower(): value for name, value in source.options.items()}
    what = folded.get("stream") or folded.get("streampattern") or folded.get("bucket")
    what = what or folded.get("path") or ""
    return f"{source.format} {what}{' (static)' if source.static else ''}".rstrip()


def _step(step: Step) -> str:
    said = [
        f"python {step.python}" if step.python else "",
        "sql" if step.sql else "",
        f"watermark {' '.join(step.watermark)}" if step.watermark else "",
        f"where {_short(step.where)}" if step.where else "",
        f"columns {', '.join(step.columns)}" if step.columns else "",
        f"select {_short(', '.join(step.select))}" if step.select else "",
        f"drop {', '.join(step.drop)}" if step.drop else "",
        f"expect {', '.join(step.expect)}" if step.expect else "",
        "onError reject" if step.catches else "",
    ]
    return ", ".join(filter(None, said)) or "union"


def _sink(sink: Sink) -> str:
    if sink.upsert is not None:
        what = f"upsert {sink.upsert.path} by {', '.join(sink.upsert.keys)}"
    else:
        folded = {name.lower(): value for name, value in sink.options.items()}
        where = folded.get("path") or folded.get("stream") or folded.get("bucket")
        what = f"{sink.format} {where or folded.get('subject') or ''}".rstrip()
    return f"{what} where {_short(sink.where)}" if sink.where else what


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"
