"""Writing ``format("jetstream_kv")``: rows become the values of keys in a bucket, each row once.

::

    key    value   operation  revision  ttl          message on $KV.<bucket>.<key>
    ─────  ──────  ─────────  ────────  ────         ─────────────────────────────────────────────
    a.b    v1      null       null      null   ──►   v1
    a.c    null    null       null      null   ──►   KV-Operation: DEL
    a.d    v2      put        41        1h     ──►   v2, only if revision 41 is the key's last one

Does not send messages itself: a bucket is a stream, written by
:mod:`pelton.spark.writing.writer`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pelton.api.keyvalue import (
    KEY_PATTERN,
    Operation,
    prefix_of,
    removal_headers,
    stream_of,
)
from pelton.client.base.message import EXPECTED_LAST_SUBJECT_SEQ, TTL
from pelton.spark.buckets.kv_options import bucket_name
from pelton.spark.holding import checkpoint_given
from pelton.spark.parsing import Row, missing, one_of, parse
from pelton.spark.servers import SERVER_ROWS, Servers, take_servers
from pelton.spark.writing.composing import (
    NUMBERS,
    TEXTS,
    TOKEN_TYPES,
    Messages,
    binary,
    check_columns,
    fill,
    fitting,
    refuse_long,
)
from pelton.spark.writing.header_columns import lines_of
from pelton.spark.writing.options import (
    SINK_ROWS,
    Pattern,
    WriteOptions,
    check_once,
    subject_pattern,
    without_sparks_own,
)
from pelton.spark.writing.plan import WritePlan
from pelton.spark.writing.target import look_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

KEY, VALUE, OPERATION, TTL_COLUMN, REVISION = "key", "value", "operation", "ttl", "revision"
DELETE, PURGE, REFUSE = "delete", "purge", "refuse"
_KEY = f"^{KEY_PATTERN}$"


def _lines(operation: Operation) -> bytes:
    """The header lines of a marker."""
    return "".join(f"{k}: {v}\r\n" for k, v in removal_headers(operation).items()).encode()


_DELETED, _PURGED = _lines("DEL"), _lines("PURGE")
_NO_VALUE = {DELETE: _DELETED, PURGE: _PURGED}
_OPERATIONS = {"put": b"", "del": _DELETED, "delete": _DELETED, "purge": _PURGED}


WRITE_ROWS: tuple[Row, ...] = (
    Row("bucket", "bucket", bucket_name, "The bucket to write into. Required."),
    *SERVER_ROWS,
    Row("key", "key", subject_pattern, "Key of the rows, columns in braces, instead of a column."),
    Row(
        "nullValue",
        "null_value",
        one_of(DELETE, PURGE, REFUSE),
        "What a row without a value does to its key; refuse makes it a row that is not written.",
    ),
    *SINK_ROWS,
)


@dataclass(frozen=True)
class KvComposer:
    """Composes rows with a key and a value; ``prefix`` is the subject prefix to publish keys to."""

    bucket: str
    columns: tuple[str, ...]
    key: Pattern | None
    null_value: str
    prefix: str

    @property
    def subjects(self) -> str:
        """The subjects of the bucket's keys."""
        return f"{prefix_of(self.bucket)}>"

    @property
    def fixed(self) -> bool:
        """False: each key has its own subject."""
        return False

    def compose(self, batch: pa.RecordBatch) -> Messages:
        """The rows of a batch as messages."""
        batch, bad = fitting(batch, VALUE)
        keys = self._keys(batch, bad)
        values = binary(batch.column(VALUE))
        plain = not {OPERATION, TTL_COLUMN, REVISION} & set(self.columns) and not values.null_count
        lines = None if plain else self._lines(batch, values, bad)
        subjects = pc.binary_join_element_wise(self.prefix, keys, "")
        refuse_long(subjects, bad)
        return Messages(subjects, values, lines, bad)

    def _keys(self, batch: pa.RecordBatch, bad: dict[int, str]) -> pa.Array:
        if self.key is None:
            keys = batch.column(KEY).cast(pa.string())
        else:
            filled = fill(self.key, batch, bad)
            keys = (
                pa.array([filled.decode()] * batch.num_rows)
                if isinstance(filled, bytes)
                else filled
            )
        usable = pc.fill_null(pc.match_substring_regex(keys, _KEY), False)
        for row in pc.indices_nonzero(pc.invert(usable)).to_pylist():
            shown = keys[row].as_py()
            bad.setdefault(
                row, f"{shown!r:.80} is no key (letters, digits, '-', '/', '_', '=', '.')"
            )
        return pc.fill_null(keys, "")

    def _lines(self, batch: pa.RecordBatch, values: pa.Array, bad: dict[int, str]) -> pa.Array:
        operations = self._operations(batch, values, bad)
        sources = [
            (name, batch.column(column))
            for name, column in ((TTL, TTL_COLUMN), (EXPECTED_LAST_SUBJECT_SEQ, REVISION))
            if column in self.columns
        ]
        if not sources:
            return operations
        return pc.binary_join_element_wise(operations, lines_of(sources, None, (), bad), b"")

    def _operations(self, batch: pa.RecordBatch, values: pa.Array, bad: dict[int, str]) -> pa.Array:
        """The header lines that say what a message does, for operations other than put."""
        missing = pc.is_null(values)
        if OPERATION not in self.columns and self.null_value != REFUSE:
            return pc.if_else(missing, pa.scalar(_NO_VALUE[self.null_value]), pa.scalar(b""))
        asked = batch.column(OPERATION).to_pylist() if OPERATION in self.columns else []
        made: list[bytes] = []
        for row, none in enumerate(missing.to_pylist()):
            try:
                made.append(self._operation(asked[row] if asked else None, none))
            except ValueError as error:
                bad.setdefault(row, str(error))
                made.append(b"")
        return pa.array(made, pa.binary())

    def _operation(self, asked: str | None, missing: bool) -> bytes:
        if asked is None:
            if not missing:
                return b""
            if self.null_value == REFUSE:
                raise ValueError("it has no value")
            return _NO_VALUE[self.null_value]
        line = _OPERATIONS.get(asked.lower())
        if line is None:
            raise ValueError(f"operation is {asked!r:.40}, but must be put, delete or purge")
        if missing and not line:
            raise ValueError("operation is put, but it has no value")
        if not missing and line:
            raise ValueError(f"operation is {asked}, but it has a value")
        return line


