"""The annotations of message fields: how each field is written on the wire.

A field is a plain Python type, or one of the aliases below, which add properties that Python's types
do not have: the width of a number, a time as an integer, a zero value that is left out.
`api/codec` reads these annotations; type checkers see the plain types.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Struct


class Omit(Struct, frozen=True):
    """The field is left out of the JSON if it has its zero value (0, "", false, empty, None)."""


class Flatten(Struct, frozen=True):
    """The fields of this object are in the JSON object itself; None: they are all absent."""


class Number(Struct, frozen=True):
    """A whole number, its range, and the name of its type in error texts.

    ``read`` converts the number on the wire to the value, ``write`` the value to the number; None:
    they are the same.
    """

    name: str
    low: int
    high: int
    read: Callable[[int], int] | None = None
    write: Callable[[Any], int] | None = None


class Instant(Struct, frozen=True):
    """A time: nanoseconds since 1970 here, an RFC 3339 string on the wire.

    0 is the zero time `0001-01-01T00:00:00Z`. In a field that may be None, 0 is 1970, and the zero
    time is `times.ZERO_NS`. ``write`` converts values that are not integers; None: all are.
    """

    write: Callable[[Any], Any] | None = None


class Choice(Struct, frozen=True):
    """A closed set of strings.

    `error` is the text for any other value ({raw}: its JSON text, quoted; {value}: the value,
    quoted). `aliases` are other words that a server reads, and their meanings.
    """

    error: str = "can not unmarshal {raw}"
    aliases: tuple[tuple[str, str], ...] = ()


OMIT = Omit()
FLATTEN = Flatten()
INSTANT = Instant()

_INT64 = (-(1 << 63), (1 << 63) - 1)

Int = Annotated[int, Number("int", *_INT64)]
Int32 = Annotated[int, Number("int32", -(1 << 31), (1 << 31) - 1)]
Int64 = Annotated[int, Number("int64", *_INT64)]
Uint16 = Annotated[int, Number("uint16", 0, (1 << 16) - 1)]
Uint64 = Annotated[int, Number("uint64", 0, (1 << 64) - 1)]
Duration = Annotated[int, Number("time.Duration", *_INT64)]
"""Nanoseconds."""
Time = Annotated[int, INSTANT]
"""Nanoseconds since 1970, UTC; 0 is the zero time (`Time | None`: None is no time, 0 is 1970)."""

Retention = Annotated[Literal["limits", "interest", "workqueue"], Choice()]
Discard = Annotated[Literal["old", "new"], Choice()]
Storage = Annotated[Literal["file", "memory"], Choice()]
Compression = Annotated[Literal["none", "s2"], Choice("unknown compression algorithm")]
PersistMode = Annotated[Literal["default", "async"], Choice(aliases=(("", "default"),))]
DeliverPolicy = Annotated[
    Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"],
    Choice(aliases=(("undefined", "all"),)),
]
AckPolicy = Annotated[Literal["none", "all", "explicit", "flow_control"], Choice()]
ReplayPolicy = Annotated[Literal["instant", "original"], Choice()]
PriorityPolicy = Annotated[
    Literal["none", "overflow", "pinned_client", "prioritized"],
    Choice("unknown priority policy: {value}"),
]
ConsumerAction = Annotated[
    Literal["", "create", "update"], Choice("unknown consumer action: {value}")
]
