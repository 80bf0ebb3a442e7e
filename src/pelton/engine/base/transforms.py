"""Transforms of subjects, such as from `orders.*.>` to `{{partition(3,1)}}.$1.>`.

Each token of a destination is plain text, a wildcard of the source (`$1`, `{{wildcard(1)}}`) or a
function of one: partition, split, slices, left, right, random. A `>` at the end of both stands for
the rest. Used by stream transforms, republish, mirrors and sources. The caller passes the source of
random numbers.

Functions work on the bytes of a subject, as in the protocol: inside this module, a subject is a
text with one character per byte.
"""

import functools
import re
from collections.abc import Callable

from pelton.core.protocol.subjects import valid

Function = Callable[[list[str]], str]  # the tokens of a subject -> a piece of the destination
Random = Callable[[int], int]  # returns a number below its argument

_CACHED = 4096
_SPACE = r"[\t\n\f\r ]*"
_INT32 = 2**31
_INT64 = 2**63
_DIGITS_MOST = 19
_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619
_NUMBER = re.compile(r"[+-]?[0-9]+")
_COMMA = re.compile(rf",{_SPACE}")
_BLANK = re.compile(r"[\t\n\f\r ]")


class TransformError(ValueError):
    """A source or destination that is not valid; the text is the protocol's."""


def parse(src: str, dest: str, random: Random | None = None) -> "Transform":
    """Parse a transform; "" as `src` is `>`. TransformError has the protocol's text.

    `random` is needed when the transform has a `random` function.
    """
    return Transform(src or ">", dest, random)


def units(src: str, dest: str) -> int:
    """Return about how many microseconds `check`, or `parse`, takes."""
    return 10 + len(src) // 8 + len(dest) // 2


def check(src: str, dest: str) -> None:
    """Check a transform of a stream or source configuration. TransformError: it is not valid.

    "" as destination is allowed: there is no transform.
    """
    if not dest:
        return
    rest = False
    for token in _inside(dest).split("."):
        if not token or rest:
            raise _error(token, "invalid transform")
        if len(token) > 4 and token.startswith("{{") and token.endswith("}}"):
            if not any(_arguments(name, token) is not None for name in _ORDER):
                raise _error(token, "unknown function")
        elif token == ">":
            rest = True
        elif _BLANK.search(token):
            raise _error("", "invalid transform")
    parse(src, dest)


