"""What a batch costs the driver as batches go by, in processor milliseconds: begin, the job, commit.

    begin     what the tables hold before the batch
    job       what each task is told, pickled
    commit    one commit of each table that the batch concerns

The batches are small, because these costs follow from files and commits, not from events. Each figure is the mean of
the batches that end with the one named, so checkpoints of logs are in it.
"""

import pickle
import tempfile
import time
from statistics import mean

import pyarrow as pa
import pyarrow.compute as pc

from pelton.plgd.spark.buckets import Job, write_bucket
from pelton.plgd.spark.homes import CatalogHome, DeltaHome
from pelton.plgd.spark.lake import Lake
from pelton.plgd.tables import Settings
from pelton.spark.tables.marks import Mark

WINDOW = 50
BUCKETS = 8
SMALL = 300
PARTS = ("begin", "job", "commit")


def growth(
    messages: pa.Table, looks: list[int], *, iceberg: bool = False
) -> dict[str, dict[str, float]]:
    """The costs at some numbers of batches, printed as a table; ``messages`` are of `BUCKETS` buckets."""

    spent: dict[str, list[float]] = {name: [] for name in (*PARTS, "bytes")}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        home = CatalogHome(folder) if iceberg else DeltaHome(folder)
        lake = Lake(home, Settings(buckets=BUCKETS))
        lake.create()
        for number in range(max(looks)):
            one_batch(lake, number, messages.slice(number * SMALL, SMALL), spent)
            if number + 1 in looks:
                figures = {name: mean(every[-WINDOW:]) for name, every in spent.items()}
                figures["files"] = sum(len(lake.files(name)) for name in lake.tables)
                found[f"batch {number + 1}"] = figures
                told = "  ".join(f"{name} {1e3 * figures[name]:6.1f} ms" for name in PARTS)
                sizes = f"{figures['bytes']:9,.0f} bytes  {figures['files']:6,} files"
                print(f"batch {number + 1:5}: {told}  {sizes}", flush=True)
    return found


def one_batch(lake: Lake, number: int, part: pa.Table, spent: dict[str, list[float]]) -> None:
    """Make a batch, and note what it took."""
    clock = time.process_time()
    begun = lake.begin(Mark("bench", number))
    clock = passed(spent["begin"], clock)
    job = Job(lake.targets, begun.held, lake.settings, f"bench-{number:09}")
    spent["bytes"].append(len(pickle.dumps(job)))
    passed(spent["job"], clock)
    mine = [(one, part.filter(pc.equal(part["bucket"], one))) for one in range(BUCKETS)]
    reports = [write_bucket(job, one, rows) for one, rows in mine if len(rows)]
    clock = time.process_time()
    lake.commit(begun, reports)
    passed(spent["commit"], clock)


def passed(spent: list[float], since: float) -> float:
    """Add the processor seconds since a time; the time now."""
    now = time.process_time()
    spent.append(now - since)
    return now
