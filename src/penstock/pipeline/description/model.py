"""A pipeline as it was described: sources, steps, sinks. Plain values; names refer to names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.pipeline.description.problems import Problem

REJECTED = ".rejected"
"""Behind the name of a step with ``expect``: the rows that failed."""

DELTA = "jetstream_delta"
STREAM_FORMATS = ("jetstream", "jetstream_kv", "jetstream_object")
"""Formats that talk to servers."""


@dataclass(frozen=True)
class Source:
    """Where rows come from. Options may hold secrets."""

    name: str
    line: int
    format: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    schema: str | None = None
    static: bool = False


@dataclass(frozen=True)
class Call:
    """A Python function that a step is, and its keyword arguments."""

    module: str
    function: str
    arguments: dict[str, object] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """As the file has it."""
        return f"{self.module}:{self.function}"


@dataclass(frozen=True)
class Step:
    """Rows made of the rows of ``inputs``; what is given is done in the order of the fields."""

    name: str
    line: int
    inputs: tuple[str, ...]
    python: Call | None = None
    sql: str | None = None
    watermark: tuple[str, str] | None = None
    where: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    expect: dict[str, str] = field(default_factory=dict)

    @property
    def light(self) -> bool:
        """Whether it is cheaper made twice than kept."""
        return self.python is None and self.sql is None and len(self.inputs) == 1


@dataclass(frozen=True)
class Upsert:
    """A Delta table that keeps the newest row of each key."""

    path: str
    keys: tuple[str, ...]
    sequence: str = "seq"
    delete_when: str | None = None
    merge_schema: bool = False
    storage: dict[str, str] = field(default_factory=dict, repr=False)
    if_behind: str = "fail"


@dataclass(frozen=True)
class Sink:
    """Where rows go: by a format, or by ``upsert``. Options may hold secrets."""

    name: str
    line: int
    input: str
    format: str | None = None
    upsert: Upsert | None = None
    where: str | None = None
    select: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict, repr=False)
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    own: bool = False
    trigger_seconds: float | None = None

    @property
    def shareable(self) -> bool:
        """Whether a batch that comes again is known by the sink itself, so that it can be one of
        several behind a query.
        """
        if self.own or self.trigger_seconds is not None or self.mode != "append":
            return False
        return self.upsert is not None or self.format in (DELTA, *STREAM_FORMATS)

    @property
    def place(self) -> str | None:
        """The folder or URL that it writes to, if it is one."""
        if self.upsert is not None:
            return self.upsert.path
        return next((each for key, each in self.options.items() if key.lower() == "path"), None)


@dataclass(frozen=True)
class Metrics:
    """How progress is told to the outside."""

    port: int | None = None
    host: str = "127.0.0.1"
    subject: str | None = None


@dataclass(frozen=True)
class Pipeline:
    """All of it. ``folder`` is where relative paths begin, ``secrets`` what must not be printed."""

    name: str
    file: str
    folder: Path
    state: Path
    sources: dict[str, Source]
    steps: dict[str, Step]
    sinks: dict[str, Sink]
    trigger_seconds: float = 1.0
    servers: dict[str, str] = field(default_factory=dict, repr=False)
    spark: dict[str, str] = field(default_factory=dict)
    metrics: Metrics | None = None
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    warnings: tuple[Problem, ...] = ()
    """What may be meant, and is more likely a mistake."""

    def inputs(self, name: str) -> tuple[str, ...]:
        """The sources and steps that a node reads; () for a source."""
        if name in self.steps:
            return tuple(map(node_of, self.steps[name].inputs))
        return (node_of(self.sinks[name].input),) if name in self.sinks else ()

    def hide(self, text: str) -> str:
        """A text without the secrets of this pipeline."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def node_of(reference: str) -> str:
    """The step or source that a reference is to."""
    return reference.removesuffix(REJECTED)
