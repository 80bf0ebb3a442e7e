"""Checks of the arguments of public calls, before anything is sent.

A wrong kind is a TypeError that names the argument and what it takes::

    key is text, not int (5)

Also what several calls have in common: subjects, and a configuration as an object or as keywords of its
class. What another value may be (a negative number, a name with blanks) its call checks, with ValueError or
an error of the client. Numbers of other libraries are numbers.
"""

from __future__ import annotations

import inspect
import re
from difflib import get_close_matches
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pelton.errors import InvalidSubjectError

if TYPE_CHECKING:
    from collections.abc import Mapping


def refuse(name: str, what: str, value: object, call: str = "") -> NoReturn:
    """Raise the TypeError for an argument of a wrong kind."""
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
    hint = ": encode it" if what == "bytes" and isinstance(value, str) else ""
    if unawaited(value):
        hint = ": give it without calling it" if what == "a function" else ": await it"
    where = f"{call}: " if call else ""
    raise TypeError(
        f"{where}{name} is {what}, not {type(value).__name__} ({shown}){hint}"
    ) from None


def check_texts(**values: object) -> None:
    """Raise the TypeError for the first argument that is neither text nor None."""
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            refuse(name, "text", value)


def check_functions(**values: object) -> None:
    """Raise the TypeError for the first argument that is neither called nor None."""
    for name, value in values.items():
        if value is not None and not callable(value):
            refuse(name, "a function", value)


def check_number(
    name: str, value: object, *, least: int | None = None, optional: bool = False
) -> None:
    """Raise TypeError unless an argument is a whole number, and ValueError for less than ``least``."""
    if optional and value is None:
        return
    if not hasattr(type(value), "__index__"):
        refuse(name, "a whole number", value)
    if least is not None and int(cast("int", value)) < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def unawaited(value: object) -> bool:
    """Whether a value is a coroutine that was to be awaited; closes it, or Python warns of it, too."""
    if not inspect.iscoroutine(value):
        return False
    value.close()
    return True


# The words of Go's decoder, which pelton.api repeats.
_FIELD = re.compile(r"cannot unmarshal .* into Go struct field \w+\.([\w.]+) of type (\S+)")
_RANGES = {
    "int": (-(1 << 63), (1 << 63) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint64": (0, (1 << 64) - 1),
}
_NO_STRUCTURE = re.compile(r"type object '(\w+)' has no attribute '__struct_fields__'")
_FIELD_KINDS = {"string": "text", "bool": "True or False", "[]string": "a list of texts"}


def refuse_field(config: object, error: Exception) -> NoReturn:
    """Raise the error for a field of a configuration that cannot be encoded, or read as what it is:
    ValueError for a number out of range, else TypeError.
    """
    kind = type(config).__name__
    found = _FIELD.search(str(error))
    if found is None:
        plain = _NO_STRUCTURE.search(str(error))
        why = f"{plain[1]} where a structure belongs, such as StreamSource" if plain else error
        raise TypeError(f"{kind}: a field has a value of a wrong kind: {why}") from error
    name, wanted = found[1], found[2]
    whole = "a whole number" if "int" in wanted else wanted
    value = getattr(config, name, None)
    if isinstance(value, int) and not isinstance(value, bool) and (wanted in _RANGES):
        low, high = _RANGES[wanted]
        bound = f"maximum {high}" if value > high else f"minimum {low}"
        raise ValueError(f"{kind}: {name} is out of range: {value} ({bound})") from None
    what = _FIELD_KINDS.get(wanted, whole)
    if value is None:  # a field of a field
        raise TypeError(f"{kind}: {name} is {what}, which it is not") from None
    refuse(name, what, value, kind)


def unknown_words(config: object) -> list[str]:
    """The fields that hold none of the words that the client knows for them, each with those."""
    from difflib import get_close_matches

    found = []
    for name, hint in get_type_hints(type(config)).items():
        value = getattr(config, name, None)
        kinds = (hint, *get_args(hint))  # itself, or what it may be beside None
        words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
        if words and value and value not in words:
            near = get_close_matches(str(value).lower(), words, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            found.append(f"{name} is one of {', '.join(filter(None, words))}, not {value}{meant}")
    return found


def waits(callback: object) -> bool:
    """Whether a callback is a coroutine function, or an object that is called as one."""
    call = getattr(callback, "__call__", None)  # noqa: B004  # asks for the method, not whether
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(call)


def check_publish(subject: object, payload: object, reply: object, headers: object) -> None:
    """Raise the TypeError for what no message can have."""
    for name, value in (("subject", subject), ("reply", reply)):
        if not isinstance(value, str):
            refuse(name, "text", value)
    if not isinstance(payload, bytes):
        refuse("data", "bytes", payload)
    if not isinstance(headers, bytes):
        refuse("headers", "bytes", headers)


C = TypeVar("C")


def make_config(
    kind: type[C], given: C | str | None, fields: Mapping[str, object], name: str = ""
) -> C:
    """The object that a user gave, or one that is made of keywords.

    ``name``: the argument, and the field that its text is for, such as "bucket"; "" for a class without
    one, where None is given with the keywords. Raises TypeError for an object together with keywords, and for a
    keyword that the class does not have; the class itself checks the values.
    """
    if isinstance(given, str) if name else given is None:
        _check_names(kind, fields)
        values: dict[str, Any] = dict(fields)
        if name:
            values[name] = given
        return kind(**values)
    if not _is_one(kind, given):
        refuse(name or "config", f"a name or a {kind.__name__}" if name else kind.__name__, given)
    if fields:
        raise TypeError(
            f"give a whole {kind.__name__}, or single fields, not both: {', '.join(fields)}"
        )
    return given  # type: ignore[return-value]  # text was dealt with


def _is_one(kind: type, given: object) -> bool:
    """Whether this is such a configuration: a class of the same name will do, as the wire's own."""
    # pelton.api has classes of the same names, with the same fields, in the form of the wire.
    return any(base.__name__ == kind.__name__ for base in type(given).__mro__)


def _check_names(kind: type, fields: Mapping[str, object]) -> None:
    known = getattr(kind, "__struct_fields__", None) or kind.__dataclass_fields__  # type: ignore[attr-defined]  # a dataclass
    for each in fields:
        if each not in known:
            near = get_close_matches(each, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"see help({kind.__name__})"
            raise TypeError(f"{kind.__name__} has no field {each}: {hint}")


# A blank would end the subject within its line, and a line end could begin another operation.
_PATTERN = re.compile(r"[^ \t\r\n\f\0.]+(?:\.[^ \t\r\n\f\0.]+)*")
BLANK = re.compile(r"[ \t\r\n\f\0]")


def check_literal(subject: str) -> None:
    """Raise InvalidSubjectError unless a message can be published to the subject."""
    if not isinstance(subject, str):
        refuse("subject", "text", subject)
    if _PATTERN.fullmatch(subject) is None or not {"*", ">"}.isdisjoint(subject.split(".")):
        raise InvalidSubjectError(
            f"cannot publish to {subject!r}: expected tokens without blanks or wildcards"
        )


def check_pattern(subject: str) -> None:
    """Raise InvalidSubjectError unless a client can subscribe to the subject; wildcards are allowed."""
    if _PATTERN.fullmatch(subject) is None or ">" in subject.split(".")[:-1]:
        raise InvalidSubjectError(
            f"cannot subscribe to {subject!r}: expected tokens without blanks, `>` only at the end"
        )
