"""A configuration as users give it: as an object, or as a name and keywords of its class."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from .arguments import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    return any(base.__name__ == kind.__name__ for base in type(given).__mro__)


def _check_names(kind: type, fields: Mapping[str, object]) -> None:
    known = getattr(kind, "__struct_fields__", None) or kind.__dataclass_fields__  # type: ignore[attr-defined]  # a dataclass
    for each in fields:
        if each not in known:
            near = get_close_matches(each, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"see help({kind.__name__})"
            raise TypeError(f"{kind.__name__} has no field {each}: {hint}")
