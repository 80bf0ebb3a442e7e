"""The configuration file language: parses text to a tree of values with their places.

    # comment                     // comment
    port: 4222                    key = value, key: value or key value
    jetstream { store_dir: "x" }  maps; the separator is optional before one
    tags: [a, b]                  arrays, by comma or line
    size: 64MB                    k=1000, kb/ki/kib=1024, the same for m g t p e
    note: (                       block string, up to a line that holds only a bracket
      any text
    )
    HOST = 10.0.0.1               a variable ...
    listen: $HOST:4222            ... only as a whole value: this is the text "$HOST:4222"
    include other.conf            in place, relative to the including file

JSON is a subset. The parser does not know the keys or their meaning. Files and environment come in as
arguments.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from pelton.server.errors import ConfigError, unreadable

NOT_SHOWN = (
    "this can't be used; what an included file says is not shown, -t with that file alone shows it"
)
"""An included file may be one that the configuration's author may not read; so errors do not show
its text.
"""

Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = "Scalar | list[Item] | dict[str, Item]"


class Item(NamedTuple):
    """A value and its place: for a map entry the place of its key, for an array element its own."""

    value: Value
    file: str
    line: int
    column: int
    word: str = (
        ""  # the text of an unquoted value: `2m` is a number to the grammar, and may be a duration
    )
    private: bool = False  # in an included file: no message may show it

    @property
    def place(self) -> str:
        """``file:line:column``, the beginning of every message about this value."""
        return f"{self.file}:{self.line}:{self.column}"

    def message(self, text: str, shown: str = NOT_SHOWN) -> str:
        """A message about this value, with its place; `shown` replaces a text that may quote an
        included file.
        """
        return f"{self.place}: {shown if _private(self) else text}"


def _private(item: Item) -> bool:
    inner = item.value.values() if isinstance(item.value, dict) else item.value
    return item.private or (not isinstance(inner, str | int | float) and any(map(_private, inner)))


class Tree(NamedTuple):
    """The content of a file, and the keys that were used as variables."""

    items: dict[str, Item]
    variables: set[int]  # id() of the Items that $references resolved to

    def is_variable(self, item: Item) -> bool:
        """Whether the entry was used as a variable, so that its key may be an unknown one."""
        return id(item) in self.variables


_NUMBER = re.compile(r"(-?\d+)(?:([kmgtpe])(i?b|i)?)?", re.IGNORECASE)
_FLOAT = re.compile(r"-?\d+\.\d+")
_TRUE = {"true", "yes", "on"}
_FALSE = {"false", "no", "off"}
_POWER = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_BLANK = " \t\r"
_MAX_DEPTH = 100
_MAX_INCLUDES = 100


def parse(
    text: str,
    file: str = "config",
    *,
    environ: Mapping[str, str] | None = None,
    read_include: Callable[[str, str], tuple[str, str]] | None = None,
) -> Tree:
    """Parse a configuration text. ConfigError with ``file:line:column`` when it breaks the grammar.

    read_include(including file, path) gives (file name, text) of an included file or raises
    OSError.
    """
    variables: set[int] = set()
    root: dict[str, Item] = {}
    parser = _Parser(text, file, dict(environ or {}), read_include, [root], variables)
    parser.document(root)
    return Tree(root, variables)


class _Parser:
    """Recursive descent over one text; each included text and environment value has its own parser."""

    def __init__(
        self,
        text: str,
        file: str,
        environ: dict[str, str],
        read_include: Callable[[str, str], tuple[str, str]] | None,
        scopes: list[dict[str, Item]],
        variables: set[int],
        includes: int = 0,
    ) -> None:
        self.text = text
        self.file = file
        self.environ = environ
        self.read_include = read_include
        self.scopes = scopes  # enclosing maps for variables, outermost first
        self.variables = variables
        self.includes = includes
        self.lines: list[int] = []  # where each line begins, when a position was needed
        self.at = 0
        self.depth = 0

    def document(self, into: dict[str, Item]) -> None:
        """The whole text: entries, or one map that wraps them."""
        self.skip_space()
        if self.peek() == "{":
            self.at += 1
            self.entries(into, "}", "the end of the map")
            self.skip_space()
        if self.at < len(self.text):
            self.entries(into, "", "a key")

    def entries(self, into: dict[str, Item], end: str, expected: str) -> None:
        """``key value`` pairs up to the closing character, or to the end of the text when `closing`
        is empty.
        """
        while True:
            self.skip_space(",;")
            if self.at >= len(self.text):
                if end:
                    raise self.error(f'the file ends where {expected} "{end}" was expected')
                return
            if end and self.peek() == end:
                self.at += 1
                return
            self.entry(into)
            self.end_of_item(end)

    def entry(self, into: dict[str, Item]) -> None:
        start = self.at
        key, quoted = self.key()
        if key == "include" and not quoted and self.include(into):
            return
        self.skip_blanks()
        separated = self.peek() in (":", "=")
        if separated:
            self.at += 1
            if self.peek() in (":", "="):
                self.at += 1
            self.skip_blanks()
        else:
            self.skip_space()
        if self.peek() in ("\n", "") or self.comment_here():
            raise self.error(f'key "{key}" has no value')
        item = self.value(start)
        into[key] = item

    def key(self) -> tuple[str, bool]:
        mark = self.peek()
        if mark in ('"', "'"):
            return (self.double_quoted() if mark == '"' else self.single_quoted()), True
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in " \t\r\n:={},;[]":
            self.at += 1
        if self.at == start:
            raise self.error(f"expected a key, got {mark!r}")
        return self.text[start : self.at], False

    def value(self, start: int) -> Item:
        """One value; `start` is the beginning of its item."""
        line, column = self.position(start)
        mark = self.peek()
        if mark == '"':
            return self.item(self.double_quoted(), line, column)
        if mark == "'":
            return self.item(self.single_quoted(), line, column)
        if mark == "(":
            return self.item(self.block(), line, column)
        if mark == "[":
            return self.item(self.array(), line, column)
        if mark == "{":
            return self.item(self.map(), line, column)
        bare = self.bare()
        if bare.startswith("$") and not re.match(r"\$2[abxy]?\$", bare):
            found = self.variable(bare[1:], start)
            item = self.item(found.value, line, column, found.word)
            return item._replace(private=item.private or found.private)
        return self.item(_scalar(bare), line, column, bare)

    def item(self, value: Value, line: int, column: int, word: str = "") -> Item:
        return Item(value, self.file, line, column, word, self.includes > 0)

    def array(self) -> list[Item]:
        self.descend()
        items: list[Item] = []
        while True:
            self.skip_space()
            if self.at >= len(self.text):
                raise self.error('the file ends where the end of the array "]" was expected')
            if self.peek() == "]":
                self.at += 1
                self.depth -= 1
                return items
            if self.peek() == ",":
                raise self.error("expected a value of the array before the comma")
            items.append(self.value(self.at))
            self.end_of_item("]")
            if self.peek() == ",":
                self.at += 1

    def map(self) -> dict[str, Item]:
        self.descend()
        inner: dict[str, Item] = {}
        self.scopes.append(inner)
        self.entries(inner, "}", "the end of the map")
        self.scopes.pop()
        self.depth -= 1
        return inner

    def descend(self) -> None:
        self.at += 1
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.error(f"maps and arrays are nested more than {_MAX_DEPTH} deep")

    def end_of_item(self, end: str) -> None:
        """Skip the end of a value: a line end, comma, semicolon, comment or the closing character."""
        self.skip_blanks()
        mark = self.peek()
        if mark in ("", "\n", ",", ";") or mark == end or self.comment_here():
            return
        raise self.error(f"expected the end of the line or a comma after a value, got {mark!r}")

    # -- scalars

    def bare(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in " \t\r\n,;]}":
            self.at += 1
        if self.at == start:
            raise self.error(f"expected a value, got {self.peek()!r}")
        return self.text[start : self.at]

    def double_quoted(self) -> str:
        start = self.at
        self.at += 1
        parts: list[str] = []
        while True:
            if self.at >= len(self.text):
                raise self.error("a quoted string is not closed", start)
            mark = self.text[self.at]
            self.at += 1
            if mark == '"':
                return "".join(parts)
            parts.append(self.escape() if mark == "\\" else mark)

    def escape(self) -> str:
        mark = self.peek()
        self.at += 1
        if mark == "x":
            digits = self.text[self.at : self.at + 2]
            if re.fullmatch(r"[0-9a-fA-F]{2}", digits):
                self.at += 2
                return chr(int(digits, 16))
            raise self.error(f"\\x needs two hexadecimal digits, got {digits!r}", self.at - 2)
        if mark in _ESCAPES:
            return _ESCAPES[mark]
        raise self.error(
            f'invalid escape \\{mark}; known ones are \\xHH \\t \\n \\r \\" \\\\', self.at - 2
        )

    def single_quoted(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise self.error("a quoted string is not closed")
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return found

    def block(self) -> str:
        found = re.compile(r"^[ \t]*\)[ \t\r]*$", re.MULTILINE).search(self.text, self.at)
        if found is None:
            raise self.error('a block string "(" has no line with only ")"')
        body = self.text[self.at + 1 : found.start()]
        self.at = found.start() + found.group().index(")") + 1
        return body.strip("\r\n")

    # -- variables and includes

    def variable(self, name: str, start: int) -> Item:
        for scope in reversed(self.scopes):
            if name in scope:
                self.variables.add(id(scope[name]))
                return scope[name]
        if name in self.environ:
            return self.from_environment(name)
        raise self.error(f"variable ${name} is neither set above nor in the environment", start)

    def from_environment(self, name: str) -> Item:
        """The value of an environment variable, parsed as configuration: numbers, quotes and $NAME
        have their meaning.
        """
        without = {key: value for key, value in self.environ.items() if key != name}
        holder: dict[str, Item] = {}
        inner = _Parser(f"v = {self.environ[name]}", f"${name}", without, None, [holder], set())
        inner.document(holder)
        if set(holder) != {"v"}:
            raise self.error(
                f"environment variable {name} is not one value: {self.environ[name]!r}"
            )
        return holder["v"]

    def include(self, into: dict[str, Item]) -> bool:
        """Parse ``include path``; False when the word is an ordinary key."""
        start = self.at
        self.skip_blanks()
        if self.peek() in (":", "=", "{"):
            self.at = start
            return False
        if self.peek() in ("\n", ""):
            raise self.error("include has no path", start)
        mark = self.peek()
        if mark in ('"', "'"):
            path = self.double_quoted() if mark == '"' else self.single_quoted()
        else:
            path = self.bare()
        if self.read_include is None or self.includes >= _MAX_INCLUDES:
            why = "includes are nested too deep or not possible here"
            raise self.error(f"include {path}: {why}", start, shown=why)
        try:
            file, text = self.read_include(self.file, path)
        except (OSError, UnicodeDecodeError) as problem:
            why = unreadable(problem)
            shown = f"can't include what is named here: {why}"
            raise self.error(f"can't include {path}: {why}", start, shown=shown) from None
        scopes = self.scopes if self.scopes[-1] is into else [*self.scopes, into]
        inner = _Parser(
            text, file, self.environ, self.read_include, scopes, self.variables, self.includes + 1
        )
        inner.document(into)
        return True

    # -- characters

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def comment_here(self) -> bool:
        return self.text.startswith("#", self.at) or self.text.startswith("//", self.at)

    def skip_blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _BLANK:
            self.at += 1

    def skip_space(self, also: str = "") -> None:
        """Skip blanks, line ends, comments and the given separators."""
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r\n\ufeff" or self.text[self.at] in also:
                self.at += 1
            elif self.comment_here():
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def position(self, at: int) -> tuple[int, int]:
        if not self.lines:
            self.lines = [0, *(match.end() for match in re.finditer("\n", self.text))]
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1

    def error(self, message: str, at: int | None = None, shown: str = NOT_SHOWN) -> ConfigError:
        """Raise an error; `shown` replaces the text in an included file."""
        line, column = self.position(self.at if at is None else at)
        if self.includes:
            message = shown
        return ConfigError(f"{self.file}:{line}:{column}: Parse error: {message}")


def _scalar(bare: str) -> Scalar:
    """The value of an unquoted word: boolean, whole number with an optional size suffix, float,
    else text.
    """
    lower = bare.lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    number = _NUMBER.fullmatch(bare)
    if number:
        digits, unit, binary = number.groups()
        scale = (1024 if binary else 1000) ** _POWER[unit.lower()] if unit else 1
        return int(digits) * scale
    if _FLOAT.fullmatch(bare):
        return float(bare)
    return bare
