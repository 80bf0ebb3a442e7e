"""No reader of a table misses a row: whatever files hold, a filter finds what is there."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.spark.tables.commits import HERE, Tables
from pelton.spark.tables.compaction import rewrite
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import Place, place
from pelton.spark.tables.table import Write
from pelton.spark.tables.upserts import merge
from tests.spark.table_readers import OPERATORS, READERS, Condition, without_statistics
from tests.spark.tables_help import write_rows
from tests.ways import EVERY_WAY, length

NAN, INF = float("nan"), float("inf")
LAST = "\U0010ffff"
INTEGERS = {bits: [-(2 ** (bits - 1)), -1, 0, 2 ** (bits - 1) - 1] for bits in (8, 16, 32, 64)}
DECIMAL = pa.decimal128(20, 7)
WIDE = pa.decimal128(38, 0)
TYPES = {
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), edges) for bits, edges in INTEGERS.items()},
    "float": (pa.float32(), [NAN, INF, -INF, 0.0, -0.0, 0.5, -3.25, 2.0**-149]),
    "double": (pa.float64(), [NAN, INF, -INF, 0.0, -0.0, 1.5, 0.1, 5e-324, 1.7976931348623157e308]),
    "decimal": (DECIMAL, [Decimal(t) for t in ("0E-7", "1E-7", "-5", "3.1234567", "9" * 13)]),
    "wide": (WIDE, [Decimal(t) for t in ("0", "9" * 38, "-" + "9" * 38, "9223372036854775808")]),
    "text": (
        pa.string(),
        [
            *("", " ", "a", "A'b", "é" * 80, "a" * 40, "x" * 5000, "a" * 31 + LAST),
            *("a" + LAST * 50, LAST * 32, LAST * 40, LAST * 40 + "a"),
        ],
    ),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "at": (
        pa.timestamp("us", "UTC"),
        [
            datetime(1900, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 1, 2, 3, 456000, UTC),
            datetime(2026, 1, 1, 1, 2, 3, 456789, UTC),
            datetime(2200, 1, 1, tzinfo=UTC),
        ],
    ),
    "local": (
        pa.timestamp("us"),
        [datetime(2026, 1, 1, 1, 2, 3, 456789), datetime(1900, 1, 1), datetime(2200, 1, 1)],
    ),
}
Way = Callable[[Place, Sequence[pa.RecordBatch]], None]
SCHEMA = pa.schema([("seq", pa.int64()), *((name, kind) for name, (kind, _) in TYPES.items())])


def batches_of(files: Sequence[Sequence[dict]]) -> list[pa.RecordBatch]:
    """A batch for each file, of rows that lack most columns; ``seq`` counts them all."""
    batches, seq = [], 0
    for rows in files:
        numbered = [{"seq": seq + n, **row} for n, row in enumerate(rows)]
        batches.append(pa.RecordBatch.from_pylist(numbered, schema=SCHEMA))
        seq += len(rows)
    return batches


def appended(where: Place, batches: Sequence[pa.RecordBatch]) -> None:
    """A commit of one file for each batch."""
    tables, schema = Tables(), batches[0].schema
    for number, batch in enumerate(batches):
        files = write_rows([batch], where, schema, f"w{number}")
        tables.commit(where, Write(schema=schema, files=files))


def upserted(where: Place, batches: Sequence[pa.RecordBatch], **configuration: str) -> None:
    """One file for each batch, with rows that stayed, were replaced and were inserted."""
    schema = batches[0].schema.append(pa.field("version", pa.int64()))
    HERE.create(where, schema)
    if configuration:
        DeltaTable(where.uri).alter.set_table_properties(
            {f"delta.{name}": value for name, value in configuration.items()}
        )
    for number, batch in enumerate(batches):
        rows = pa.Table.from_batches([batch])
        shifted = rows.select(["seq"])
        for name in rows.column_names[1:]:
            values = rows[name].to_pylist()
            shifted = shifted.append_column(
                name, pa.array(values[1:] + values[:1], rows[name].type)
            )
        # Of four rows the first stays; the second and third come again; the fourth comes later.
        steps = [rows.slice(0, 1), shifted.slice(1, 2), rows.slice(1)]
        for version, step in enumerate([pa.concat_tables(steps[:2]), steps[2]]):
            if step.num_rows:
                versions = pa.array([version] * step.num_rows, pa.int64())
                merge(
                    step.append_column("version", versions).cast(schema),
                    where,
                    keys=["seq"],
                    sequence="version",
                    mark=Mark("q", 2 * number + version),
                )


def merged_by_rules(where: Place, batches: Sequence[pa.RecordBatch]) -> None:
    """As :func:`upserted`, of a table whose merges ``deltalake`` makes."""
    upserted(where, batches, enableChangeDataFeed="true")


def compacted(where: Place, batches: Sequence[pa.RecordBatch]) -> None:
    """One file for each batch, of a file for each row."""
    tables, schema = Tables(), batches[0].schema
    for number, batch in enumerate(batches):
        for row in range(batch.num_rows):
            files = write_rows([batch.slice(row, 1)], where, schema, f"w{number}-{row}")
            tables.commit(where, Write(schema=schema, files=files))
    groups = defaultdict(list)
    for path, file in Tables().there(where).snapshot().files.items():
        groups[path.split("-")[0]].append(file)
    rewrite(Tables(), where, [tuple(group) for group in groups.values()])


WAYS = [appended, upserted, merged_by_rules, compacted]


def table_of(
    where: Place, batches: Sequence[pa.RecordBatch], way: Way = appended
) -> tuple[DeltaTable, DeltaTable]:
    """A table with a file and a commit for each batch; and the same files without statistics."""
    way(where, batches)
    table = DeltaTable(where.uri)
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert len(actions) == len(batches)
    bare = where.uri + "-bare"
    shutil.copytree(where.uri, bare, ignore=shutil.ignore_patterns("_*"))
    return table, without_statistics(
        table, bare, {row["path"]: row["size_bytes"] for row in actions}
    )


def check(table: DeltaTable, bare: DeltaTable, rows: pa.Table, asked: Condition) -> None:
    kind = rows.schema.field(asked.column).type
    for reader in READERS:
        if reader.knows(asked):
            found = reader.found(table, asked, kind)
            assert found == reader.expected(bare, rows, asked, kind), (reader.name, asked)


def pairs() -> list[ParameterSet]:
    """Each type with each way in `make test-all`; with one of them in turn in `make test`."""
    ways = [appended, upserted, compacted]
    return [
        pytest.param(way, name, marks=() if way is ways[number % 3] else EVERY_WAY)
        for number, name in enumerate(TYPES)
        for way in ways
    ]


@pytest.mark.parametrize(("way", "name"), pairs())
@settings(max_examples=length(2, 4), deadline=None)
@given(st.data())
def test_no_reader_misses_a_row(tmp_path_factory, way, name, data):
    _, edges = TYPES[name]
    values = st.none() | st.sampled_from(edges)
    rows = st.lists(st.fixed_dictionaries({name: values}), min_size=1, max_size=4)
    files = data.draw(st.lists(rows, min_size=2, max_size=4))
    batches = batches_of(files)
    table, bare = table_of(place(tmp_path_factory.mktemp("t") / "t"), batches, way)
    if data.draw(st.booleans(), label="checkpoint"):
        table.create_checkpoint()
        table = DeltaTable(table.table_uri)
    whole = pa.Table.from_batches(batches)
    comparable = [edge for edge in edges if edge == edge]
    if any(row[name] != row[name] for rows in files for row in rows):
        # To readers for which a NaN is above infinity the log cannot tell that there is one.
        comparable = [edge for edge in comparable if abs(edge) != INF]
    asked = [Condition(name, "is null"), Condition(name, "is not null")]
    if name in ("float", "double"):
        asked.append(Condition(name, "isnan"))
    for value in data.draw(st.lists(st.sampled_from(comparable), min_size=1, max_size=2)):
        asked += [Condition(name, sign, value) for sign in OPERATORS]
    for condition in asked:
        check(table, bare, whole, condition)


@pytest.mark.parametrize("way", WAYS)
def test_the_rows_that_were_lost(tmp_path, way):
    schema = pa.schema([("seq", pa.int64()), ("d", pa.float64()), ("x", DECIMAL)])
    files = [[(1.5, 0), (NAN, 3)], [(2.5, 1), (3.5, 2)], [(7.5, 9)]]
    seq, batches = 0, []
    for rows in files:
        columns = [{"seq": seq + n, "d": d, "x": Decimal(x)} for n, (d, x) in enumerate(rows)]
        batches.append(pa.RecordBatch.from_pylist(columns, schema=schema))
        seq += len(rows)
    table, bare = table_of(place(tmp_path / "t"), batches, way)
    for reader in READERS:
        assert reader.found(table, Condition("d", "=", 1.5), pa.float64()) == [0], reader.name
        less = reader.found(table, Condition("x", "<", Decimal(5)), DECIMAL)
        assert less == [0, 1, 2, 3], reader.name
    whole = pa.Table.from_batches(batches)
    check(table, bare, whole, Condition("d", ">", 5.0))
    check(table, bare, whole, Condition("d", "isnan"))


def test_columns_that_rows_lack_are_null_to_every_reader(tmp_path):
    where, tables = place(tmp_path / "t"), Tables()
    wide = pa.schema([("seq", pa.int64()), ("x", DECIMAL), ("y", pa.int64())])
    row = {"seq": 0, "x": Decimal("1234567890123.1234567"), "y": 1}
    narrow = pa.schema([("seq", pa.int64()), ("x", DECIMAL)])
    for schema, n in ((wide, 0), (narrow, 1)):
        batch = pa.RecordBatch.from_pylist([row | {"seq": n}], schema=schema)
        files = write_rows([batch], where, schema, f"w{n}")
        tables.commit(where, Write(schema=schema, files=files))
    table = DeltaTable(where.uri)
    for reader in READERS:
        for asked, seqs in (("is null", [1]), ("is not null", [0])):
            if reader.knows(Condition("y", asked)):
                found = reader.found(table, Condition("y", asked), pa.int64())
                assert found == seqs, (reader.name, asked)
        assert reader.found(table, Condition("x", ">=", row["x"]), DECIMAL) == [0, 1], reader.name
