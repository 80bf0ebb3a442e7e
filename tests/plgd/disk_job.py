"""What `test_disks` runs in a mount namespace of its own: batches into tables on a disk that fills up, or is read-only.

``python -m tests.plgd.disk_job FOLDER KIND`` prints a line of JSON for each thing that was tried.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pelton.plgd.spark.lake import Lake
from pelton.plgd.tables import TABLES
from pelton.spark.tables.places import TableError
from tests.plgd.tables_help import IcebergLake, Memory, cut
from tests.plgd.test_resuming import SETTINGS, rows_in, take
from tests.plgd.test_tables_truth import FAULTS, run_of
from tests.ways import length

SIZE = {Lake: "600k", IcebergLake: "1200k"}


def mount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)


def tell(what: str, said: object) -> None:
    print(json.dumps({what: said}), flush=True)


def main(folder: Path, kind: type[Lake]) -> None:
    mount(folder, f"size={SIZE[kind]}")
    _, messages = run_of(seed=5, faults=FAULTS, devices=6, duration_s=1200.0, session_s=100.0)
    parts = list(cut(messages, 200))
    memory, lake = Memory(SETTINGS), kind(folder / "lake", SETTINGS)
    lake.create()
    refused: list[str] = []
    after = 0  # batches behind the first that was refused
    for number, part in enumerate(parts):
        after += bool(refused)
        if after > length(2, 1000):
            break
        memory.run(part)
        try:
            take(lake, part, number)
        except (TableError, OSError) as error:
            refused.append(f"{type(error).__name__}: {error}")
            mount(folder, "remount,size=200m")
            take(lake, part, number)  # the same batch, when there is room
    tell("full", refused)
    tell("other", [n for n in TABLES if rows_in(lake, n) != sorted(map(repr, memory.rows(n)))])
    if kind is IcebergLake:
        return  # its catalog, a SQLite file, stays open for writing
    mount(folder, "remount,ro")
    try:
        take(lake, parts[-1], len(parts))
    except (TableError, OSError) as error:
        tell("read-only", f"{type(error).__name__}: {error}")
    mount(folder, "remount,rw")
    take(lake, parts[-1], len(parts))
    raw = sorted([*memory.rows("raw"), *parts[-1].to_pylist()], key=lambda row: row["seq"])
    tell("rows", [lake.dataset("raw").count_rows(), len(raw)])
    again = kind(folder / "lake", SETTINGS)
    mount(folder, "remount,ro")
    again.create()  # tables that are there can be opened
    tell("opened", again.dataset("raw").count_rows())


if __name__ == "__main__":
    main(Path(sys.argv[1]), {"delta": Lake, "iceberg": IcebergLake}[sys.argv[2]])
