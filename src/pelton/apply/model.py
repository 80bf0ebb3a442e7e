"""The values that all parts share: a place in a file, a node, a problem, a resource."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from pelton.api import ConsumerConfig, StreamConfig
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

OWNER_KEY = "managed-by"
"""The metadata that says who manages a stream or consumer."""


@dataclass(frozen=True, order=True)
class Place:
    """A place in a file; line and column begin with 1, and 0 is unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """``file:line:column``, as far as it is known."""
        known = [str(part) for part in (self.line, self.column) if part]
        return ":".join([self.file, *known])


@dataclass
class Node:
    """A value of a file and its place; ``key`` is the place of the key before it."""

    value: NodeValue
    place: Place
    key: Place | None = None

    @property
    def at(self) -> Place:
        """Where to point at: the key, or the value where there is none."""
        return self.key or self.place


NodeValue: TypeAlias = "str | int | float | bool | list[Node] | dict[str, Node] | None"


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake in a file."""

    place: Place
    text: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.place}: {self.text}"


class ConfigurationError(PeltonError):
    """Files cannot be applied; ``problems`` are the mistakes, each with its place."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Iterable[Problem]) -> None:
        """One line for each problem."""
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


def fault(place: Place, text: str) -> ConfigurationError:
    """The error for one mistake."""
    return ConfigurationError([Problem(place, text)])


Kind: TypeAlias = Literal["stream", "consumer", "kv", "object"]
Config: TypeAlias = StreamConfig | ConsumerConfig
Key: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Resource:
    """A stream or consumer that should exist. A bucket is the stream that it is made of."""

    kind: Kind
    stream: str
    config: Config
    place: Place
    consumer: str = ""
    prevent_delete: bool = False
    prevent_update: bool = False

    @property
    def key(self) -> Key:
        """The stream's name, and the consumer's ("" for a stream)."""
        return self.stream, self.consumer

    @property
    def title(self) -> str:
        """How people call it."""
        return title(self.stream, self.consumer)


@dataclass(frozen=True)
class Entry:
    """A key of a key-value bucket, and the value that it should have."""

    bucket: str
    name: str
    value: bytes
    place: Place
    prevent_delete: bool = False

    @property
    def stream(self) -> str:
        """The stream that the bucket is made of."""
        return f"KV_{self.bucket}"

    @property
    def key(self) -> Key:
        """The bucket and the key."""
        return self.bucket, self.name

    @property
    def title(self) -> str:
        """How people call it."""
        return title(self.stream, entry=self.name)


def title(stream: str, consumer: str = "", entry: str = "") -> str:
    """How people call a stream, consumer, bucket or entry."""
    if entry:
        return f"entry {stream.removeprefix('KV_')} > {entry}"
    if consumer:
        return f"consumer {stream} > {consumer}"
    if stream.startswith("KV_"):
        return f"bucket {stream.removeprefix('KV_')}"
    if stream.startswith("OBJ_"):
        return f"object store {stream.removeprefix('OBJ_')}"
    return f"stream {stream}"


@dataclass
class Declared:
    """Everything that files declare, and remarks for the user."""

    resources: list[Resource] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def titles(self) -> Iterator[tuple[Place, str]]:
        """Where each resource and entry is declared, and how people call it."""
        yield from ((each.place, each.title) for each in self.resources)
        yield from ((each.place, each.title) for each in self.entries)

    def wrong(self, place: Place, text: str) -> None:
        """Note a mistake."""
        self.problems.append(Problem(place, text))

    def warn(self, place: Place, text: str) -> None:
        """Add a warning for the user."""
        self.warnings.append(Problem(place, text))
