"""A DuckDB connection that knows streams, buckets, object stores, consumers by their names.

Before a query runs, the names in its text decide which tables are made; DuckDB calls them when it scans
(:mod:`pelton.sql.tables`). All scans of a query see a stream up to the same sequence.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from pelton.core.protocol.subjects import valid
from pelton.errors import PeltonError
from pelton.sql import documents, kinds
from pelton.sql.described import CONSUMERS, STREAMS
from pelton.sql.selection import EVERYTHING, Selection
from pelton.sql.tables import SCHEMA, Scans, StreamTable, Upto

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Self

    from pelton.client import sync
    from pelton.sql.documents import Structure
    from pelton.sql.tables import Decode, Source

_NAMED_PATTERN = re.compile(r'"((?:[^":]|"")+):((?:[^"]|"")+)"')
BATCH_ROWS = 65_536
# each character as itself, then `*` and a last `>` as what they stand for
_MATCHES = r"""
CREATE MACRO subject_matches(subject, pattern) AS regexp_full_match(subject,
    regexp_replace(regexp_replace(regexp_replace(pattern,
        '([^A-Za-z0-9*>])', '\\\1', 'g'),
        '(^|\.)\*', '\1[^.]+', 'g'),
        '(^|\.)>$', '\1.+', 'g'))
"""


class Database:
    """Streams of one source as tables; a context manager. One query at a time."""

    def __init__(
        self,
        source: Source,
        *,
        json_columns: Mapping[str, Structure | None] | None = None,
        every_stream_json: bool = False,
        decoders: Mapping[str, Decode] | None = None,
        allow_files: bool = False,
    ) -> None:
        """``json_columns``: streams whose payloads become columns, with types (None: from a sample).

        ``every_stream_json`` does that for every stream, from samples. ``decoders``: streams whose column
        ``text`` is what a function of subject and payload returns, as JSON; null for a ValueError.
        ``allow_files``: queries may read and write files, attach databases and load extensions.
        """
        self.source = source
        self.connection: Any = duckdb.connect()
        self.scans = Scans()
        self._json = dict(json_columns or {})
        self._all_json = every_stream_json
        self._decoders = dict(decoders or {})
        self._upto: dict[str, Upto] = {}
        self._floor: dict[str, int] = {}
        self._made: dict[str, str] = {}  # the stream of each table
        self.connection.execute("SET TimeZone = 'UTC'")
        # a name of a query is never a variable of this program
        self.connection.execute("SET python_enable_replacements = false")
        for schema in kinds.SCHEMAS:
            self.connection.execute(f"CREATE SCHEMA {schema}")
        self.connection.execute(_MATCHES)
        if not allow_files:  # the text of a query may be somebody else's
            self.connection.execute("SET enable_external_access = false")

    def __enter__(self) -> Self:
        """The database itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """End; relations cannot be read afterwards."""
        self.connection.close()

    def query(self, sql: str) -> Any:
        """The result as a DuckDB relation, which is read when its rows are wanted.

        Raises duckdb.Error for a wrong query, ApiError and the like when names cannot be looked up.
        """
        self.prepare(sql)
        return self.connection.sql(sql)

    def table(self, stream: str) -> Any:
        """A stream as a DuckDB relation, to filter, join and aggregate in Python."""
        return self.query(f"SELECT * FROM {kinds.quoted(stream)}")

    def rows(self, sql: str) -> pa.RecordBatchReader:
        """The result as batches of Arrow, read while the query runs.

        Raises the error of the source itself (ConnectionLostError ...) when that ends the query.
        """
        self.prepare(sql)
        try:
            relation = self.connection.sql(sql)
            if relation is None:  # a statement without a result, before DuckDB 2.0
                return pa.table({}).to_reader()
            # named so since DuckDB 1.4
            make = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
            return make(BATCH_ROWS)
        except duckdb.Error as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> Exception:
        """The reason of DuckDB's error: that of the source, if it was the source that failed."""
        return self.scans.error or error

    # -- tables ---------------------------------------------------------------------------------

    def prepare(self, sql: str) -> None:
        """Make the tables whose names are in the text. ValueError: a name is ambiguous."""
        self.scans = Scans()
        self._upto = {}
        names = self.source.streams()
        self._forget_gone(names)
        for stream in _mentioned(names, sql):
            self._make_stream(stream)
        for found in _NAMED_PATTERN.finditer(sql):
            stream, pattern = (part.replace('""', '"') for part in found.groups())
            if stream in names:
                if not valid(pattern):
                    raise ValueError(f'"{stream}:{pattern}": {pattern} cannot be a subject')
                self._register(f"{stream}:{pattern}", stream, Selection(subjects=(pattern,)))
        self._make_views(names, sql)
        self._make_lists(sql)

    def _forget_gone(self, names: Iterable[str]) -> None:
        """Let no table stay whose stream is gone. PeltonError when a query follows it."""
        gone = set(self._made.values()) - set(names)
        for table in [table for table, stream in self._made.items() if stream in gone]:
            self.connection.unregister(table)
            del self._made[table]
        if lost := sorted(gone & self._floor.keys()):
            raise PeltonError(f"stream {lost[0]} is not there any more")

    def _register(self, table: str, stream: str, within: Selection) -> None:
        upto = self._upto.setdefault(stream, Upto())
        if stream in self._floor:
            within = within.also(Selection(first=self._floor[stream] + 1))
        decode = self._decoders.get(stream)
        made = StreamTable(
            self.source, stream, upto=upto, within=within, scans=self.scans, decode=decode
        )
        self.connection.register(table, made)
        self._made[table] = stream

    def _make_stream(self, stream: str) -> None:
        if not self._all_json and stream not in self._json:
            self._register(stream, stream, EVERYTHING)
            return
        table = f"__stream {stream}"
        self._register(table, stream, EVERYTHING)
        structure = self._json.get(stream)
        if structure is None:
            structure = self._json[stream] = documents.inferred(self.connection, table)
        query = documents.query(table, structure, SCHEMA.names)
        self._view(kinds.quoted(stream), query, temporary="TEMP")

    def _view(self, name: str, query: str, *, temporary: str = "") -> None:
        self.connection.execute(f"CREATE OR REPLACE {temporary} VIEW {name} AS {query}")

    def _make_views(self, names: Iterable[str], sql: str) -> None:
        views = []
        for prefix, make in (
            (kinds.BUCKET, kinds.bucket_views),
            (kinds.OBJECTS, lambda stream: [kinds.object_view(stream)]),
        ):
            made = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
            for each in _mentioned(made, sql):
                views += make(prefix + each)
        if "advisories" in sql.lower():
            rows = self.source.stream_rows()
            holding = [
                str(row["name"])
                for row in rows
                if kinds.takes_advisories(list(row["subjects"]))  # type: ignore[call-overload]  # a list of texts
            ]
            if holding:
                views.append(kinds.advisories_view(holding))
        for view in views:
            for table, (stream, pattern) in view.tables.items():
                self._register(table, stream, Selection(subjects=(pattern,)))
            self._view(f"{view.schema}.{kinds.quoted(view.name)}", view.query)

    def _make_lists(self, sql: str) -> None:
        low = sql.lower()
        for name, schema, rows in (
            ("streams", STREAMS, self.source.stream_rows),
            ("consumers", CONSUMERS, self.source.consumer_rows),
        ):
            if re.search(rf"\b{name}\b", low):
                table = f"__{name}"
                self.connection.register(table, pa.Table.from_pylist(rows(), schema=schema))
                self._view(f"jetstream.{name}", f"SELECT * FROM {table}")
        self.connection.execute("SET search_path = 'main,jetstream'")

    # -- following ------------------------------------------------------------------------------

    def go_on(self) -> None:
        """From now on stream tables have only messages behind those that the last query saw."""
        for stream, upto in self._upto.items():
            if upto.seq is not None:
                self._floor[stream] = max(self._floor.get(stream, 0), upto.seq)

    def named(self) -> list[str]:
        """The streams that the last query names."""
        return sorted(self._upto)

    def followed(self) -> list[str]:
        """The streams of the last query."""
        return sorted(stream for stream, upto in self._upto.items() if upto.seq is not None)


