"""Both formats of tables beside one model: the same appends, upserts, compactions, maintenance and faults."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from pyiceberg.exceptions import CommitFailedException

from pelton.spark.delta.table import Delta
from pelton.spark.iceberg.table import Iceberg
from pelton.spark.tables import upserts
from pelton.spark.tables.commits import Tables, format_of
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.maintenance import Plan, maintain
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.parquet import write_rows
from pelton.spark.tables.places import TableError, place
from pelton.spark.tables.table import Write
from pelton.spark.tables.upserts import Upserted, merge
from tests.spark.iceberg_help import address_of, table_of
from tests.ways import length

if TYPE_CHECKING:
    from pelton.spark.tables.table import Where

SCHEMA = pa.schema(
    [("k", pa.string()), ("part", pa.int32()), ("seq", pa.int64()), ("n", pa.int64())]
)
WIDER = SCHEMA.append(pa.field("more", pa.string()))
FORMATS = ["delta", "iceberg"]
Row = dict[str, Any]
_numbers = itertools.count()


@pytest.fixture(params=FORMATS)
def where(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Where:
    """A table that is not there yet, and a process that has just started."""
    monkeypatch.setattr(upserts, "HERE", Tables())
    return location(request.param, tmp_path)


def location(kind: str, folder: Any) -> Where:
    return place(folder / "t") if kind == "delta" else address_of(folder)


def found(where: Where) -> list[Row]:
    """What another reader finds."""
    if isinstance(where, type(place("/t"))):
        table = DeltaTable(where.uri).to_pyarrow_table()
    else:
        table = table_of(where).scan().to_arrow()
    return in_order(table.to_pylist())


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def append(
    where: Where, rows: list[Row], mark: Mark, schema: pa.Schema = SCHEMA, **given: Any
) -> bool:
    """As a batch of the format's sink."""
    form, tables = format_of(where), upserts.HERE
    need = Write(schema, partition_by=given.pop("by", None), merge_schema=True)
    table = tables.prepare(where, need)
    target = table.target(table.check(need).columns)
    files = write_rows([pa.RecordBatch.from_pylist(rows, schema)], target, f"a{next(_numbers)}")
    write = Write(
        need.schema, files, mark=mark, target=target if form.columns_first else None, **given
    )
    return tables.commit(where, write)


