"""A pipeline as plain values: sources, steps, sinks. Nodes refer to each other by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.pipeline.description.problems import without_secrets
from pelton.spark.tables.options import KEEP_HOURS

if TYPE_CHECKING:
    from pathlib import Path

    from pelton.pipeline.description.alerts import Alerts
    from pelton.pipeline.description.cases import Case
    from pelton.pipeline.description.lineage import Lineage
    from pelton.pipeline.description.problems import Problem
    from pelton.spark.payloads.formats import Format

REJECTED = ".rejected"
"""After the name of a step that rejects rows: these rows."""
REJECT = "reject"
"""The value of ``onError`` for a step whose rows may throw."""

DELTA = "jetstream_delta"
ICEBERG = "jetstream_iceberg"
STREAM_FORMATS = ("jetstream", "jetstream_kv", "jetstream_object")
"""Formats that connect to servers."""


class Part:
    """A part of the file with the lines of its keys: ``where``, ``columns.total``, ``select.0``."""

    line: int
    lines: dict[str, int]

    def line_of(self, key: str) -> int:
        """The line of a key, or of the nearest key around it."""
        return self.lines.get(key) or self.lines.get(key.partition(".")[0]) or self.line


@dataclass(frozen=True)
class Source(Part):
    """Where rows come from. Options may hold secrets."""

    name: str
    line: int
    format: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    schema: str | None = None
    static: bool = False
    lines: dict[str, int] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Call:
    """The Python function of a step, and its keyword arguments."""

    module: str
    function: str
    arguments: dict[str, object] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """The function as the file spells it."""
        return f"{self.module}:{self.function}"


@dataclass(frozen=True)
class Decoding:
    """How a step decodes payloads; ``name`` is that of the format."""

    name: str
    format: Format
    column: str = "data"
    into: str = "value"
    rescue: str | None = "_rescued"
    schema: str | None = None
    types: dict[str, str] = field(default_factory=dict)
    infer: int = 1000
    evolve: str = "add"


@dataclass(frozen=True)
class Step(Part):
    """Rows made from the rows of ``inputs``; the fields apply in their order."""

    name: str
    line: int
    inputs: tuple[str, ...]
    python: Call | None = None
    sql: str | None = None
    decoding: Decoding | None = None
    watermark: tuple[str, str] | None = None
    where: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    select: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    expect: dict[str, str] = field(default_factory=dict)
    on_error: str = "fail"
    lines: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def catches(self) -> bool:
        """Whether rows that throw are rejected."""
        return self.on_error == REJECT

    @property
    def rejects(self) -> bool:
        """Whether there are rejected rows to read."""
        return bool(self.expect) or self.catches

    @property
    def light(self) -> bool:
        """Whether it is cheaper to compute the step twice than to cache it."""
        python = self.python is not None or self.decoding is not None
        return not python and self.sql is None and len(self.inputs) == 1


@dataclass(frozen=True)
class Upsert:
    """A table that keeps the newest row of each key, and sums over all rows of a key.

    With a ``catalog``, ``path`` is the name of an Iceberg table there.
    """

    path: str
    keys: tuple[str, ...]
    sequence: str = "seq"
    sums: tuple[str, ...] = ()
    delete_when: str | None = None
    merge_schema: bool = False
    storage: dict[str, str] = field(default_factory=dict, repr=False)
    if_behind: str = "fail"
    maintain_every: int | None = None
    keep_hours: int = KEEP_HOURS
    on_row_error: str = "fail"
    error_path: str | None = None
    catalog: str | None = None
    catalog_properties: dict[str, str] = field(default_factory=dict, repr=False)
    keep_deleted_hours: int | None = None
    history: bool = False


@dataclass(frozen=True)
class Registration:
    """The catalog that a Delta table is registered in, Unity Catalog or Glue, and its name there."""

    table: str
    unity: str | None = None
    token: str | None = field(default=None, repr=False)
    glue: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True)
class Sink(Part):
    """A target of rows: a format, or ``upsert``. Options may hold secrets."""

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
    register: Registration | None = None
    trigger_seconds: float | None = None
    conditions: tuple[str, ...] = field(default=(), compare=False)
    """The conditions of ``expect`` that rejected rows, which it takes, may have failed."""
    lines: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def shareable(self) -> bool:
        """Whether the sink itself recognizes a repeated batch.

        Only such a sink can share a query with others.
        """
        if self.own or self.trigger_seconds is not None or self.mode != "append":
            return False
        return self.upsert is not None or self.format in (DELTA, *STREAM_FORMATS)

    @property
    def once_by_batch(self) -> bool:
        """Whether the sink recognizes a repeated batch that is handed to it, in any query."""
        if self.mode != "append":
            return False
        return self.upsert is not None or self.format in (DELTA, ICEBERG, *STREAM_FORMATS)

    @property
    def place(self) -> str | None:
        """The folder or URL that the sink writes to, if it has one."""
        if self.upsert is not None:
            return self.upsert.path if self.upsert.catalog is None else None
        return next((each for key, each in self.options.items() if key.lower() == "path"), None)


@dataclass(frozen=True)
class Metrics:
    """Where progress is published."""

    port: int | None = None
    host: str = "127.0.0.1"
    subject: str | None = None


@dataclass(frozen=True)
class Pipeline:
    """A whole pipeline. Relative paths start at ``folder``; ``secrets`` must not be printed."""

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
    alerts: Alerts | None = None
    lineage: Lineage | None = None
    target: str = ""
    """The target of the file that it was read for; "" for a file without targets."""
    warnings: tuple[Problem, ...] = ()
    """Probable mistakes, which do not prevent a run."""
    cases: tuple[Case, ...] = ()
    case_files: tuple[str, ...] = ()
    """Patterns of further files with tests, which a run does not read."""

    def inputs(self, name: str) -> tuple[str, ...]:
        """The sources and steps that a node reads; () for a source."""
        if name in self.steps:
            return tuple(map(node_of, self.steps[name].inputs))
        return (node_of(self.sinks[name].input),) if name in self.sinks else ()

    def hide(self, text: str) -> str:
        """A text with the secrets of this pipeline removed."""
        return without_secrets(text, self.secrets)


def node_of(reference: str) -> str:
    """The step or source that a reference names."""
    return reference.removesuffix(REJECTED)
