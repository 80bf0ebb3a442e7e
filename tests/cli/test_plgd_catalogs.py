"""The tables of a hub in a catalog of one's own: SQL or REST, found again by whoever opens the folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from pyiceberg.utils.config import Config

from pelton.cli.plgd.lakes import lake_of
from pelton.plgd.report import Scope, open_tables
from pelton.plgd.spark.homes import CatalogHome
from pelton.plgd.spark.lake import Lake
from pelton.plgd.spark.maintaining import look_after
from pelton.plgd.tables import TABLES
from pelton.plgd.tables.folders import CATALOG, NOTE
from pelton.plgd.tables.opening import dataset
from pelton.spark.tables.maintenance import Plan
from pelton.spark.tables.places import TableError
from tests.plgd.tables_help import IcebergLake, Memory, cut
from tests.plgd.test_resuming import BUSY, SETTINGS, rows_in, take
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.spark.iceberg_help import properties_of, table_of
from tests.spark.rest_catalog import TOKEN, RestCatalog

Run = Callable[..., Any]


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    (tmp_path / "rest").mkdir()
    started = RestCatalog(tmp_path / "rest")
    yield started
    started.close()


def options(catalog: dict[str, str], **more: Any) -> dict[str, Any]:
    """The options of tables, as a command has them."""
    words = tuple(f"{name}={text}" for name, text in catalog.items())
    given = {"buckets": None, "kind": None, "namespace": None, "catalog": words}
    return given | more


def words_of(catalog: dict[str, str]) -> list[str]:
    return [f"--catalog-property={name}={text}" for name, text in catalog.items()]


def filled(lake: Lake, memory: Memory, batches: int = 2) -> None:
    _, messages = run_of(seed=5, faults=FAULTS, **BUSY)
    for number, part in enumerate(list(cut(messages.slice(0, 450), 150))[:batches]):
        take(lake, part, number)
        memory.run(part)


def check_found(folder: Path, memory: Memory) -> None:
    """Whoever has only the folder reads the tables there."""
    for name in ("raw", "sessions", "aggregates"):
        found = dataset(folder, name)
        assert found is not None
        rows = found.to_table(columns=TABLES[name].schema.names).cast(TABLES[name].schema)
        assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, memory.rows(name)))


def test_a_rest_catalog(
    rest: RestCatalog, tmp_path: Path, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, memory = tmp_path / "lake", Memory(SETTINGS)
    catalog = {"type": "rest", "uri": rest.uri, "token": TOKEN}
    lake = lake_of(folder / "tables", options(catalog, buckets=2, namespace="hub"))
    assert isinstance(lake.home, CatalogHome)
    lake.settings = SETTINGS
    filled(lake, memory)
    note = json.loads((folder / "tables" / NOTE).read_text())
    assert note == {"namespace": "hub", "properties": {"type": "rest", "uri": rest.uri}}
    # The token is not in the note: it is given again, or pyiceberg's configuration has it.
    ran = cli("plgd", "maintain", folder)
    assert (ran.status, "default.hub" in ran.err) == (1, True)
    ran = cli("--json", "plgd", "maintain", folder, "--catalog-property", f"token={TOKEN}")
    assert ran.status == 0, ran.err
    told = {one["name"]: one for one in json.loads(ran.out)}
    assert set(told) == set(TABLES)
    assert told["events"]["compacted"] == 4
    monkeypatch.setenv("PYICEBERG_CATALOG__DEFAULT__TOKEN", TOKEN)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read at its import
    check_found(folder / "tables", memory)
    with open_tables(folder, Scope()) as tables:
        assert tables.rows("span")


def test_a_sql_catalog_elsewhere(tmp_path: Path, cli: Run) -> None:
    folder, memory = tmp_path / "lake", Memory(SETTINGS)
    catalog = properties_of(tmp_path)
    lake = lake_of(folder / "tables", options(catalog, buckets=2))
    lake.settings = SETTINGS
    filled(lake, memory)
    assert not (folder / "tables" / CATALOG).exists()
    check_found(folder / "tables", memory)
    # A later command needs no options, and goes on in the same tables.
    ran = cli("plgd", "maintain", folder)
    assert ran.status == 0, ran.err
    again = lake_of(folder / "tables", options({}))
    assert isinstance(again.home, CatalogHome)
    assert again.settings.buckets == 2
    for name in TABLES:
        assert rows_in(again, name) == sorted(map(repr, memory.rows(name))), name
    # Another catalog for the same folder is a mistake.
    other = {**catalog, "uri": f"sqlite:///{tmp_path}/other.db"}
    for given in (options(other), options({}, namespace="elsewhere")):
        with pytest.raises(click.ClickException, match="in another catalog"):
            lake_of(folder / "tables", given)
    ran = cli("plgd", "maintain", folder, *words_of(other))
    assert (ran.status, "in another catalog: uri is" in ran.err) == (1, True)
    assert not (tmp_path / "other.db").exists()
    (folder / "tables" / NOTE).write_text("[]")
    ran = cli("plgd", "maintain", folder)
    assert (ran.status, "is not the note of a catalog" in ran.err) == (1, True)
    with pytest.raises(TableError, match="is not the note"):
        dataset(folder / "tables", "raw")


def test_another_namespace_in_the_folders_own_catalog(tmp_path: Path) -> None:
    given = options({}, buckets=2, kind="iceberg", namespace="hub")
    lake_of(tmp_path, given)
    assert dataset(tmp_path, "raw").count_rows() == 0
    lake = lake_of(tmp_path, options({}))
    assert lake.where("raw") == "default.hub.raw"
    with pytest.raises(click.ClickException, match="namespace is hub there, not plgd"):
        lake_of(tmp_path, options({}, namespace="plgd"))
    with pytest.raises(click.ClickException, match="in another catalog: uri is"):
        lake_of(tmp_path, options(properties_of(tmp_path / "other")))
    Lake(tmp_path / "delta", SETTINGS).create()
    with pytest.raises(click.ClickException, match="are delta tables"):
        lake_of(tmp_path / "delta", options(properties_of(tmp_path)))


def test_a_folder_that_is_not_there_gets_tables(tmp_path: Path) -> None:
    lake = lake_of(tmp_path / "lake" / "tables", options({}, kind="iceberg"))
    assert lake.made_with() == lake.settings.buckets == 8
    assert not (tmp_path / "lake" / "tables" / NOTE).exists()


def test_the_tables_as_they_were(tmp_path: Path) -> None:
    """Each batch is a snapshot; each is read as long as it is kept, also behind a compaction."""
    memory, lake = Memory(SETTINGS), IcebergLake(tmp_path, SETTINGS)
    lake.create()
    _, messages = run_of(seed=5, faults=FAULTS, **BUSY)
    then: list[tuple[int, int, list[str]]] = []
    for number, part in enumerate(cut(messages.slice(0, 450), 150)):
        take(lake, part, number)
        memory.run(part)
        newest = table_of(lake.tables["twin_latest"]).current_snapshot()
        assert newest is not None
        rows = sorted(map(repr, memory.rows("twin_latest")))
        then.append((newest.snapshot_id, newest.timestamp_ms, rows))
    assert all(one.error is None for one in look_after(lake, Plan(), None))
    table = table_of(lake.tables["twin_latest"])
    for number, made_ms, wanted in then:
        found = table.snapshot_as_of_timestamp(made_ms)
        assert found is not None
        assert found.snapshot_id == number
        rows = table.scan(snapshot_id=number).to_arrow().select(TABLES["twin_latest"].schema.names)
        rows = rows.cast(TABLES["twin_latest"].schema)
        assert sorted(map(repr, rows.to_pylist())) == wanted
