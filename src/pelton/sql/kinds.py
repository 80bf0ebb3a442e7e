"""Views over the streams behind key-value buckets, object stores and advisories, as texts in SQL.

A view names the stream tables that it reads; ``database`` makes these first. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

BUCKET, OBJECTS = "KV_", "OBJ_"
ADVISORIES = "$JS.EVENT.ADVISORY.>"
SCHEMAS = ("kv", "kv_history", "object", "jetstream")


@dataclass(frozen=True)
class View:
    """A view: its schema and name, the tables (stream, pattern) it reads by their names, and its query."""

    schema: str
    name: str
    tables: dict[str, tuple[str, str]]
    query: str


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string."""
    return "'" + text.replace("'", "''") + "'"


def bucket_views(stream: str) -> list[View]:
    """``kv_history.BUCKET`` has all kept revisions, ``kv.BUCKET`` the newest value of each key."""
    bucket = stream.removeprefix(BUCKET)
    table = f"__kv {bucket}"
    prefix = f"$KV.{bucket}."
    history = f"""
        SELECT substr(subject, {len(prefix) + 1}) AS key, text AS value, data, seq AS revision,
            ts AS created,
            CASE WHEN headers['KV-Operation'][1] IN ('DEL', 'PURGE') THEN headers['KV-Operation'][1]
                WHEN headers['Nats-Marker-Reason'][1] IN ('MaxAge', 'Purge') THEN 'PURGE'
                WHEN headers['Nats-Marker-Reason'][1] = 'Remove' THEN 'DEL'
                ELSE 'PUT' END AS operation
        FROM {quoted(table)}"""
    newest = f"""
        SELECT key, value, data, revision, created FROM ({history})
        QUALIFY row_number() OVER (PARTITION BY key ORDER BY revision DESC) = 1
            AND operation = 'PUT'"""
    tables = {table: (stream, f"{prefix}>")}
    return [View("kv_history", bucket, tables, history), View("kv", bucket, tables, newest)]


def object_view(stream: str) -> View:
    """``object.STORE``: the objects, without deleted ones."""
    store = stream.removeprefix(OBJECTS)
    table = f"__object {store}"
    fields = """{"name": "VARCHAR", "description": "VARCHAR", "nuid": "VARCHAR", "size": "BIGINT",
        "chunks": "BIGINT", "digest": "VARCHAR", "deleted": "BOOLEAN",
        "options": {"link": {"bucket": "VARCHAR", "name": "VARCHAR"}}}"""
    query = f"""
        SELECT o.name, o.size, o.chunks, o.digest, o.description, o.nuid, o.options.link AS link,
            ts AS modified, seq AS revision
        FROM (SELECT seq, ts, subject,
                json_transform(CASE WHEN json_valid(text) THEN text END, {literal(fields)}) AS o
            FROM {quoted(table)}
            QUALIFY row_number() OVER (PARTITION BY subject ORDER BY seq DESC) = 1)
        WHERE o.name IS NOT NULL AND NOT coalesce(o.deleted, false)"""
    return View("object", store, {table: (stream, f"$O.{store}.M.>")}, query)


def advisories_view(streams: list[str]) -> View:
    """``jetstream.advisories``: the server's advisories that the given streams have stored."""
    tables = {f"__advisories {stream}": (stream, ADVISORIES) for stream in streams}
    parts = [
        f"SELECT {literal(stream)} AS stored_in, seq, ts, subject, text FROM {quoted(table)}"
        for table, (stream, _) in tables.items()
    ]
    query = f"""
        SELECT stored_in, seq, ts, regexp_extract(a.type, '[^.]+$') AS kind, a.stream, a.consumer,
            a.stream_seq, a.deliveries, subject, text
        FROM (SELECT *, json_transform(CASE WHEN json_valid(text) THEN text END,
                '{{"type": "VARCHAR", "stream": "VARCHAR", "consumer": "VARCHAR",
                  "stream_seq": "BIGINT", "deliveries": "BIGINT"}}') AS a
            FROM ({" UNION ALL ".join(parts)}))"""
    return View("jetstream", "advisories", tables, query)


def takes_advisories(subjects: list[str]) -> bool:
    """Whether a stream of these subjects may hold advisories."""
    from pelton.core.protocol.subjects import matches

    # a pattern that overlaps: one of them matches what the other begins with
    return any(
        each == ">" or each.startswith("$JS.EVENT.") or matches("$JS.EVENT.ADVISORY.X", each)
        for each in subjects
    )
