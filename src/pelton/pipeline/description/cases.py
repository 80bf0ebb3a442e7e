"""The tests of a pipeline file: rows that are given to sources, and rows that are expected.

A section ``tests`` has tests by name, or it names other files that have them::

    tests:
      amounts are numbers:
        given: {raw: [{seq: 1, data: {id: 7, amount: "12.5"}}, not json]}
        expect: {checked: [{id: 7, amount: 12.5}], checked.rejected: [{seq: 2}]}

A row is names and values; a text alone is the payload of a message. Rows may be in a file of JSON lines.
Does not know which columns a source has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pelton.pipeline.description.document import Items, Section, Text, read_document
from pelton.pipeline.description.fields import Fields
from pelton.pipeline.description.keys import CASE, EXPECTED, GIVEN
from pelton.pipeline.description.model import node_of
from pelton.pipeline.description.problems import PipelineError, Problems, did_you_mean
from pelton.pipeline.description.variables import Variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.pipeline.description.document import Value
    from pelton.pipeline.description.keys import Key
    from pelton.pipeline.description.model import Pipeline

_INTEGER = re.compile(r"[-+]?\d+")
_DECIMAL = re.compile(r"[-+]?(\d+\.\d*|\.?\d+)([eE][-+]?\d+)?")
_FORM = "a file of tests is names with keys and values each: given, expect"
_READ_ROWS = msgspec.json.Decoder(float_hook=Decimal)


@dataclass(frozen=True)
class Row:
    """A row of a test: a text is the payload of a message; ``place`` is its file and line."""

    place: str
    value: str | dict[str, object]


@dataclass(frozen=True)
class Rows:
    """Rows of one node, from the test itself or from ``file``; ``count`` alone is their number."""

    place: str
    items: tuple[Row, ...] = ()
    file: Path | None = None
    schema: str | None = None
    count: int | None = None


@dataclass(frozen=True)
class Case:
    """One test. Each batch of ``given`` is a micro-batch."""

    name: str
    place: str
    given: tuple[dict[str, Rows], ...] = ()
    expect: dict[str, Rows] = field(default_factory=dict)
    ordered: bool = False


class CaseError(RuntimeError):
    """A test that cannot run; the text is one line with its place."""


def cases_of(pipeline: Pipeline, environment: Mapping[str, str]) -> tuple[Case, ...]:
    """All tests of a pipeline, those of other files included.

    Raises :class:`PipelineError` with all faults of one file, and OSError.
    """
    found = list(pipeline.cases)
    taken = {case.name: case.place for case in found}
    for pattern in pipeline.case_files:
        for path in sorted(pipeline.folder.glob(pattern)):
            problems = Problems()
            text = path.read_text(encoding="utf-8", errors="replace")
            document = read_document(text, problems, _FORM)
            if document is not None:
                document = Variables(environment, path.parent, problems).section(document)
            reader = CaseReader(_shown(path), path.parent, problems)
            cases = reader.cases(document) if document is not None else ()
            check_names(pipeline, cases, problems)
            for case in cases:
                if case.name in taken:
                    line = int(case.place.rpartition(":")[2])
                    problems.add(line, f"test {case.name} is in {taken[case.name]} as well")
                taken[case.name] = case.place
            if problems.found:
                raise PipelineError(_shown(path), problems.found)
            found += cases
    return tuple(found)


def _shown(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def check_names(pipeline: Pipeline, cases: tuple[Case, ...], problems: Problems) -> None:
    """Report the nodes in tests that the pipeline does not have."""
    readable = [*pipeline.sources, *pipeline.steps]
    for case in cases:
        for batch in case.given:
            for name, rows in batch.items():
                if name not in readable:
                    line = _line(rows.place)
                    text = f"test {case.name}: given: there is no source or step {name}"
                    problems.add(line, text + did_you_mean(name, readable))
        for name, rows in case.expect.items():
            node = node_of(name)
            step = pipeline.steps.get(node)
            known = [*readable, *pipeline.sinks]
            text = f"test {case.name}: expect: "
            if node not in known:
                text += f"there is no source, step or sink {node}{did_you_mean(node, known)}"
            elif name != node and (step is None or not step.expect):
                text += f"{node} has no expect, so it rejects no rows"
            else:
                continue
            problems.add(_line(rows.place), text)


def _line(place: str) -> int:
    return int(place.rpartition(":")[2])


class CaseReader:
    """Reads the tests of one file, called ``file`` in messages."""

    def __init__(self, file: str, folder: Path, problems: Problems) -> None:
        """Relative paths start at ``folder``."""
        self._file = file
        self._folder = folder
        self._problems = problems

    def cases(self, section: Section) -> tuple[Case, ...]:
        """The tests by name, in order."""
        found = []
        for name, value in section.entries.items():
            line = section.lines[name]
            if isinstance(value, Section):
                fields = Fields(f"test {name}", value, self._problems)
                found.append(self._case(name, line, fields))
            else:
                self._problems.add(line, f"test {name}: must be keys and values (given, expect)")
        return tuple(found)

    def _case(self, name: str, line: int, fields: Fields) -> Case:
        given, expect = fields.take("given"), fields.take("expect")
        ordered = fields.flag("ordered")
        fields.finish(CASE)
        batches = given.items if isinstance(given, Items) else (given,)
        made = Case(name, self._place(line), ordered=ordered)
        if not batches or not all(isinstance(batch, Section) for batch in batches):
            fields.problem(
                "given",
                "given must have rows by source, {raw: [{data: text}]}, or a list of such batches",
            )
            return made
        if not isinstance(expect, Section) or not expect.entries:
            fields.problem("expect", "expect must have rows by step or sink: {checked: [{id: 7}]}")
            return made
        read = [
            self._nodes(batch, fields, GIVEN) for batch in batches if isinstance(batch, Section)
        ]
        return replace(made, given=tuple(read), expect=self._nodes(expect, fields, EXPECTED))

    def _nodes(self, section: Section, fields: Fields, keys: tuple[Key, ...]) -> dict[str, Rows]:
        made = {}
        for name, value in section.entries.items():
            rows = self._rows(f"{fields.label}: {name}", value, section.lines[name], keys)
            if rows is not None:
                made[name] = rows
        return made

    def _rows(self, label: str, value: Value, line: int, keys: tuple[Key, ...]) -> Rows | None:
        made = Rows(self._place(line))
        if isinstance(value, Items):
            return replace(made, items=self._items(label, value))
        if isinstance(value, Text) and keys is EXPECTED and value.value.isdigit():
            return replace(made, count=int(value.value))
        if not isinstance(value, Section):
            self._problems.add(line, f"{label}: must be a list of rows: [{{id: 7}}]")
            return None
        fields = Fields(label, value, self._problems)
        rows = fields.take("rows")
        file = fields.text("file") if fields.has("file") else None
        schema = fields.text("schema") if keys is GIVEN and fields.has("schema") else None
        fields.finish(keys)
        if (file is None) == (rows is None) and not (schema and not file):
            fields.problem("rows", "give rows or file")
        if rows is not None and not isinstance(rows, Items):
            fields.problem("rows", "rows must be a list: [{id: 7}]")
        items = self._items(label, rows) if isinstance(rows, Items) else ()
        return replace(made, items=items, schema=schema, file=self._folder / file if file else None)

    def _items(self, label: str, items: Items) -> tuple[Row, ...]:
        made = []
        for item in items.items:
            line = item.line if item is not None else items.line
            if isinstance(item, Text):
                made.append(Row(self._place(line), item.value))
            elif isinstance(item, Section):
                value = {name: literal(each) for name, each in item.entries.items()}
                made.append(Row(self._place(line), value))
            else:
                self._problems.add(line, f"{label}: a row is names and values: {{id: 7}}")
        return tuple(made)

    def _place(self, line: int) -> str:
        return f"{self._file}:{line}"


def literal(value: Value) -> object:
    """A value as it is written: a quoted text stays a text, numbers keep all their digits."""
    if isinstance(value, Section):
        return {name: literal(each) for name, each in value.entries.items()}
    if isinstance(value, Items):
        return [literal(each) for each in value.items]
    if value is None or value.quoted:
        return None if value is None else value.value
    text = value.value
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    return Decimal(text) if _DECIMAL.fullmatch(text) else text


def rows_in(rows: Rows) -> tuple[Row, ...]:
    """The rows themselves, read from their file if they are in one. Raises :class:`CaseError`."""
    if rows.file is None:
        return rows.items
    shown = _shown(rows.file)
    try:
        lines = rows.file.read_bytes().splitlines()
    except OSError as error:
        raise CaseError(f"{rows.place}: cannot read {shown}: {error.strerror}") from None
    made = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = _READ_ROWS.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise CaseError(f"{shown}:{number}: this is not a line of JSON: {error}") from None
        if not isinstance(value, dict | str):
            raise CaseError(f'{shown}:{number}: a row is an object, such as {{"seq": 1}}')
        made.append(Row(f"{shown}:{number}", value))
    return tuple(made)
