"""The files and marks that a tail knows, beside those that deltalake finds in the same log."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from pelton.spark.delta.data_files import DataFile
from pelton.spark.delta.table import Delta
from pelton.spark.delta.tails import INTERVAL, Tail
from pelton.spark.tables.commits import HERE, Tables
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.places import Place, TableError
from pelton.spark.tables.table import Snapshot, Write
from tests.spark.tables_help import write_rows

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string()), ("part", pa.string())])
BY = ("part",)
PARTS = ["a", "b c", "ü%25/=x", "", None]


def made(place: Place, **properties: str) -> None:
    assert place.folder is not None
    DeltaTable.create(
        place.uri,
        Schema.from_arrow(SCHEMA),
        partition_by=list(BY),
        configuration={INTERVAL: "5"} | properties,
    )


def written(place: Place, first: int, count: int, parts: list[str | None]) -> list[DataFile]:
    rows = [
        {"n": n, "text": f"t{n}", "part": parts[n % len(parts)]}
        for n in range(first, first + count)
    ]
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    return write_rows([batch], place, SCHEMA, f"f {first}%", partition_by=BY)


def numbers(place: Place) -> list[int]:
    table = DeltaTable(place.uri).to_pyarrow_table()
    found = sorted(zip(table["n"].to_pylist(), table["text"].to_pylist(), strict=True))
    assert all(text == f"t{number}" for number, text in found)
    return [number for number, _ in found]


def replacing(write: Write, removed: list[Any]) -> Write:
    """The write as one of a lake: its files take the place of others."""
    return replace(write, removed=removed, replaces=True, alone=True)


class Run:
    """A table that a tail and deltalake write by turns, and a list of what it has."""

    def __init__(self, place: Place) -> None:
        made(place)
        self.place = place
        self.tail = Tail(place, with_files=True)
        self.appending = Tail(place, with_files=False)
        self.has: list[int] = []
        self.next = 0
        self.number = -1

    def write(self, removed: list[Any], count: int) -> Write:
        files = written(self.place, self.next, count, PARTS) if count else []
        gone = {number for file in removed for number in self.of(file.stored.path)}
        self.has = [number for number in self.has if number not in gone]
        self.has += range(self.next, self.next + count)
        self.next, self.number = self.next + count, self.number + 1
        return Write(SCHEMA, files, BY, Mark("q", self.number))

    def of(self, path: str) -> list[int]:
        """The numbers in a file."""
        import pyarrow.parquet as pq

        assert self.place.folder is not None
        found: list[int] = pq.ParquetFile(self.place.folder / path).read()["n"].to_pylist()
        return found

    def by_tail(self, random: random.Random) -> None:
        """As a lake commits: the tail knows which files there are."""
        self.tail.read()
        files = sorted(self.tail.files.values(), key=lambda one: one.logged)
        removed = random.sample(files, random.randint(0, min(3, len(files))))
        write = self.write(removed, random.randint(0, 6))
        assert HERE.commit(self.place, replacing(write, removed))

    def by_deltalake(self, random: random.Random) -> None:
        table = Tables().there(self.place)
        files = sorted(table.snapshot().files.values(), key=lambda one: one.logged)
        removed = random.sample(files, random.randint(0, min(3, len(files))))
        table.commit(replacing(self.write(removed, random.randint(0, 6)), removed))

    def by_compaction(self, random: random.Random) -> None:
        compact(self.place, random.choice([1000, 10**9]))

    def by_properties(self, random: random.Random) -> None:
        told = {INTERVAL: str(random.randint(2, 9))}
        DeltaTable(self.place.uri).alter.set_table_properties(told)

    def check(self) -> None:
        table = DeltaTable(self.place.uri)
        for tail in (self.tail, self.appending):
            tail.read()
            assert tail.version == table.version()
            assert tail.last("q") == table.transaction_version("q")
            assert tail.last("other") is None
        assert self.tail.files == Tables().there(self.place).snapshot().files
        assert numbers(self.place) == sorted(self.has)


@pytest.mark.parametrize("seed", range(4))
def test_a_tail_knows_what_deltalake_finds(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    run = Run(Place(str(tmp_path / "table")))
    ways: list[Callable[[random.Random], None]] = [
        *([run.by_tail] * 4 + [run.by_deltalake] * 4),
        *(run.by_compaction, run.by_properties),
    ]
    for _ in range(30):
        draw.choice(ways)(draw)
        run.check()
    log = tmp_path / "table" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    assert not list(log.glob("*.tmp"))
    notes = [entry.get("pelton") for entry in DeltaTable(run.place.uri).history(200)]
    told = {note["number"]: note for note in notes if isinstance(note, dict) and "number" in note}
    assert sorted(told) == list(range(run.number + 1))


def test_a_table_in_the_place_of_another_is_opened_anew(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "table"))
    made(place)
    tail = Tail(place, with_files=True)
    for number in range(3):
        tail.read()
        files = written(place, number * 2, 2, ["a"])
        assert HERE.commit(place, Write(SCHEMA, files, BY, Mark("q", number)))
    shutil.rmtree(place.uri)
    with pytest.raises(TableError, match="there is no table"):
        tail.read()
    made(place)
    tail.read()
    assert (tail.version, tail.files, tail.last("q")) == (0, {}, None)


def test_a_table_with_reader_features_has_no_tail(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "table"))
    made(place)
    tail = Tail(place, with_files=True)
    tail.read()
    # As another engine writes it: a newer version with the feature.
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    action = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    log = tmp_path / "table" / "_delta_log"
    (log / f"{1:020}.json").write_text(json.dumps(action))
    assert not tail.read()
    assert not Tail(place, with_files=False).read()


def test_a_table_elsewhere_has_no_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(str(tmp_path / "table"))
    made(place)
    monkeypatch.setattr(Place, "folder", None)
    assert not Tail(place, with_files=False).read()


def test_new_commits_are_read_and_the_files_not_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(str(tmp_path / "table"))
    made(place)
    listed = 0
    real = Delta.snapshot

    def counted(table: Delta) -> Snapshot:
        nonlocal listed
        listed += 1
        return real(table)

    monkeypatch.setattr(Delta, "snapshot", counted)
    tail = Tail(place, with_files=True)
    for number in range(20):
        tail.read()
        files = written(place, number, 1, ["a"])
        assert HERE.commit(place, Write(SCHEMA, files, BY, Mark("q", number)))
    tail.read()
    assert (listed, len(tail.files), tail.last("q")) == (1, 20, 19)
