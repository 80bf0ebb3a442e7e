"""What workers keep of the state between batches: what the tables hold, and no more bytes than they may."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pelton.plgd.spark import buckets
from pelton.plgd.spark.buckets import Job, Kept, Rows
from pelton.plgd.tables import TABLES, Settings
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.table import StoredFile
from tests.plgd.tables_help import Memory, cut
from tests.plgd.test_pages import Tables
from tests.plgd.test_tables_truth import FAULTS, run_of

MOST = 10**9


def rows(*paths: str, count: int = 1, batch: str = "b") -> Rows:
    return Rows(pa.table({"n": range(count)}), frozenset(paths), batch)


def files(*paths: str) -> list[StoredFile]:
    return [StoredFile(path, 1, ()) for path in paths]


def test_rows_are_kept_for_exactly_their_files() -> None:
    kept = Kept()
    kept.put("t", 1, one := rows("a", "b"), MOST)
    assert kept.get("t", 1, files("b", "a")) is one.table
    for others in (["a"], ["a", "b", "c"], ["a", "c"], []):
        assert kept.get("t", 1, files(*others)) is None
    assert kept.get("t", 2, files("a", "b")) is None
    assert kept.get("u", 1, files("a", "b")) is None


def test_those_go_that_were_not_used_for_longest() -> None:
    kept = Kept()
    for bucket in range(3):
        kept.put("t", bucket, rows("f", count=10), 240)
    assert kept.bytes == 240
    assert kept.get("t", 0, files("f")) is not None
    kept.put("t", 3, rows("f", count=10), 240)
    assert [kept.get("t", bucket, files("f")) is None for bucket in range(4)] == [
        *(False, True, False, False)
    ]
    kept.put("t", 0, rows("f", count=5), 240)  # in place of the others of the bucket
    assert kept.bytes == 200
    kept.put("t", 4, rows("f", count=31), 240)  # more than all of it
    assert kept.bytes == 0


def run(tables: list[Tables], messages: pa.Table, monkeypatch: pytest.MonkeyPatch) -> list[Kept]:
    """Batches whose buckets go to two workers, by turns; what these keep in the end."""
    workers = [Kept(), Kept()]
    monkeypatch.setattr(buckets, "KEPT", workers[0])
    write = buckets.write_bucket
    calls = 0

    def turn(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        # Three buckets and two workers: every bucket comes to both.
        monkeypatch.setattr(buckets, "KEPT", workers[calls % 2])
        return write(*given)

    monkeypatch.setattr("tests.plgd.test_pages.write_bucket", turn)
    for part in cut(messages, 400):
        for one in tables:
            one.take(part)
    return workers


@pytest.mark.parametrize("most", [2**30, 200_000, 0])
def test_tables_do_not_depend_on_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    short: dict[str, Any] = {"devices": 6, "duration_s": 600.0, "session_s": 200.0}
    messages = run_of(seed=5, faults=FAULTS, **short)[1]
    settings = Settings(buckets=2, keep_bytes=most)
    memory = Memory(settings)
    memory.run(messages)
    tables = Tables(tmp_path, settings)
    workers = run([tables], messages, monkeypatch)
    for name, table in TABLES.items():
        found = tables.lake.dataset(name).to_table(columns=table.schema.names).to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, memory.rows(name))), name
    assert all(kept.bytes <= most for kept in workers)
    assert any(kept.bytes for kept in workers) == bool(most)


def test_a_worker_drops_what_another_has_changed(tmp_path: Path) -> None:
    messages = run_of(seed=6, devices=6, duration_s=600.0, session_s=200.0)[1]
    tables = Tables(tmp_path, Settings(buckets=2))
    mine, other = Kept(), Kept()
    parts = list(cut(messages, len(messages) // 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "KEPT", mine)
        tables.take(parts[0])
        first = mine.bytes
        tables.take(parts[1])
        assert first > 0
        patch.setattr(buckets, "KEPT", other)
        tables.take(parts[2])
        patch.setattr(buckets, "KEPT", mine)
        begun = tables.lake.begin(Mark("q", tables.number + 1))
        job = Job(tables.lake.targets, begun.held, tables.lake.settings, "q-next")
        mine.drop_old(job)
    here = {(where, bucket) for where, bucket in mine._rows}
    for where, bucket in here:
        name = next(name for name, place in tables.lake.places.items() if place == where)
        assert mine.get(where, bucket, begun.held[name].live.get(bucket, [])) is not None
    # Twins and aggregates change with each batch, so that the other worker alone has them.
    names = {name for name, place in tables.lake.places.items() if place in {w for w, _ in here}}
    assert not names & {"aggregates", "twin_latest"}


def test_a_batch_does_not_drop_what_it_has_made(tmp_path: Path) -> None:
    messages = run_of(seed=7, devices=6, duration_s=300.0, session_s=200.0)[1]
    tables = Tables(tmp_path, Settings(buckets=2))
    kept = Kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "KEPT", kept)
        for part in cut(messages, len(messages) // 3 + 1):
            tables.take(part)
    begun = tables.lake.begin(Mark("q", tables.number + 1))
    for bucket in range(2):
        live = begun.held["aggregates"].live[bucket]
        assert kept.get(tables.lake.places["aggregates"], bucket, live) is not None


MEASURE = """
import sys
from pathlib import Path
import pyarrow as pa
from pelton.plgd.spark import batches
from pelton.plgd.spark.buckets import Job
from pelton.plgd.spark.lake import Lake
from pelton.plgd.spark.sharing import BLOCKS, pack
from pelton.plgd.tables.settings import Settings
from pelton.spark.tables.marks import Mark
from tests.plgd.test_kept import many_messages

def anonymous():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
    return int(lines["RssAnon"].split()[0]) << 10

batches.MUCH_BYTES = int(sys.argv[1])
lake = Lake(Path(sys.argv[2]), Settings(buckets=1))
lake.create()
columns = [pa.array([0], pa.int32()), pa.array([pack(many_messages())], pa.binary())]
blocks = [pa.RecordBatch.from_arrays(columns, schema=BLOCKS)]
job = Job(lake.targets, lake.begin(Mark("q", 0)).held, lake.settings, "q-0")
before = anonymous()
assert list(batches.worker(job)(iter(blocks)))
print(anonymous() - before)
"""


def many_messages() -> pa.Table:
    """Messages of a fleet that comes online."""
    _, messages = run_of(
        seed=1, devices=200, duration_s=600.0, session_s=1e9, command_interval_s=1e9
    )
    return messages.combine_chunks()


@pytest.mark.slow
def test_a_task_gives_back_the_memory_that_it_has_freed(tmp_path: Path) -> None:
    """Without that 50 MB stay, on a quiet machine; on a busy one the allocator may give them back by itself."""
    command = [sys.executable, "-c", MEASURE, "1", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 2**24
