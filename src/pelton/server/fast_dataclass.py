"""Dataclasses with slots, made without code generation.

A server makes some thirty such classes before it greets the first client. ``dataclasses`` compiles three
functions for each class, and imports ``inspect`` and ``ast`` for that: together half of a start. Here
each class keeps its fields in a table, and one `__init__` reads it for all classes. Type checkers see
dataclasses.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_facts):
        """Only for type checkers."""
        return lambda kind: kind


class _Missing:
    """The default of a field that must be given."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: "Any" = _Missing()


class _Field:
    """The arguments of `field` for one field."""

    __slots__ = ("compare", "default", "factory", "secret")

    def __init__(
        self, default: object, factory: "Callable[[], object] | None", secret: bool, compare: bool
    ) -> None:
        self.default = default
        self.factory = factory
        self.secret = secret
        self.compare = compare


def field(
    *,
    default: "T" = MISSING,
    default_factory: "Callable[[], T] | None" = None,
    secret: bool = False,
    compare: bool = True,
) -> "T":
    """A field with options: a default per instance (default_factory), hidden in repr (secret),
    ignored by == (compare).
    """
    made: T = _Field(default, default_factory, secret, compare)  # type: ignore[assignment] # the class puts its default there
    return made


@dataclass_transform(field_specifiers=(field,))
class _Kind(type):
    """Makes the fields of a class from its annotations."""

    _table: "dict[str, _Field]"

    def __new__(mcs, name: str, bases: "tuple[type, ...]", namespace: "dict[str, Any]") -> "_Kind":
        table: dict[str, _Field] = {}
        for base in bases:
            table |= getattr(base, "_table", {})
        own = namespace.get("__annotations__", ())
        for each in own:
            said = namespace.pop(each, MISSING)
            table[each] = said if type(said) is _Field else _Field(said, None, False, True)
        kind = super().__new__(mcs, name, bases, {**namespace, "__slots__": tuple(own)})
        kind._table = table
        return kind


class FastDataclass(metaclass=_Kind):
    """A class whose annotations are its fields, with their defaults.

    Instances are equal when class and fields are equal. They are mutable and have no hash.
    """

    def __init__(self, *given: object, **named: object) -> None:
        """Take the fields by position or by name. TypeError as for any function."""
        table = self.__class__._table
        if given:
            if len(given) > len(table):
                raise TypeError(
                    f"{self.__class__.__name__} has {len(table)} fields, not {len(given)}"
                )
            for name, value in zip(table, given, strict=False):
                if name in named:
                    raise TypeError(f"{self.__class__.__name__}: {name} is given twice")
                named[name] = value
        for name, facts in table.items():
            if name in named:
                value = named.pop(name)
            elif facts.factory is not None:
                value = facts.factory()
            elif facts.default is not MISSING:
                value = facts.default
            else:
                raise TypeError(f"{self.__class__.__name__} needs {name}")
            setattr(self, name, value)
        if named:
            raise TypeError(f"{self.__class__.__name__} has no field {next(iter(named))}")

    def __eq__(self, other: object) -> bool:
        """Equal when class and fields are equal."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name)
            for name, facts in self.__class__._table.items()
            if facts.compare
        )

    __hash__ = None  # type: ignore[assignment] # instances are mutable

    def __repr__(self) -> str:
        """The fields without secrets."""
        shown = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name, facts in self.__class__._table.items()
            if not facts.secret
        )
        return f"{self.__class__.__qualname__}({shown})"

    def with_changes(self, **changes: object) -> "Self":
        """A copy with other values for some fields."""
        for name in self.__class__._table:
            changes.setdefault(name, getattr(self, name))
        return self.__class__(**changes)


def field_names(kind: "type[FastDataclass]") -> "tuple[str, ...]":
    """The names of a class's fields, in order."""
    return tuple(kind._table)