def _mentioned(names: Iterable[str], sql: str) -> list[str]:
    """The names that the text has, as whole words, in any case.

    ValueError when it has a name whose owner the case would have to decide, and does not.
    """
    groups = defaultdict(list)
    for name in names:
        escaped = re.escape(name.replace('"', '""'))
        if re.search(rf"(?<!\w){escaped}(?!\w)", sql, re.IGNORECASE):
            groups[name.lower()].append(name)
    found = []
    for same in groups.values():
        exact = [n for n in same if re.search(rf"(?<!\w){re.escape(n)}(?!\w)", sql)]
        if len(same) > 1 and len(exact) != 1:
            both = " and ".join(sorted(same))
            raise ValueError(f"{both} differ only in case, and a table is found in any case")
        found += same if len(same) == 1 else exact
    return found


def connect(
    url: str = "nats://127.0.0.1:4222",
    *,
    domain: str | None = None,
    json_columns: Mapping[str, Structure | None] | None = None,
    decoders: Mapping[str, Decode] | None = None,
    allow_files: bool = False,
    **options: Any,
) -> Database:
    """The streams of a running server as tables; ``options`` are those of ``pelton.sync.connect``.

    The names of streams are looked up with each query. ``json_columns``, ``decoders`` and
    ``allow_files``: see ``Database``. Raises ConnectError when there is no server.
    """
    from pelton.client import sync
    from pelton.sql.live import LiveSource

    def dial() -> sync.Client:
        return sync.connect(url, **options)

    dial().close()
    source = LiveSource(dial, domain)
    return Database(source, json_columns=json_columns, decoders=decoders, allow_files=allow_files)


def open_store(
    path: str,
    *,
    account: str = "",
    key: str = "",
    json_columns: Mapping[str, Structure | None] | None = None,
    decoders: Mapping[str, Decode] | None = None,
    allow_files: bool = False,
) -> Database:
    """The streams of a store folder as tables, without a server; StoreError.

    ``account``: only its streams. ``key`` opens an encrypted store; VaultError for one that is too short.
    """
    import os

    from pelton.sql.folders import FolderSource
    from pelton.vault import Vault

    vault = Vault.of(key, random=os.urandom) if key else None
    source = FolderSource(path, vault, account)
    return Database(source, json_columns=json_columns, decoders=decoders, allow_files=allow_files)