class Transform:
    """One transform. `parse` creates it."""

    def __init__(self, src: str, dest: str, random: Random | None = None) -> None:
        """Raises TransformError."""
        self.src = src
        self.dest = dest
        self._random = random
        self._same = src == dest == ">"
        source, target = _tokens(src), _tokens(dest)
        if source is None or target is None or "*" in target:
            raise TransformError("invalid subject")
        if (source[-1] == ">") != (target[-1] == ">"):
            raise TransformError("invalid subject")
        self._rest = source[-1] == ">"
        self._length = len(source) - self._rest
        self._fixed = [(i, t) for i, t in enumerate(source[: self._length]) if t != "*"]
        self._wildcards = [i for i, token in enumerate(source) if token == "*"]
        self._varies = False
        pieces = target[:-1] if self._rest else target
        self._pieces = [self._piece(token) for token in pieces]
        self._applied: dict[str, str | None] = {}
        self._carried: dict[str, str | None] = {}

    def apply(self, subject: str) -> str | None:
        """Return the transformed subject; None when the subject is not literal or does not match
        the source.
        """
        try:
            return self._applied[subject]
        except KeyError:
            literal = _is_literal(subject.split("."))
            return self._found(self._applied, subject, self.carry(subject) if literal else None)

    def carry(self, subject: str) -> str | None:
        """Transform a published subject, which may have the tokens ``*`` and ``>``, as in a request
        that ends with a filter; these tokens stay. None when the subject does not match the source.
        """
        if self._same:
            return subject
        try:
            return self._carried[subject]
        except KeyError:
            pass
        plain = subject.isascii()
        found = self._made(subject if plain else _inside(subject))
        if found is not None and not plain:
            found = _outside(found)
        return self._found(self._carried, subject, found)

    def _found(self, cache: dict[str, str | None], subject: str, found: str | None) -> str | None:
        if not self._varies:
            if len(cache) >= _CACHED:
                cache.clear()
            cache[subject] = found
        return found

    def _made(self, subject: str) -> str | None:
        tokens = subject.split(".")
        if self._rest:
            if len(tokens) <= self._length:
                return None
        elif len(tokens) != self._length:
            return None
        if any(tokens[i] != token for i, token in self._fixed):
            return None
        made = [piece if isinstance(piece, str) else piece(tokens) for piece in self._pieces]
        if self._rest:
            made += tokens[self._length :]
        return ".".join(made)

    # --- destination tokens

    def _piece(self, token: str) -> str | Function:
        if len(token) > 1 and token[0] == "$":
            index = _integer(token[1:])
            return token if index is None else self._wildcard(token, index)
        if len(token) <= 4 or not (token.startswith("{{") and token.endswith("}}")):
            return token
        for name in _ORDER:
            arguments = _arguments(name, token)
            if arguments is not None:
                return self._function(name, token, arguments)
        raise _error(token, "unknown function")

    def _function(self, name: str, token: str, arguments: list[str]) -> Function:
        if name == "wildcard":
            return self._wildcard(token, _one_number(token, arguments))
        if name == "partition":
            return self._partition(token, arguments)
        if name == "random":
            if len(arguments) != 1:
                raise _error(token, _FEW)
            return self._drawn(_small(token, arguments[0]))
        if len(arguments) != 2:
            raise _error(token, _FEW if len(arguments) < 2 else _MANY)
        index = _integer(arguments[0].strip(" "))
        if index is None:
            raise _error(token, _WRONG)
        if name == "split":
            if " " in arguments[1] or "." in arguments[1]:
                raise _error(token, _WRONG)
            delimiter = arguments[1]
            return self._of(token, index, lambda text: _split(text, delimiter))
        number = _integer(arguments[1].strip(" "))
        if number is None or not -_INT32 <= number < _INT32:
            raise _error(token, _WRONG)
        cut = _CUTS[name]
        size = number
        return self._of(
            token, index, lambda text: cut(text, size) if 0 < size < len(text) else text
        )

    def _place(self, token: str, index: int) -> int:
        """Return the place of a wildcard, by its number, in the tokens of the source."""
        if not self._wildcards and not self._rest:
            raise _error(token, _RANGE)
        if index > len(self._wildcards):
            raise _error(f"{token}: [{index}]", _RANGE)
        return self._wildcards[index - 1] if index > 0 else 0

    def _wildcard(self, token: str, index: int) -> Function:
        place = self._place(token, index)
        return lambda tokens: tokens[place]

    def _of(self, token: str, index: int, change: Callable[[str], str]) -> Function:
        place = self._place(token, index)
        return lambda tokens: change(tokens[place])

    def _partition(self, token: str, arguments: list[str]) -> Function:
        buckets = _small(token, arguments[0]) % (1 << 32)
        indexes = [_integer(argument.strip(" ")) for argument in arguments[1:]]
        places = []
        for index in indexes:
            if index is None:
                raise _error(token, _WRONG)
        if self._wildcards or self._rest:
            places = [self._place(token, index) for index in indexes if index is not None]

        def bucket(tokens: list[str]) -> str:
            key = "".join([tokens[i] for i in places]) if places else ".".join(tokens)
            return str(fnv1a(key.encode("latin-1")) % buckets) if buckets else "0"

        return bucket

    def _drawn(self, ceiling: int) -> Function:
        self._varies = True
        return lambda _: str(self._random(abs(ceiling))) if ceiling and self._random else "0"


