"""A query that is run again and again over a table that grows, and ways in which it writes."""

from __future__ import annotations

import pyarrow as pa
from deltalake import write_deltalake

from pelton.spark.tables import append, upsert

DELTA = "jetstream_delta"


class Feed:
    """A table that grows by a row at a time, and queries that read it."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.number = spark, folder, 0
        self.checkpoint = str(folder / "checkpoint")

    def grow(self):
        rows = pa.table({"seq": pa.array([self.number], pa.int64())})
        write_deltalake(self.folder / "in", rows, mode="append")
        self.number += 1

    def run(self, write):
        rows = self.spark.readStream.format(DELTA).load(str(self.folder / "in"))
        writer = write(rows).option("checkpointLocation", self.checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query


def by_format(path, **options):
    return lambda rows: rows.writeStream.format(DELTA).options(path=str(path), **options)


def by_upsert(path, **given):
    def take(rows, batch):
        upsert(rows, batch, path, keys=["seq"], **given)

    return lambda rows: rows.writeStream.foreachBatch(take)


def by_append(path, **given):
    def take(rows, batch):
        append(rows, batch, path, **given)

    return lambda rows: rows.writeStream.foreachBatch(take)