@dataclass(frozen=True)
class KvWrite:
    """The options of one writer into a bucket."""

    options: WriteOptions
    bucket: str
    key: Pattern | None
    null_value: str


def parse_kv_write(given: Mapping[str, str]) -> KvWrite:
    """Parse Spark's options; names in any case. Raises :class:`OptionError`."""
    values = parse(WRITE_ROWS, without_sparks_own(given), format_name="writing jetstream_kv")
    if "bucket" not in values:
        raise missing("bucket", "devices", given)
    bucket = str(values.pop("bucket"))
    key = values.pop("key", None)
    null_value = str(values.pop("null_value", DELETE))
    servers = take_servers(values)
    values["checkpoint"] = checkpoint_given(given)
    options = WriteOptions(servers=servers, stream=stream_of(bucket), **values)  # type: ignore[arg-type]  # each row's reader makes its field's type
    check_once(options)
    return KvWrite(options, bucket, key if isinstance(key, Pattern) else None, null_value)


def plan_kv_write(given: Mapping[str, str], schema: StructType) -> WritePlan:
    """The plan of a write, with all checks that are possible before it begins.

    Raises :class:`OptionError` and :class:`pelton.spark.writing.row_errors.WriteError`.
    """
    asked = parse_kv_write(given)
    options, bucket, pattern = asked.options, asked.bucket, asked.key
    columns = _columns(schema, pattern)
    prefix = key_prefix(options.servers, bucket)
    composer = KvComposer(bucket, columns, pattern, asked.null_value, prefix)
    has_ttl = TTL_COLUMN in columns
    target = look_at(options, composer.subjects, fixed=False, ttl=has_ttl, kind="bucket")
    return WritePlan(options, composer, dataclasses.replace(target, expected=False))


def fit_kv_columns(given: Mapping[str, str], schema: StructType) -> None:
    """Check the columns of a write; sends no request. Raises :class:`OptionError`."""
    _columns(schema, parse_kv_write(given).key)


def _columns(schema: StructType, key: Pattern | None) -> tuple[str, ...]:
    known = {
        VALUE: ("binary", *TEXTS),
        OPERATION: TEXTS,
        TTL_COLUMN: (*TEXTS, *NUMBERS),
        REVISION: NUMBERS,
    }
    if key is None:
        return check_columns(schema, {KEY: TEXTS, **known}, (KEY, VALUE), "writing jetstream_kv")
    tokens = dict.fromkeys(key.columns, TOKEN_TYPES)
    return check_columns(schema, {**tokens, **known}, (VALUE, *tokens), "writing jetstream_kv")


def key_prefix(servers: Servers, bucket: str) -> str:
    """The subject prefix to publish the keys of a bucket to."""
    keys = prefix_of(bucket)
    if servers.domain is not None:
        return f"$JS.{servers.domain}.API.{keys}"
    return keys if servers.api_prefix is None else f"{servers.api_prefix}.{keys}"
