"""Writing ``format("jetstream_kv")``: rows become the values of keys in a bucket, each row once.

::

    key    value   operation  revision  ttl          message on $KV.<bucket>.<key>
    ─────  ──────  ─────────  ────────  ────         ─────────────────────────────────────────────
    a.b    v1      null       null      null   ──►   v1
    a.c    null    null       null      null   ──►   KV-Operation: DEL
    a.d    v2      put        41        1h     ──►   v2, only if revision 41 is the key's last one

Knows nothing of how messages are sent: a bucket is a stream, written by
:mod:`penstock.spark.writing.writer`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.jetstream import EXPECTED_LAST_SUBJECT_SEQ, TTL
from penstock.spark.buckets.kv_options import bucket_name
from penstock.spark.parsing import OptionError, Row, parse
from penstock.spark.servers import SERVER_ROWS, Servers, take_servers
from penstock.spark.writing.composing import (
    NUMBERS,
    TEXTS,
    TOKEN_TYPES,
    Messages,
    binary,
    check_columns,
    fill,
    header_value,
    refuse_long,
)
from penstock.spark.writing.options import (
    SINK_ROWS,
    Pattern,
    WriteOptions,
    check_once,
    one_of,
    subject_pattern,
    without_sparks_own,
)
from penstock.spark.writing.plan import WritePlan
from penstock.spark.writing.target import look_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

KEY, VALUE, OPERATION, TTL_COLUMN, REVISION = "key", "value", "operation", "ttl", "revision"
DELETE, PURGE, REFUSE = "delete", "purge", "refuse"
_KEY = r"^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$"
_DELETED = b"KV-Operation: DEL\r\n"
_PURGED = b"KV-Operation: PURGE\r\nNats-Rollup: sub\r\n"
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
    """Composes rows with a key and a value; ``prefix`` is where the bucket's keys are published."""

    bucket: str
    columns: tuple[str, ...]
    key: Pattern | None
    null_value: str
    prefix: str

    @property
    def subjects(self) -> str:
        """Where the bucket stores its keys."""
        return f"$KV.{self.bucket}.>"

    @property
    def fixed(self) -> bool:
        """Keys differ."""
        return False

    def compose(self, batch: pa.RecordBatch) -> Messages:
        """The rows of a batch as messages."""
        bad: dict[int, str] = {}
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
        missing = pc.is_null(values).to_pylist()
        columns = {
            name: batch.column(name).to_pylist() if name in self.columns else None
            for name in (OPERATION, TTL_COLUMN, REVISION)
        }
        operations, ttls, revisions = columns.values()
        made: list[bytes] = []
        for row in range(batch.num_rows):
            try:
                asked = None if operations is None else operations[row]
                line = self._operation(asked, missing[row])
                for name, given in ((TTL, ttls), (EXPECTED_LAST_SUBJECT_SEQ, revisions)):
                    if given is not None and given[row] is not None:
                        line += header_value(name, given[row])
            except ValueError as error:
                bad.setdefault(row, str(error))
                line = b""
            made.append(line)
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


def plan_kv_write(given: Mapping[str, str], schema: StructType) -> WritePlan:
    """What is to be done, checked as far as it can be before it begins.

    Raises :class:`OptionError` and :class:`penstock.spark.writing.row_errors.WriteError`.
    """
    values = parse(WRITE_ROWS, without_sparks_own(given), format_name="writing jetstream_kv")
    if "bucket" not in values:
        raise OptionError('option bucket is missing: .option("bucket", "devices")')
    bucket = str(values.pop("bucket"))
    key = values.pop("key", None)
    null_value = str(values.pop("null_value", DELETE))
    servers = take_servers(values)
    options = WriteOptions(servers=servers, stream=f"KV_{bucket}", **values)  # type: ignore[arg-type]  # each row's reader makes its field's type
    check_once(options)
    pattern = key if isinstance(key, Pattern) else None
    columns = _columns(schema, pattern)
    composer = KvComposer(bucket, columns, pattern, null_value, key_prefix(servers, bucket))
    has_ttl = TTL_COLUMN in columns
    target = look_at(options, composer.subjects, fixed=False, ttl=has_ttl, kind="bucket")
    return WritePlan(options, composer, dataclasses.replace(target, expected=False))


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
    """The begin of the subjects that keys of a bucket are published to."""
    keys = f"$KV.{bucket}."
    if servers.domain is not None:
        return f"$JS.{servers.domain}.API.{keys}"
    return keys if servers.api_prefix is None else f"{servers.api_prefix}.{keys}"
