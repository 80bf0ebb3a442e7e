"""The tables read as the how-to says: by DuckDB, Polars, pandas and Spark, of either format, also as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from pelton.plgd.spark.lake import Lake
from pelton.plgd.tables.opening import dataset
from tests.documents import blocks_of
from tests.plgd.spark.test_batches import KINDS, made
from tests.plgd.tables_help import Memory, cut
from tests.plgd.test_resuming import BUSY, SETTINGS, take
from tests.plgd.test_tables_truth import FAULTS, run_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "keep-plgd-events-as-tables.md"


def blocks(kind: str) -> list[str]:
    """The code that the page shows for a format: for any program, and for Spark."""
    code = [block.text for block in blocks_of(PAGE) if block.kind == "python"]
    words = ["DeltaTable(", "jetstream_delta"] if kind == "delta" else ["load_catalog(", "iceberg"]
    here, in_spark = ("latency_ms > 1000", "spark.read")
    found = [text for text in code if here in text and words[0] in text]
    found += [text for text in code if in_spark in text and words[1] in text]
    assert len(found) == 2
    return found


def filled(kind: str, folder: Path) -> tuple[Lake, list[Memory]]:
    """Tables of three batches, and what they are behind each."""
    _, messages = run_of(seed=5, faults=FAULTS, **BUSY)
    lake = made(kind, folder, SETTINGS)
    lake.create()
    then = []
    parts = list(cut(messages.slice(0, 450), 150))
    for number, part in enumerate(parts):
        take(lake, part, number)
        then.append(Memory(SETTINGS))
        for each in parts[: number + 1]:
            then[-1].run(each)
    return lake, then


@pytest.mark.parametrize("kind", KINDS)
def test_the_readers_of_the_how_to(
    spark: SparkSession,
    tmp_path: Path,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, then = filled(kind, tmp_path / "lake" / "tables")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    counts = [str(len(memory.rows("events"))) for memory in then]
    present = [row for row in then[-1].rows("twin_latest") if row["is_present"]]
    for_all, for_spark = blocks(kind)
    exec(compile(for_all, "page", "exec"), names)
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == counts[1]
    assert f"shape: ({len(present)}, " in told
    # Spark's processes were started in another folder.
    for_spark = for_spark.replace("lake/tables", f"{tmp_path}/lake/tables")
    exec(compile(for_spark, "page", "exec"), names)
    assert capsys.readouterr().out.splitlines()[-1] == f"{counts[2]} {counts[1]}"
    check_a_dataset(tmp_path / "lake" / "tables", len(then[-1].rows("commands")))


def check_a_dataset(tables: Path, wanted: int) -> None:
    """Every reader of datasets reads the rows."""
    commands: ds.Dataset = dataset(tables, "commands")
    found = duckdb.sql("SELECT count(*) FROM commands").fetchall()
    assert found == [(wanted,)]
    assert wanted > 0
    assert polars.scan_pyarrow_dataset(commands).collect().height == wanted
    assert len(commands.to_table().to_pandas()) == wanted
