"""From the text of an expression to a tree: words, operators and their order."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from pelton.errors import PeltonError

PREDICATES = frozenset(
    (
        *("all", "any", "one", "none", "filter", "map", "count", "sum", "groupBy", "sortBy"),
        *("find", "findIndex", "findLast", "findLastIndex"),
    )
)
"""Functions whose second argument is a predicate."""


class ExpressionError(PeltonError, ValueError):
    """The expression is wrong, or has no value for these data; ``at`` is the place in it, -1 for none."""

    def __init__(self, text: str, at: int = -1) -> None:
        """The reason, and where."""
        super().__init__(text)
        self.at = at


@dataclass(frozen=True)
class Node:
    """A part of an expression: its kind, its parts or constants, and where it begins."""

    kind: str
    parts: tuple[Any, ...]
    at: int


class _Word(NamedTuple):
    kind: str  # number, string, name, sign, end
    text: str
    value: Any
    at: int


_SPACE = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(?:\d[\d_]*)?\.\d[\d_]*(?:[eE][+-]?\d+)?|\d[\d_]*(?:[eE][+-]?\d+)?"
)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|`[^`]*`')
_SIGN = re.compile(r"\*\*|&&|\|\||==|!=|<=|>=|\?\.|\?\?|\.\.|[-+*/%^<>!?:.,;()\[\]{}|#=]")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}

BINARY = {
    "|": 0,
    **dict.fromkeys(("or", "||"), 10),
    **dict.fromkeys(("and", "&&"), 15),
    **dict.fromkeys(("==", "!=", "<", ">", "<=", ">="), 20),
    **dict.fromkeys(("in", "matches", "contains", "startsWith", "endsWith"), 20),
    "..": 25,
    **dict.fromkeys("+-", 30),
    **dict.fromkeys("*/%", 60),
    **dict.fromkeys(("**", "^"), 100),
    "??": 500,
}
_NEGATED = ("in", "matches", "contains", "startsWith", "endsWith")
_SAME = {"||": "or", "&&": "and", "**": "^", "!": "not"}
_CONSTANTS = {"true": True, "false": False, "nil": None, "null": None}
_DEEPEST = 60


def _words(text: str) -> list[_Word]:
    found: list[_Word] = []
    at = 0
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            found.append(_Word("end", "the end", None, at))
            return found
        range_ahead = text.startswith("..", at)
        if not range_ahead and (match := _NUMBER.match(text, at)):
            written = match[0]
            if written.endswith(".") or text.startswith("..", match.end() - 1):  # 1..3
                written = written.rstrip(".")
            found.append(_Word("number", written, _number(written), at))
            at += len(written)
        elif match := _STRING.match(text, at):
            found.append(_Word("string", match[0], _content(match[0]), at))
            at = match.end()
        elif match := _NAME.match(text, at):
            found.append(_Word("name", match[0], None, at))
            at = match.end()
        elif match := _SIGN.match(text, at):
            found.append(_Word("sign", match[0], None, at))
            at = match.end()
        elif text[at] in "\"'`":
            raise ExpressionError("the text has no closing quote", at)
        else:
            raise ExpressionError(f"unexpected {text[at]!r}", at)


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    if plain[:2].lower() in ("0x", "0b", "0o"):
        return int(plain, 0)
    return float(plain) if any(letter in plain for letter in ".eE") else int(plain)


def _content(quoted: str) -> str:
    if quoted[0] == "`":
        return quoted[1:-1]

    def letter(match: re.Match[str]) -> str:
        what = match[1]
        if what[0] in "ux" and len(what) > 1:
            return chr(int(what[1:], 16))
        return _LETTERS.get(what, what)

    return _ESCAPE.sub(letter, quoted[1:-1])


def parse(text: str) -> Node:
    """The tree of an expression; ExpressionError."""
    reader = _Reader(_words(text))
    found = reader.whole()
    reader.expect("end")
    return found


class _Reader:
    """Takes the words from left to right; operators with a higher number bind closer."""

    def __init__(self, words: list[_Word]) -> None:
        self._words = words
        self._index = 0
        self._depth = 0

    @property
    def _word(self) -> _Word:
        return self._words[self._index]

    def _take(self) -> _Word:
        word = self._word
        if word.kind != "end":
            self._index += 1
        return word

    def _is(self, text: str) -> bool:
        return self._word.text == text and self._word.kind in ("sign", "name")

    def _skip(self, text: str) -> bool:
        if self._is(text):
            self._index += 1
            return True
        return False

    def expect(self, text: str) -> _Word:
        """Take this sign, or the end; ExpressionError for anything else."""
        word = self._word
        if (word.kind if text == "end" else word.text) != text:
            wanted = "" if text == "end" else f", expected {text!r}"
            what = word.text if word.kind == "end" else repr(word.text)
            raise ExpressionError(f"unexpected {what}{wanted}", word.at)
        return self._take()

    def whole(self) -> Node:
        """Variables, and the expression after them."""
        at = self._word.at
        if not self._skip("let"):
            return self.ternary()
        name = self._name("a variable")
        self.expect("=")
        value = self.ternary()
        self.expect(";")
        return Node("let", (name, value, self.whole()), at)

    def ternary(self) -> Node:
        """A ? B : C, or an expression without."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ExpressionError("too many parentheses", self._word.at)
        found = self._binary(0)
        if self._is("?"):
            at = self._take().at
            if self._skip(":"):
                found = Node("else", (found, self.ternary()), at)
            else:
                yes = self.ternary()
                self.expect(":")
                found = Node("if", (found, yes, self.ternary()), at)
        self._depth -= 1
        return found

    def _binary(self, lowest: int) -> Node:
        left = self._unary()
        while True:
            word, negated = self._word, False
            text = word.text
            if word.kind not in ("sign", "name"):
                return left
            if text == "not" and self._words[self._index + 1].text in _NEGATED:
                text, negated = self._words[self._index + 1].text, True
            order = BINARY.get(text)
            if order is None or order < lowest:
                return left
            self._index += 1 + negated
            if text == "|":
                left = self._piped(left, word.at)
                continue
            right = self._binary(order if text in ("**", "^") else order + 1)
            left = Node("binary", (_SAME.get(text, text), left, right), word.at)
            if negated:
                left = Node("unary", ("not", left), word.at)

    def _piped(self, left: Node, at: int) -> Node:
        name = self._name("a function")
        arguments = self._arguments(name, piped=True) if self._is("(") else []
        return self._tail(Node("call", (name, (left, *arguments)), at))

    def _unary(self) -> Node:
        word = self._word
        if word.kind in ("sign", "name") and word.text in ("not", "!", "-", "+"):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise ExpressionError("too many operators in a row", word.at)
            self._take()
            inner = self._binary(50 if word.text in ("not", "!") else 90)
            self._depth -= 1
            return Node("unary", (_SAME.get(word.text, word.text), inner), word.at)
        return self._tail(self._primary())

    def _primary(self) -> Node:
        word = self._take()
        if word.kind in ("number", "string"):
            return Node("constant", (word.value,), word.at)
        if word.kind == "name":
            return self._named(word)
        if word.text == "(":
            inner = self.whole()
            self.expect(")")
            return inner
        if word.text == "[":
            return Node("list", (tuple(self._until("]", self.ternary)),), word.at)
        if word.text == "{":
            return Node("map", (tuple(self._until("}", self._pair)),), word.at)
        if word.text == "#":
            here = self._word
            if here.kind == "name" and here.at == word.at + 1:  # #index, #acc
                return Node("item", (self._take().text,), word.at)
            return Node("item", ("",), word.at)
        if word.text == "." and self._word.kind == "name":
            inner = Node("item", ("",), word.at)
            return Node(
                "member", (inner, Node("constant", (self._take().text,), word.at), False), word.at
            )
        what = "the end" if word.kind == "end" else repr(word.text)
        raise ExpressionError(f"unexpected {what}, expected a value", word.at)

    def _named(self, word: _Word) -> Node:
        if word.text in _CONSTANTS:
            return Node("constant", (_CONSTANTS[word.text],), word.at)
        if self._is("("):
            return Node("call", (word.text, tuple(self._arguments(word.text))), word.at)
        return Node("name", (word.text,), word.at)

    def _arguments(self, name: str, *, piped: bool = False) -> list[Node]:
        self.expect("(")
        first = not piped

        def argument() -> Node:
            nonlocal first
            predicate = name in PREDICATES and not first
            first = False
            at = self._word.at
            if predicate and self._skip("{"):
                inner = self.whole()
                self.expect("}")
                return Node("predicate", (inner,), at)
            found = self.ternary()
            return Node("predicate", (found,), at) if predicate else found

        return self._until(")", argument)

    def _until(self, end: str, read: Any) -> list[Any]:
        found: list[Any] = []
        while not self._skip(end):
            if found:
                self.expect(",")
                if self._skip(end):
                    break
            found.append(read())
        return found

    def _pair(self) -> tuple[Node, Node]:
        word = self._word
        if word.kind in ("name", "string", "number"):
            self._take()
            key = Node(
                "constant", (word.text if word.kind == "name" else str(word.value),), word.at
            )
        else:
            self.expect("(")
            key = self.ternary()
            self.expect(")")
        self.expect(":")
        return key, self.ternary()

    def _name(self, what: str) -> str:
        word = self._take()
        if word.kind != "name":
            raise ExpressionError(f"expected the name of {what}", word.at)
        return word.text

    def _tail(self, found: Node) -> Node:
        """The accesses after a value: .field, ?.field, [index], [from:to]."""
        while True:
            word = self._word
            if word.text in (".", "?.") and word.kind == "sign":
                self._take()
                name = self._name("a field")
                if self._is("("):
                    raise ExpressionError(f"there is no method {name}", word.at)
                key = Node("constant", (name,), word.at)
                found = Node("member", (found, key, word.text == "?."), word.at)
            elif word.text == "[" and word.kind == "sign":
                self._take()
                found = self._index_or_slice(found, word.at)
            else:
                return found

    def _index_or_slice(self, found: Node, at: int) -> Node:
        begin = None if self._is(":") else self.ternary()
        if self._skip(":"):
            end = None if self._is("]") else self.ternary()
            self.expect("]")
            return Node("slice", (found, begin, end), at)
        self.expect("]")
        return Node("member", (found, begin, False), at)
