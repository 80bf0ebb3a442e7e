"""Reads the keys of one section with their types.

A wrong value adds a problem and gives the default, so all faults are found at once.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import TYPE_CHECKING, TypeVar

from pelton.pipeline.description.document import Items, Section, Text
from pelton.pipeline.description.keys import names
from pelton.pipeline.description.problems import did_you_mean
from pelton.spark.parsing import OptionError, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pelton.pipeline.description.document import Value
    from pelton.pipeline.description.keys import Key
    from pelton.pipeline.description.problems import Problems

T = TypeVar("T")


class Fields:
    """The keys of a section, called ``label`` in problems; each key can be taken once."""

    def __init__(self, label: str, section: Section, problems: Problems) -> None:
        """Start with no key taken."""
        self.label = label
        self.section = section
        self._problems = problems
        self._left = dict(section.entries)

    def problem(self, key: str, text: str) -> None:
        """Report a fault of a key."""
        self._problems.add(self.section.line_of(key), f"{self.label}: {text}")

    def warn(self, key: str, text: str) -> None:
        """Report a probable mistake in a key."""
        self._problems.warn(self.section.line_of(key), f"{self.label}: {text}")

    def has(self, key: str) -> bool:
        """Whether the key is in the section, taken or not."""
        return key in self.section.entries

    def take(self, key: str) -> Value:
        """The value as it is; None if the key is missing."""
        return self._left.pop(key, None)

    def text(self, key: str, *, required: str = "") -> str | None:
        """One text; ``required`` is an example to show if the key is missing."""
        there = self.has(key)
        value = self.take(key)
        if isinstance(value, Text) and value.value.strip():
            return value.value.strip()
        if there or required:
            example = f", such as {key}: {required}" if required else ""
            what = f"{key} must be a text" if there else f"{key} is missing"
            self.problem(key, what + example)
        return None

    def texts(self, key: str, *, example: str = "", split: bool = True) -> tuple[str, ...]:
        """Several texts: a list, or with ``split`` one text with commas between."""
        there = self.has(key)
        value = self.take(key)
        if isinstance(value, Text):
            parts = value.value.split(",") if split else [value.value]
            found = tuple(part.strip() for part in parts if part.strip())
        elif isinstance(value, Items):
            found = tuple(
                item.value.strip()
                for item in value.items
                if isinstance(item, Text) and item.value.strip()
            )
            if len(found) < len(value.items):
                self.problem(key, f"{key} must be a list of texts")
                return found
        else:
            found = ()
        if there and not found:
            self.problem(
                key, f"{key} must be a list of texts" + (f": {example}" if example else "")
            )
        return found

    def expressions(self, key: str, *, example: str) -> tuple[str, ...]:
        """Expressions from a text with commas, or from a list.

        YAML may have split a list in brackets at a comma inside an expression.
        """
        return tuple(split_expressions(", ".join(self.texts(key, example=example, split=False))))

    def flag(self, key: str) -> bool:
        """True or false; false if the key is missing."""
        text = self.text(key)
        if text is not None and text.lower() not in ("true", "false"):
            self.problem(key, f"{key} is {text!r}, but must be true or false")
        return text is not None and text.lower() == "true"

    def word(self, key: str, words: Iterable[str]) -> str | None:
        """One of a set of words."""
        allowed = list(words)
        text = self.text(key)
        if text is not None and text.lower() not in allowed:
            known = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
            self.problem(key, f"{key} is {text!r}, but must be {known}")
            return None
        return None if text is None else text.lower()

    def seconds(self, key: str) -> float | None:
        """A duration; 0 is allowed."""
        text = self.text(key)
        if text is None or text in ("0", "0s"):
            return None if text is None else 0.0
        try:
            return duration(text)
        except OptionError as wanted:
            self.problem(key, f"{key} is {text!r}, but must be {wanted}, or 0")
            return None

    def parsed(self, key: str, parse: Callable[[str], T]) -> T | None:
        """A value that a parser of options reads; None if it is missing or wrong."""
        text = self.text(key)
        try:
            return None if text is None else parse(text)
        except OptionError as wanted:
            self.problem(key, f"{key} is {text!r}, but must be {wanted}")
            return None

    def pairs(self, key: str, *, example: str) -> dict[str, str]:
        """A map of names to texts."""
        there = self.has(key)
        value = self.take(key)
        if isinstance(value, Section) and all(
            isinstance(each, Text) and each.value.strip() for each in value.entries.values()
        ):
            return {
                name: each.value.strip()
                for name, each in value.entries.items()
                if isinstance(each, Text)
            }
        if there:
            quoting = "; a text with a comma goes in quotes"
            self.problem(key, f"{key} must be names with a text each: {example}{quoting}")
        return {}

    def data(self, key: str) -> dict[str, object]:
        """A map of names to any YAML values."""
        there = self.has(key)
        value = self.take(key)
        if isinstance(value, Section):
            return {name: plain(each) for name, each in value.entries.items()}
        if there and value is not None:
            self.problem(key, f"{key} must be names and values: {{limit: 10}}")
        return {}

    def options(self, skip: Iterable[str] = ()) -> dict[str, Text]:
        """The keys that were not taken, and those under ``options``, as options of a format."""
        found: dict[str, Text] = {}
        more = self.take("options")
        if more is not None and not isinstance(more, Section):
            self.problem("options", "options must be names and values")
        skipped = set(skip)
        groups = [dict(self._left), more.entries if isinstance(more, Section) else {}]
        self._left.clear()
        for group in groups:
            for name, value in group.items():
                if name not in skipped and (text := _option(value)) is not None:
                    found[name] = text
                elif name not in skipped:
                    self.problem(name, f"{name} has no value")
        return found

    def lines(self) -> dict[str, int]:
        """The lines of all keys, of keys below them (``columns.total``) and of expressions (``select.0``)."""
        found = dict(self.section.lines)
        for key, value in self.section.entries.items():
            if isinstance(value, Section):
                found.update({f"{key}.{name}": line for name, line in value.lines.items()})
            elif isinstance(value, Items):
                lines = _expression_lines(value)
                found.update({f"{key}.{number}": line for number, line in enumerate(lines)})
        return found

    def finish(self, known: tuple[Key, ...]) -> None:
        """Report the keys that were not taken."""
        for name in self._left:
            self.problem(name, f"unknown key {name!r}{did_you_mean(name, names(known))}")


_QUOTES = "'\"`"


def split_expressions(text: str) -> list[str]:
    """SQL expressions, split at the commas that are outside of brackets and quotes."""
    return [each.strip() for _, each in _split(text)]


def _expression_lines(value: Items) -> list[int]:
    """The line of each expression of a list, which may have been split inside of an expression."""
    texts = [item for item in value.items if isinstance(item, Text) and item.value.strip()]
    begins, begin = [], 0
    for item in texts:
        begins.append(begin)
        begin += len(item.value.strip()) + 2
    found = _split(", ".join(item.value.strip() for item in texts))
    return [
        texts[bisect_right(begins, at + len(text) - len(text.lstrip())) - 1].line
        for at, text in found
    ]


def _split(text: str) -> list[tuple[int, str]]:
    """The expressions, each with the place where it begins."""
    found: list[tuple[int, str]] = []
    depth, begin, quote = 0, 0, ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth <= 0:
            found.append((begin, text[begin:place]))
            begin = place + 1
    return [each for each in (*found, (begin, text[begin:])) if each[1].strip()]


def _option(value: Value) -> Text | None:
    """An option's text: a list with commas, a section as JSON."""
    if value is None or isinstance(value, Text):
        return value
    if isinstance(value, Items) and all(isinstance(item, Text) for item in value.items):
        texts = [item for item in value.items if isinstance(item, Text)]
        joined = [",".join(each) for each in ([t.value for t in texts], [t.shown for t in texts])]
        return Text(joined[0], value.line, joined[1])
    dumped = json.dumps(plain(value))
    return Text(dumped, value.line, dumped)


def plain(value: Value) -> object:
    """A value as Python represents it: numbers, booleans, lists, dictionaries, texts."""
    if isinstance(value, Section):
        return {name: plain(each) for name, each in value.entries.items()}
    if isinstance(value, Items):
        return [plain(each) for each in value.items]
    if value is None:
        return None
    text = value.value
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