def put(
    where: Where,
    rows: list[Row],
    mark: Mark,
    deletes: frozenset[str] = frozenset(),
    sums: tuple[str, ...] = (),
) -> Upserted:
    """As `upsert` does with the rows of a batch."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    if deletes:
        table = table.append_column(
            "pelton delete", pa.array([row["k"] in deletes for row in rows])
        )
    return merge(table, where, keys=["k", "part"], sequence="seq", sums=sums, mark=mark)


@dataclass
class Model:
    """The rows that a table must have."""

    rows: list[Row] = field(default_factory=list)
    wide: bool = False

    def append(self, rows: list[Row]) -> None:
        self.rows += rows

    def put(self, rows: list[Row], deletes: frozenset[str], sums: bool) -> None:
        for new in rows:
            there = [row for row in self.rows if (row["k"], row["part"]) == (new["k"], new["part"])]
            if not there and new["k"] not in deletes:
                self.rows.append(dict(new))
            for old in there:
                newer = new["seq"] > old["seq"]
                if newer and new["k"] in deletes:
                    self.rows.remove(old)
                elif sums:
                    old["n"] += new["n"]
                    old["seq"] = max(new["seq"], old["seq"])
                elif newer:
                    old.update(new)

    def expected(self) -> list[Row]:
        names = WIDER.names if self.wide else SCHEMA.names
        return in_order([{name: row.get(name) for name in names} for row in self.rows])


FAULTS = ["none", "none", "raced", "answer lost", "asked again", "compaction", "append"]


@contextlib.contextmanager
def fault(kind: str, where: Where, model: Model, number: int) -> Iterator[None]:
    """What happens in the moment of the next commit."""
    cls = Delta if isinstance(where, type(place("/t"))) else Iceberg
    race = CommitFailedError if cls is Delta else CommitFailedException
    commit: Callable[[Any, Write], None] = cls.commit
    left = [kind]

    def late(table: Any, write: Write) -> None:
        now = left.pop() if left else "none"
        if now == "raced":
            raise race("another commit came between")
        if now in ("compaction", "append"):
            with pytest.MonkeyPatch.context() as other:
                other.setattr(upserts, "HERE", Tables())
                if now == "compaction":
                    compact(where, 2**20)
                else:
                    row = {"k": "rival", "part": 0, "seq": number, "n": number}
                    append(where, [row], Mark(f"rival {number}", 0))
                    model.append([row])
        commit(table, write)
        if now == "answer lost":
            raise OSError("the answer got lost")
        if now == "asked again":
            raise race("the answer got lost, and it was asked again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cls, "commit", late)
        yield


ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "c", ""]),
        "part": st.integers(0, 1),
        "seq": st.integers(1, 30),
        "n": st.integers(-3, 3),
    }
)
UNIQUE = st.lists(ROW, min_size=1, max_size=4, unique_by=lambda row: (row["k"], row["part"]))
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(ROW, min_size=1, max_size=4), st.sampled_from(FAULTS)),
    st.tuples(st.just("wider"), st.lists(ROW, min_size=1, max_size=2), st.just("none")),
    st.tuples(st.just("overwrite"), st.lists(ROW, min_size=1, max_size=2), st.just("none")),
    st.tuples(st.sampled_from(["upsert", "sums", "delete"]), UNIQUE, st.sampled_from(FAULTS)),
    st.tuples(
        st.sampled_from(["compact", "maintain", "restart", "again"]), st.just([]), st.just("none")
    ),
)


def play(
    where: Where, steps: list[Any], by: tuple[str, ...], check: Callable[[Model], None]
) -> Model:
    """Take the steps one after the other."""
    model, number, again = Model(), 0, None
    for action, rows, happens in [
        ("append", [{"k": "a", "part": 0, "seq": 5, "n": 1}], "none"),
        *steps,
    ]:
        mark = Mark("q", number, "run")
        if action == "restart":
            upserts.HERE = Tables()  # the process died, and another one begins
        elif action == "compact":
            compact(where, 2**20)
        elif action == "maintain":
            maintain(where, Plan(keep_hours=1))
        elif action == "again":
            if again is not None:  # Spark did not note the batch
                upserts.HERE = Tables()
                again()
        else:
            number += 1
            deletes = frozenset("b") if action == "delete" else frozenset()
            sums = ("n",) if action == "sums" else ()
            once = partial(put, where, rows, mark, deletes, sums)
            if action in ("append", "overwrite", "wider"):
                wide = [{**row, "more": "x"} for row in rows] if action == "wider" else rows
                schema = WIDER if action == "wider" else SCHEMA
                replaces = action == "overwrite"
                once = partial(append, where, wide, mark, schema, by=by, overwrite=replaces)
                rows = wide
            with fault(happens, where, model, number):
                assert once() is not False
            if action == "overwrite":
                model.rows.clear()
            if action in ("append", "overwrite", "wider"):
                model.append([dict(row) for row in rows])
            else:
                model.put(rows, deletes, bool(sums))
            model.wide |= action == "wider"
            again = partial(refused_or_nothing, once)
        check(model)
    return model


def refused_or_nothing(once: Callable[[], object]) -> None:
    """The batch that the table holds last comes again."""
    assert once() in (False, Upserted())


@pytest.mark.timeout(600)
@settings(max_examples=length(8, 30), deadline=None)
@given(st.lists(STEPS, min_size=3, max_size=9), st.sampled_from([(), ("part",)]))
def test_both_formats_do_the_same(
    tmp_path_factory: Any, steps: list[Any], by: tuple[str, ...]
) -> None:
    for kind in FORMATS:
        upserts.HERE = Tables()
        where = location(kind, tmp_path_factory.mktemp(kind))

        def check(model: Model, where: Where = where) -> None:
            assert found(where) == model.expected()

        play(where, steps, by, check)
        table = Tables().there(where)
        assert table.totals().rows == len(found(where))
        assert len(table.files()) == table.totals().files == len(table.snapshot().files)


def test_a_batch_of_no_newer_rows_leaves_its_mark(where: Where) -> None:
    row = {"k": "a", "part": 0, "seq": 5, "n": 1}
    put(where, [row], Mark("q", 0))
    files = Tables().there(where).files()
    assert put(where, [row | {"seq": 4}], Mark("q", 1)) == Upserted()
    assert Tables().there(where).last("q") == 1
    assert Tables().there(where).files() == files


def test_files_without_keys_of_the_batch_are_not_opened(
    where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bounds of keys and the values of partitions, which both formats know."""
    for number, key in enumerate(["a", "b", "c"]):
        rows = [{"k": key * 40, "part": part, "seq": 1, "n": 1} for part in (0, 1)]
        append(where, rows, Mark("q", number), by=("part",))
    rows_class = type(Tables().there(where).rows(SCHEMA))
    read, opened = rows_class.read, []

    def noted(self: Any, files: Any, batch_rows: int) -> Any:
        files = list(files)
        opened.extend(files)
        return read(self, files, batch_rows)

    monkeypatch.setattr(rows_class, "read", noted)
    put(where, [{"k": "b" * 40, "part": 1, "seq": 2, "n": 7}], Mark("u", 0))
    assert len({file.path for file in opened}) == 1
    assert [row["n"] for row in found(where)] == [1, 1, 1, 7, 1, 1]


def test_two_drivers_of_one_upsert(where: Where) -> None:
    row = {"k": "a", "part": 0, "seq": 1, "n": 1}
    put(where, [row], Mark("q", 0, "one"))
    model = Model()
    with fault("none", where, model, 0), pytest.MonkeyPatch.context() as patch:
        cls = type(Tables().there(where))
        commit, left = cls.commit, [1]

        def late(table: Any, write: Write) -> None:
            if left:
                left.pop()
                with pytest.MonkeyPatch.context() as other:
                    other.setattr(upserts, "HERE", Tables())
                    put(where, [row | {"seq": 7}], Mark("q", 1, "other"), sums=("n",))
            commit(table, write)

        patch.setattr(cls, "commit", late)
        with pytest.raises(TableError, match="two drivers run on one checkpoint"):
            put(where, [row | {"seq": 7}], Mark("q", 1, "one"), sums=("n",))
    assert [(one["seq"], one["n"]) for one in found(where)] == [(7, 2)]
