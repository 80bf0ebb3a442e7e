"""Dataclasses with slots that are made without generating code.

A server makes some thirty such classes before it can greet the first client. ``dataclasses`` compiles
three functions for each class and imports ``inspect`` and ``ast`` for that: together half of a start.
Here a class keeps its fields in a table, and one `__init__` reads it for all classes. Type checkers see
dataclasses.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self, TypeVar, dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_facts):
        """For type checkers only."""
        return lambda kind: kind


class _Missing:
    """Stands for the default of a field that has to be given."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: "Any" = _Missing()


class _Field:
    """What `field` says of one field."""

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
    """A field with more than a default: made anew for each value, left out of repr (secret) or of ==."""
    made: T = _Field(default, default_factory, secret, compare)  # type: ignore[assignment] # the class puts its default there
    return made


@dataclass_transform(field_specifiers=(field,))
class _Kind(type):
    """Turns the annotations of a class into its fields."""

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
    """A class whose annotations are its fields, with the defaults that follow them.

    Values are equal when they are of the same class and their fields are. They can be changed, so
    they have no hash.
    """

    def __init__(self, *given: object, **named: object) -> None:
        """Fields by position or name; TypeError as of any other function."""
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
        """Of the same class, with equal fields."""
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name)
            for name, facts in self.__class__._table.items()
            if facts.compare
        )

    __hash__ = None  # type: ignore[assignment] # they change

    def __repr__(self) -> str:
        """The fields, but for secrets."""
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
    """The fields of a class, in their order."""
    return tuple(kind._table)
