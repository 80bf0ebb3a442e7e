"""The faults of a pipeline: all of them at once, one line each, with file and line number."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.spark.parsing import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, order=True)
class Problem:
    """One fault; the text says how to correct it."""

    line: int
    text: str


class PipelineError(ValueError):
    """A pipeline that cannot run; its text has a line for each problem."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        """``file`` is the name that the user gave."""
        self.file = file
        self.problems = sorted(set(problems))
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """``file:line: what``, in order of lines."""
        return [f"{self.file}:{problem.line}: {problem.text}" for problem in self.problems]


@dataclass
class Problems:
    """Collects problems."""

    found: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    secrets: set[str] = field(default_factory=set, repr=False)
    """Texts that no problem may show."""

    def add(self, line: int, text: str) -> None:
        """Add a problem."""
        self.found.append(Problem(line, self._shown(text)))

    def warn(self, line: int, text: str) -> None:
        """Add a warning about a probable mistake."""
        self.warnings.append(Problem(line, self._shown(text)))

    def _shown(self, text: str) -> str:
        return " ".join(without_secrets(text, self.secrets).split())


SHORTEST_SECRET = 3
"""Secrets of up to this length are not removed from messages: they are part of many words."""


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text with each secret, also as Python and JSON spell it, replaced by ``***``."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) > SHORTEST_SECRET:
            spellings = (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])
            for spelled in (*spellings, " ".join(secret.split())):
                text = text.replace(spelled, "***")
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "; did you mean x?" if a known name is similar, else a list of the names."""
    names = list(known)
    if near := nearest(name, names):
        return f"; did you mean {near}?"
    return f"; there are: {', '.join(names)}" if names else ""