def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash."""
    found = _FNV_OFFSET
    for byte in data:
        found = ((found ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return found


# --- the functions of a token; `size` is above 0 and below the token's length


def _split_from_left(text: str, size: int) -> str:
    return f"{text[:size]}.{text[size:]}"


def _split_from_right(text: str, size: int) -> str:
    return f"{text[:-size]}.{text[-size:]}"


def _slice_from_left(text: str, size: int) -> str:
    return ".".join([text[i : i + size] for i in range(0, len(text), size)])


def _slice_from_right(text: str, size: int) -> str:
    rest = len(text) % size
    pieces = [text[i : i + size] for i in range(rest, len(text), size)]
    return ".".join([text[:rest], *pieces] if rest else pieces)


def _left(text: str, size: int) -> str:
    return text[:size]


def _right(text: str, size: int) -> str:
    return text[-size:]


def _split(text: str, delimiter: str) -> str:
    pieces = text.split(delimiter) if delimiter else list(_outside(text))
    out = []
    for number, piece in enumerate(pieces):
        out.append(piece)
        at_start = number == 0 and not piece
        if number < len(pieces) - 1 and pieces[number + 1] and not at_start:
            out.append(".")
    found = "".join(out)
    return found if delimiter else _inside(found)


_CUTS: dict[str, Callable[[str, int], str]] = {
    "splitFromLeft": _split_from_left,
    "splitFromRight": _split_from_right,
    "sliceFromLeft": _slice_from_left,
    "sliceFromRight": _slice_from_right,
    "right": _right,
    "left": _left,
}
_ORDER = ("wildcard", "partition", *_CUTS, "split", "random")

_FEW = "not enough arguments passed to the function"
_MANY = "too many arguments passed to the function"
_WRONG = "function argument is invalid or in the wrong format"
_RANGE = "wildcard index out of range"


def _error(token: str, why: str) -> TransformError:
    text = f"invalid mapping destination: {why}"
    return TransformError(f"{text} in {_outside(token)}" if token else text)


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    # the first letter of each word may be upper or lower case
    return re.compile(
        rf"\{{\{{{_SPACE}"
        + re.sub(r"^[a-z]|[A-Z]", lambda m: f"[{m[0].lower()}{m[0].upper()}]", name)
        + rf"{_SPACE}\((.*)\){_SPACE}\}}\}}"
    )


def _arguments(name: str, token: str) -> list[str] | None:
    match = _pattern(name).search(token)
    return _COMMA.split(match[1]) if match else None


def _one_number(token: str, arguments: list[str]) -> int:
    if arguments == [""]:
        raise _error(token, _FEW)
    if len(arguments) != 1:
        raise _error(token, _MANY)
    index = _integer(arguments[0].strip(" "))
    if index is None:
        raise _error(token, _WRONG)
    return index


def _integer(text: str) -> int | None:
    """Return a decimal number of 64 bits."""
    if not _NUMBER.fullmatch(text) or len(text.lstrip("+-0")) > _DIGITS_MOST:
        return None
    value = int(text.lstrip("+-0") or "0") * (-1 if text[0] == "-" else 1)
    return value if -_INT64 <= value < _INT64 else None


def _small(token: str, argument: str) -> int:
    """Return a number reduced to 32 bits."""
    value = _integer(argument.strip(" "))
    if value is None or value >= _INT32:
        raise _error(token, _WRONG)
    return (value + _INT32) % (1 << 32) - _INT32


def _tokens(subject: str) -> list[str] | None:
    """Return the tokens of a source or destination; None when it is no subject."""
    tokens = _inside(subject).split(".")
    if not all(tokens) or ">" in tokens[:-1]:
        return None
    return tokens


def _is_literal(tokens: list[str]) -> bool:
    return all(tokens) and "*" not in tokens and ">" not in tokens


def _inside(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


def _outside(text: str) -> str:
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "surrogateescape")


@functools.lru_cache(_CACHED)
def publishable(subject: str) -> bool:
    """Return whether clients may publish to the result of a transform."""
    return valid(subject) and _is_literal(subject.split("."))
