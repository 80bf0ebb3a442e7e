"""YAML as texts, lists and sections with line numbers.

A text holds both its value and its spelling in the file; messages show the spelling. They differ where
:mod:`pelton.pipeline.description.variables` has filled in a variable. Anchors, aliases and ``<<`` work
as in any YAML. Values stay texts.

Does not know pipelines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from pelton.pipeline.description.problems import Problems

_MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"
_DEEPEST = 32


@dataclass(frozen=True)
class Text:
    """A value; ``shown`` is its spelling in the file, which may be printed."""

    value: str
    line: int
    shown: str
    quoted: bool = False
    """Whether it is in quotes or a block, and so a text for certain."""

    @property
    def filled_in(self) -> bool:
        """Whether a part of it comes from the environment or from a file."""
        return self.value != self.shown


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Value, ...]
    line: int


@dataclass(frozen=True)
class Section:
    """Keys with values, in order; ``lines`` has the line of each key."""

    line: int
    entries: dict[str, Value] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def line_of(self, key: str) -> int:
        """The line of a key, or of the section if the key is missing."""
        return self.lines.get(key, self.line)


Value = Text | Items | Section | None
"""None is a key without a value."""


_PIPELINE = "a pipeline is keys and values: pipeline, sources, steps, sinks"


def read_document(text: str, problems: Problems, form: str = _PIPELINE) -> Section | None:
    """The document as it is spelled; None if the text cannot be read any further."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        what = getattr(error, "problem", None) or str(error)
        problems.add(1 if mark is None else mark.line + 1, f"this is not YAML: {what}")
        return None
    reader = _Reader(problems)
    made = None if node is None else reader.value(node, 0)
    if not isinstance(made, Section):
        problems.add(1, form)
        return None
    return made


class _Reader:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems

    def value(self, node: yaml.Node, depth: int) -> Value:
        line = node.start_mark.line + 1
        if depth > _DEEPEST:
            self._problems.add(line, "values are nested too deeply")
            return None
        if isinstance(node, yaml.ScalarNode):
            if node.tag == _NULL and node.style is None:
                return None
            text = str(node.value)
            return Text(text, line, text, quoted=node.style is not None)
        if isinstance(node, yaml.SequenceNode):
            return Items(tuple(self.value(item, depth + 1) for item in node.value), line)
        assert isinstance(node, yaml.MappingNode)
        section = Section(line)
        self._take(node, section, depth, merged=False)
        return section

    def _take(self, node: yaml.MappingNode, section: Section, depth: int, *, merged: bool) -> None:
        """The keys of a mapping; its own keys override merged ones."""
        behind: list[yaml.Node] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE:
                behind += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._problems.add(line, "a key is a plain name")
                continue
            name = str(key.value)
            if name in section.entries:
                if not merged:
                    first = section.lines[name]
                    self._problems.add(line, f"{name} occurs twice, first in line {first}")
                continue
            section.lines[name] = line
            section.entries[name] = self.value(value, depth + 1)
        for each in behind if depth <= _DEEPEST else ():
            if isinstance(each, yaml.MappingNode):
                self._take(each, section, depth + 1, merged=True)
            else:
                self._problems.add(each.start_mark.line + 1, "<< takes keys with values")
