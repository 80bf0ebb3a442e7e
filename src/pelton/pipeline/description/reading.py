"""Reads a pipeline file and finds all its faults before anything is started.

Reads the file and the environment; starts no JVM and asks no server.
:mod:`pelton.pipeline.description.functions` checks the Python functions of steps.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pelton.pipeline.description import graph
from pelton.pipeline.description import options as formats
from pelton.pipeline.description.alerts import read_alerts
from pelton.pipeline.description.cases import CaseReader, check_names
from pelton.pipeline.description.document import Section, Text, read_document
from pelton.pipeline.description.fields import Fields
from pelton.pipeline.description.keys import DEFAULTS, METRICS, SPARK, TOP, names
from pelton.pipeline.description.lineage import Lineage, read_lineage
from pelton.pipeline.description.model import REJECTED, Metrics, Pipeline, node_of
from pelton.pipeline.description.overrides import (
    TARGETS,
    VARIABLE,
    chosen_target,
    warn_of_one_place,
    with_target,
)
from pelton.pipeline.description.problems import PipelineError, Problems, did_you_mean
from pelton.pipeline.description.sections import Sections, is_storage
from pelton.pipeline.description.variables import Variables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pelton.pipeline.description.document import Value
    from pelton.pipeline.description.model import Sink

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_RIGHT_NAME = "a name is a letter, then letters, digits and '_', 64 at most"


def load(
    file: str | os.PathLike[str],
    *,
    state: str | os.PathLike[str] | None = None,
    target: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Pipeline:
    """The pipeline that a file describes; ``state`` replaces the file's state folder.

    ``target`` is one of the file's targets; None leaves the choice to the file and ``PELTON_TARGET``.
    Raises :class:`PipelineError` with all faults, and OSError.
    """
    path = Path(file)
    text = path.read_text(encoding="utf-8", errors="replace")
    return read(text, path, state=state, target=target, environment=environment)


def read(
    text: str,
    file: Path,
    *,
    state: str | os.PathLike[str] | None = None,
    target: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Pipeline:
    """As :func:`load`, for the text of a file."""
    problems = Problems()
    variables = os.environ if environment is None else environment
    spelled = read_document(text, problems)
    pipeline = None
    if spelled is not None:
        name = chosen_target(spelled, target, variables, problems)
        if name is None and (target is not None or TARGETS in spelled.entries):
            raise PipelineError(str(file), problems.found)
        if name is not None:
            warn_of_one_place(spelled, name, problems)
            variables = {**variables, VARIABLE: name}
        filled = Variables(variables, file.absolute().parent, problems)
        document = filled.section(with_target(spelled, name))
        pipeline = _Reader(document, file, problems).pipeline(state, name or "")
    if problems.found or pipeline is None:
        raise PipelineError(str(file), problems.found)
    return pipeline


class _Reader:
    def __init__(self, document: Section, file: Path, problems: Problems) -> None:
        self._top = Fields("pipeline", document, problems)
        self._file = file
        self._folder = file.absolute().parent
        self._problems = problems
        self._names: dict[str, int] = {}

    def pipeline(self, state: str | os.PathLike[str] | None, target: str) -> Pipeline:
        top = self._top
        name = top.text("pipeline", required="orders") or "pipeline"
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", name):
            top.problem(
                "pipeline",
                f"{name!r} is not a valid name: letters, digits, '-' and '_', 64 at most",
            )
        given = top.text("state") if top.has("state") else None
        kept = Path(state).absolute() if state is not None else None
        defaults, trigger = self._defaults()
        sections = Sections(self._folder, defaults, self._problems)
        made = Pipeline(
            name=name,
            file=str(self._file),
            folder=self._folder,
            state=kept or self._folder / Path(given or f"state/{name}").expanduser(),
            sources=self._each("sources", sections.source),
            steps=self._each("steps", sections.step),
            sinks=self._each("sinks", sections.sink),
            trigger_seconds=1.0 if trigger is None else trigger,
            servers={key: text.value for key, text in defaults.items() if not is_storage(key)},
            spark=self._spark(),
            metrics=self._metrics(),
            lineage=self._lineage(sections),
            alerts=None if (alerts := self._section("alerts")) is None else read_alerts(alerts),
            secrets=frozenset(sections.secrets | self._problems.secrets),
            target=target,
        )
        tests = top.take("tests")
        top.finish(TOP)
        for part, example in (("sources", "a place rows come from"), ("sinks", "a place they go")):
            if not top.has(part):
                top.problem(part, f"{part} is missing: a pipeline has {example}")
        self._check_references(made)
        made = self._with_cases(made, tests)
        return replace(
            made,
            sinks={name: _with_conditions(made, sink) for name, sink in made.sinks.items()},
            warnings=tuple(sorted(set(self._problems.warnings))),
        )

    def _each(self, part: str, read_one: Callable[[str, Value, int], T | None]) -> dict[str, T]:
        value = self._top.take(part)
        if not isinstance(value, Section):
            if self._top.has(part) and (value is not None or part != "steps"):
                self._top.problem(part, f"{part} must be names with keys and values each")
            return {}
        made: dict[str, T] = {}
        for name, one in value.entries.items():
            line = value.lines[name]
            if not _NAME.fullmatch(name):
                self._problems.add(line, f"{part}: {name!r} is not a valid name: {_RIGHT_NAME}")
            elif name in self._names:
                self._problems.add(
                    line, f"{part}: {name} is taken already, in line {self._names[name]}"
                )
            else:
                self._names[name] = line
            found = read_one(name, one, line)
            if found is not None and self._names.get(name) == line:
                made[name] = found
        return made

    def _defaults(self) -> tuple[dict[str, Text], float | None]:
        fields = self._section("defaults")
        if fields is None:
            return {}, None
        trigger = fields.seconds("trigger")
        given = fields.options()
        connecting = {
            name: text for name, text in given.items() if name.lower() in formats.SERVER_OPTIONS
        }
        for name in given.keys() - connecting.keys():
            if not is_storage(name):
                known = [*names(DEFAULTS), *formats.SERVER_OPTIONS.values(), "storage.*"]
                fields.problem(name, f"unknown key {name!r}{did_you_mean(name, known)}")
        wrong = list(formats.check_servers(connecting))
        for name, text in wrong:
            fields.problem(name, text)
        # Report a fault in the defaults once, not again for each source and sink.
        known_ones = {
            name: text for name, text in given.items() if name in connecting or is_storage(name)
        }
        return {} if wrong else known_ones, trigger

    def _spark(self) -> dict[str, str]:
        fields = self._section("spark")
        if fields is None:
            return {}
        made = {}
        if (master := fields.text("master") if fields.has("master") else None) is not None:
            made["master"] = master
        for name, text in fields.options().items():
            if name.startswith("spark."):
                made[name] = text.value
            else:
                known = f"{', '.join(names(SPARK))} and spark.* settings"
                fields.problem(name, f"unknown key {name!r}; there are {known}")
        return made

    def _metrics(self) -> Metrics | None:
        fields = self._section("metrics")
        if fields is None:
            return None
        port = fields.text("port") if fields.has("port") else None
        if port is not None and not (port.isdigit() and int(port) < 65536):
            fields.problem("port", f"port is {port!r}, but must be 0 to 65535")
            port = None
        host = fields.text("host") if fields.has("host") else None
        subject = fields.text("subject") if fields.has("subject") else None
        fields.finish(METRICS)
        if port is None and subject is None:
            fields.problem("port", "give port, subject or both")
        return Metrics(None if port is None else int(port), host or "127.0.0.1", subject)

    def _with_cases(self, pipeline: Pipeline, tests: Value) -> Pipeline:
        """The pipeline with the tests of this file, or the names of other files."""
        if isinstance(tests, Section):
            cases = CaseReader(str(self._file), self._folder, self._problems).cases(tests)
            check_names(pipeline, cases, self._problems)
            return replace(pipeline, cases=cases)
        if tests is None and not self._top.has("tests"):
            return pipeline
        files = [tests] if isinstance(tests, Text) else getattr(tests, "items", ())
        if not files or not all(isinstance(each, Text) and each.value for each in files):
            self._top.problem("tests", "tests must have tests by name, or files: tests/*.yaml")
        names = tuple(each.value for each in files if isinstance(each, Text))
        for name in names:
            if Path(name).is_absolute():
                self._top.problem("tests", f"{name} must be relative to this file")
        return replace(pipeline, case_files=names)

    def _lineage(self, sections: Sections) -> Lineage | None:
        fields = self._section("lineage")
        if fields is None:
            return None
        return read_lineage(fields, sections.beside, self._problems.secrets.add)

    def _section(self, part: str) -> Fields | None:
        value = self._top.take(part)
        if isinstance(value, Section):
            line = self._top.section.line_of(part)
            return Fields(part, Section(line, value.entries, value.lines), self._problems)
        if value is not None:
            self._top.problem(part, f"{part} must be keys and values")
        return None

    def _check_references(self, pipeline: Pipeline) -> None:
        nodes = {*pipeline.sources, *pipeline.steps}
        missing = False
        for step in pipeline.steps.values():
            for each in step.inputs:
                missing |= self._refers(pipeline, f"steps.{step.name}", step.line, each)
        for sink in pipeline.sinks.values():
            missing |= self._refers(pipeline, f"sinks.{sink.name}", sink.line, sink.input)
        if way := graph.circle(pipeline):
            first = pipeline.steps[way[0]]
            text = f"steps.{first.name}: steps form a cycle: {' -> '.join(way)}"
            self._problems.add(first.line, text)
            return
        for name in nodes:
            if not graph.readers(pipeline, name):
                part = "sources" if name in pipeline.sources else "steps"
                text = f"{part}.{name}: no step or sink reads {name}; add from: {name} to one"
                self._problems.add(self._names.get(name, 1), text)
        if not missing:
            self._check_sinks(pipeline)

    def _refers(self, pipeline: Pipeline, label: str, line: int, reference: str) -> bool:
        """Report a reference that names nothing readable; True if it does."""
        node = node_of(reference)
        step = pipeline.steps.get(node)
        if node in pipeline.sinks:
            self._problems.add(line, f"{label}: {node} is a sink, which cannot be read")
        elif step is None and node not in pipeline.sources:
            if node in self._names:
                return True  # the node is in the file, but has a fault that is reported already
            known = [*pipeline.sources, *pipeline.steps]
            text = f"{label}: there is no source or step {node}{did_you_mean(node, known)}"
            self._problems.add(line, text)
        elif reference != node and (step is None or not step.rejects):
            text = (
                f"{label}: {reference} needs expect or onError in {node}: expect: {{has_id: id is not"
                " null}, or onError: reject"
            )
            self._problems.add(line, text)
        else:
            return False
        return True

    def _check_sinks(self, pipeline: Pipeline) -> None:
        read = {each for step in pipeline.steps.values() for each in step.inputs} | {
            sink.input for sink in pipeline.sinks.values()
        }
        for step in pipeline.steps.values():
            if step.rejects and step.name + REJECTED not in read:
                which, cure = ("fail expect", ", or use where") if step.expect else ("throw", "")
                self._problems.add(
                    step.line,
                    f"steps.{step.name}: nothing reads {step.name}{REJECTED}, so rows that {which}"
                    f" would be lost; add a sink for them{cure}",
                )
            if step.catches:
                for text in graph.uncatchable(pipeline, step):
                    self._problems.add(
                        step.line_of("onError"), f"steps.{step.name}: onError: reject: {text}"
                    )
        places: dict[str, str] = {}
        resolved = {
            sink.name: formats.same_place(sink.place)
            for sink in pipeline.sinks.values()
            if sink.place is not None
        }
        for sink in pipeline.sinks.values():
            if not graph.streams_of(pipeline, sink.name):
                text = f"sinks.{sink.name}: all its sources are static; one must be streamed"
                self._problems.add(sink.line, text)
            place = resolved.get(sink.name)
            if place is None:
                continue
            if place in places:
                self._problems.add(
                    sink.line,
                    f"sinks.{sink.name}: {place} is written by sinks.{places[place]} already;"
                    " one sink can read several inputs with a step: from: [a, b]",
                )
            for other, outer in resolved.items():
                if place.startswith(outer + "/"):
                    self._problems.add(
                        sink.line,
                        f"sinks.{sink.name}: {place} is inside {outer}, which sinks.{other}"
                        " writes: maintenance of one would remove files of the other; use separate"
                        " folders",
                    )
            places.setdefault(place, sink.name)


def _with_conditions(pipeline: Pipeline, sink: Sink) -> Sink:
    step = pipeline.steps.get(node_of(sink.input))
    if step is None or sink.input == step.name:
        return sink
    return replace(sink, conditions=tuple(step.expect))
