"""Tables in memory, and messages of a made-up fleet as batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.spark.homes import CatalogHome
from pelton.plgd.spark.lake import Lake
from pelton.plgd.tables.batch import MESSAGES, Outcome, process
from pelton.plgd.tables.buckets import bucket_key, bucket_of
from pelton.plgd.tables.folders import NAMESPACE
from pelton.plgd.tables.schemas import TABLES, TableSchema, Way
from pelton.plgd.tables.settings import Settings


class IcebergLake(Lake):
    """The tables in a catalog, which is in a file beside them unless its properties are given."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        catalog: Mapping[str, str] | None = None,
        *,
        namespace: str = NAMESPACE,
    ) -> None:
        super().__init__(CatalogHome(folder, catalog, namespace=namespace), settings)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Bucket:
    """The tables of one bucket."""

    live: dict[str, pa.Table] = field(default_factory=dict)
    kept: dict[str, list[pa.Table]] = field(default_factory=dict)

    def current(self, table: TableSchema) -> pa.Table:
        return self.live.get(table.name, table.schema.empty_table())

    def closed(self, table: TableSchema, day: date) -> pa.Table:
        rows = pa.concat_tables([table.schema.empty_table(), *self.kept.get(table.name, [])])
        return rows.filter(pc.equal(rows["day"], day))

    def take(self, outcome: Outcome) -> None:
        for name, change in outcome.changes.items():
            if change.instead is not None:
                self.live[name] = change.instead
            for day in change.days:
                kept = self.kept[name]
                self.kept[name] = [one.filter(pc.not_equal(one["day"], day)) for one in kept]
            self.kept.setdefault(name, []).append(change.add)


class Memory:
    """Tables that are made batch by batch."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings(buckets=2)
        self.buckets = [Bucket() for _ in range(self.settings.buckets)]
        self.duplicates = 0

    def run(self, messages: pa.Table) -> None:
        for number, bucket in enumerate(self.buckets):
            mine = messages.filter(pc.equal(messages["bucket"], number))
            if len(mine):
                outcome = process(mine, bucket, self.settings)
                self.duplicates += outcome.duplicates
                bucket.take(outcome)

    def table(self, name: str) -> pa.Table:
        schema = TABLES[name].schema
        parts = [schema.empty_table()]
        for bucket in self.buckets:
            if TABLES[name].way is not Way.APPEND:
                parts.append(bucket.current(TABLES[name]))
            parts += bucket.kept.get(name, [])
        return pa.concat_tables(parts)

    def rows(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.table(name).to_pylist()
        return rows


def messages_of(config: FleetConfig, buckets: int = 2) -> tuple[FleetRun, pa.Table]:
    """A fleet's messages as a stream has them."""
    run = FleetRun(config)
    return run, as_messages(run.deliveries(), buckets)


def as_messages(deliveries: Iterable[Any], buckets: int = 2, first: int = 1) -> pa.Table:
    rows = list(deliveries)
    times = [EPOCH + timedelta(microseconds=row.time_ns // 1000) for row in rows]
    columns: dict[str, Any] = {
        "stream": ["EVENTS"] * len(rows),
        "seq": range(first, first + len(rows)),
        "received": times,
        "subject": [row.subject for row in rows],
        "headers": [None] * len(rows),
        "data": [row.payload for row in rows],
        "bucket": [bucket_of(bucket_key(row.subject), buckets) for row in rows],
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in MESSAGES], schema=MESSAGES)


def cut(messages: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, len(messages), rows):
        yield messages.slice(start, rows)
