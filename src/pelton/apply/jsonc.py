"""JSON with places, and with what people write into it: comments and trailing commas.

``//`` and ``#`` to the end of the line and ``/* */`` are comments. A key that is given twice is an error.
Several documents may follow each other.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right

from pelton.apply.model import ConfigurationError, Node, NodeValue, Place, fault

_SPACE = re.compile(r"(?:\s+|//[^\n]*|#[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_WORDS: dict[str, NodeValue] = {"true": True, "false": False, "null": None}
_DEPTH_MOST = 100
_DIGITS_MOST = 40


def read_json(text: str, file: str) -> list[Node]:
    """The documents of a text. ConfigurationError with line and column."""
    return _Parser(text, file).documents()


class _Parser:
    def __init__(self, text: str, file: str) -> None:
        self.text, self.file, self.position = text, file, 0
        self.lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def place(self, position: int | None = None) -> Place:
        at = self.position if position is None else position
        line = bisect_right(self.lines, at)
        return Place(self.file, line, at - self.lines[line - 1] + 1)

    def wrong(self, text: str, position: int | None = None) -> ConfigurationError:
        return fault(self.place(position), text)

    def documents(self) -> list[Node]:
        found = []
        self.space()
        while self.position < len(self.text):
            found.append(self.value(0))
            self.space()
        return found

    def space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        if self.text.startswith("/*", self.position):
            raise self.wrong("this comment has no end")

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def value(self, depth: int) -> Node:
        place, sign = self.place(), self.peek()
        if depth > _DEPTH_MOST:
            raise self.wrong("brackets are nested too deeply")
        if sign == "{":
            return Node(self.mapping(depth), place)
        if sign == "[":
            return Node(self.array(depth), place)
        if sign == '"':
            return Node(self.string(), place)
        if found := _NUMBER.match(self.text, self.position):
            self.position = found.end()
            if len(found[0]) > _DIGITS_MOST:
                raise fault(place, "this number is too long")
            whole = found[1] is None and found[2] is None
            return Node(int(found[0]) if whole else float(found[0]), place)
        word = _WORD.match(self.text, self.position)
        if word is not None and word[0] in _WORDS:
            self.position = word.end()
            return Node(_WORDS[word[0]], place)
        raise self.wrong(f"expected a value, got {self.shown()}")

    def shown(self) -> str:
        if self.position >= len(self.text):
            return "the end of the file"
        word = _WORD.match(self.text, self.position)
        return f"{(word[0] if word else self.peek())!r}"

    def string(self) -> str:
        found = _STRING.match(self.text, self.position)
        if found is None:
            raise self.wrong("this text has no end, or a character that needs an escape")
        self.position = found.end()
        text: str = json.loads(found[0])
        return text

    def mapping(self, depth: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        self.position += 1
        self.space()
        while self.peek() != "}":
            key = self.place()
            if self.peek() != '"':
                raise self.wrong(f'expected a key in quotation marks or "}}", got {self.shown()}')
            name = self.string()
            if name in found:
                raise fault(key, f'"{name}" is given twice, also at {found[name].at}')
            self.space()
            if self.peek() != ":":
                raise self.wrong(f'expected ":" after the key "{name}", got {self.shown()}')
            self.position += 1
            self.space()
            found[name] = self.value(depth + 1)
            found[name].key = key
            self.comma("}")
        self.position += 1
        return found

    def array(self, depth: int) -> list[Node]:
        found: list[Node] = []
        self.position += 1
        self.space()
        while self.peek() != "]":
            found.append(self.value(depth + 1))
            self.comma("]")
        self.position += 1
        return found

    def comma(self, end: str) -> None:
        """Pass over a comma, which the end of the list makes needless."""
        self.space()
        if self.peek() == ",":
            self.position += 1
            self.space()
        elif self.peek() != end:
            raise self.wrong(f'expected "," or "{end}", got {self.shown()}')
