"""The keys of a pipeline file and their meanings.

Tests compare the reader, its errors and the reference page with these tables.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """A key and its meaning."""

    name: str
    meaning: str


TOP = (
    Key("pipeline", "Name for the state folder, for queries in metrics, for shadow consumers."),
    Key("state", "Folder with the position of each query; state/<pipeline> beside the file."),
    Key("defaults", "trigger, and options for connections and object stores."),
    Key("sources", "Where rows come from, by name."),
    Key("steps", "What is done with them, by name."),
    Key("sinks", "Where rows go, by name."),
    Key("spark", "master and spark.* settings of the session that the command starts."),
    Key("metrics", "Publish progress, serve metrics."),
    Key("alerts", "Limits of lag, late and rejected rows; tell when a query is beyond one."),
    Key("lineage", "Send events of OpenLineage about each run."),
    Key("targets", "Keys that differ in development, production and so on, by name."),
    Key("tests", "Rows given and rows expected, by name; or files with such tests."),
)
SOURCE = (
    Key("format", "Any format of Spark for readStream."),
    Key("schema", "Columns, such as id long, name string; file formats need it."),
    Key("static", "true: read whole, again for each micro-batch, for look-ups."),
    Key("options", "Options of the format whose name is one of these keys."),
)
STEP = (
    Key("from", "A source or step, or several; step.rejected for the rows that it rejected."),
    Key("python", "module:function, from DataFrames to a DataFrame."),
    Key("with", "Keyword arguments of the function."),
    Key("sql", "A query over the inputs by their names."),
    Key("json", "Decode payloads of JSON."),
    Key("msgpack", "Decode payloads of MessagePack."),
    Key("cbor", "Decode payloads of CBOR."),
    Key("avro", "Decode payloads of Avro."),
    Key("protobuf", "Decode payloads of Protobuf."),
    Key("watermark", "Column and delay, such as ts 10 minutes."),
    Key("where", "A condition: other rows are left out."),
    Key("columns", "Columns to add or replace, each with an expression."),
    Key("select", "Columns and expressions to keep."),
    Key("drop", "Columns to leave out."),
    Key("expect", "Conditions by name; rows that fail one are in step.rejected."),
    Key("onError", "A row that throws: fail the batch, or reject it to step.rejected."),
)
FORMATS = tuple(key for key in STEP if key.meaning.startswith("Decode payloads"))
PAYLOADS = (
    Key("column", "Column with the payloads: data."),
    Key("into", "Column for the decoded values, a struct: value."),
    Key("rescue", "Column for what the struct does not hold, as JSON: _rescued; none: it is lost."),
    Key(
        "schema", "Columns of the struct, such as id long, name string; for avro a schema or file."
    ),
    Key("types", "Types of some fields, by name; the others come from data."),
    Key("infer", "Messages from which the first schema is made: 1000."),
    Key("evolve", "Fields that the schema lacks: add, freeze or reject."),
    Key("registry", "avro, protobuf: URL of a schema registry, or a bucket with schemas."),
    Key("descriptors", "protobuf: file that protoc --descriptor_set_out writes."),
    Key("message", "protobuf: full name of the message in descriptors."),
)
SINK = (
    Key("from", "A source or step; step.rejected for the rows that it rejected."),
    Key("where", "Only rows that meet this condition."),
    Key("select", "Columns and expressions to write."),
    Key("format", "Any format of Spark for writeStream."),
    Key("upsert", "Table that keeps the newest row of each key: a folder or URL of a Delta table."),
    Key("mode", "append, update or complete."),
    Key("partitionBy", "Columns whose values get separate folders."),
    Key("query", "shared, or own: read the source for this sink alone."),
    Key("trigger", "Shortest interval between batches; gives the sink its own query."),
    Key("register", "Register the Delta table in a catalog: Unity Catalog, AWS Glue."),
    Key("options", "Options of the format whose name is one of these keys."),
)
REGISTER = (
    Key("table", "Name in the catalog: catalog.schema.table, or database.table for Glue."),
    Key("unity", "URL of a server of Unity Catalog."),
    Key("token", "Token for Unity Catalog."),
    Key("glue", "Region of AWS Glue."),
    Key("endpoint", "URL of a service that speaks Glue's API, instead of Amazon's."),
)
UPSERT = (
    Key("keys", "Columns that identify a row."),
    Key("sequence", "Column that orders the rows of a key; seq."),
    Key("sums", "Columns that are added up over all rows of a key."),
    Key("deleteWhen", "A condition: a row that meets it removes the row of its key."),
    Key("keepDeleted", "How long a deleted row stays, so that no older one comes back: 7d."),
    Key("history", "true keeps every version of each key, with valid_from and valid_to."),
    Key("mergeSchema", "true adds columns that the table does not have."),
    Key(
        "ifBehind",
        "If the table is gone or holds less than before: fail, begin again there, or fill it.",
    ),
    Key("catalog", "Catalog of an Iceberg table: upsert is its name, such as sales.orders."),
    Key("maintainEvery", "Maintain the table after so many commits."),
    Key("retention", "How long maintainEvery keeps files of old versions: 7d."),
    Key("onRowError", "A row that the table cannot hold: fail, or side (it goes to errorPath)."),
    Key("errorPath", "Side output: a folder of Parquet files."),
)
CASE = (
    Key("given", "Rows by source or step; a list of these has a micro-batch each."),
    Key("expect", "Rows by step, step.rejected or sink; a number is their count."),
    Key("ordered", "true: the rows come in this order."),
)
GIVEN = (
    Key("rows", "A list of rows."),
    Key("file", "A file of JSON lines, a row each, in place of rows."),
    Key("schema", "Columns, such as id long, name string, of a source without fixed columns."),
)
EXPECTED = GIVEN[:2]
DEFAULTS = (
    Key("trigger", "Shortest interval at which a query looks for rows: 1s; 0 means no pause."),
)
SPARK = (Key("master", "Where Spark runs: local[2,4]."),)
METRICS = (
    Key("port", "Serve /metrics for Prometheus on this port."),
    Key("host", "Address of the port: 127.0.0.1."),
    Key("subject", "Publish progress on this subject: spark.progress.{name}."),
)
ALERTS = (
    Key("lag", "Messages that a query may be behind."),
    Key("late", "Rows that a watermark may drop within the window."),
    Key("rejected", "Rejected rows within the window: 100, or a share of those read, 1%."),
    Key("stuck", "Time without a batch while there is lag: 5m."),
    Key("window", "Time over which late and rejected rows are counted: 5m."),
    Key("subject", "Publish alerts on this subject: alerts.{name}."),
)
LINEAGE = (
    Key("url", "Server of OpenLineage: http://localhost:5000."),
    Key("file", "File to which events are appended, a line each."),
    Key("namespace", "Namespace of the jobs: pelton."),
    Key("apiKey", "Key for the server, sent as a bearer token."),
)


def names(rows: tuple[Key, ...]) -> list[str]:
    """Only the names."""
    return [row.name for row in rows]
