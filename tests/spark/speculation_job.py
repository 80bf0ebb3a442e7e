"""A job that Spark runs with speculation, each write in turn: ``speculation_job.py PLAN.json``.

Rows of the last partition come slowly. Each row says in a header which attempt sent it, so that the
stream tells which rows are of which; the rows themselves are the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.spark.session import session

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.executor.memory": "512m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
}
SCHEMA = "data string, headers map<string,string>"
PADDED = 2000  # so large that no buffer on the way holds several batches


def rows_of(
    partitions: int, slow_seconds: list[float], notes: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows, those of the last partition with a pause before each batch: that of the attempt's
    number, or the last one. Attempts leave a note in a folder when they begin and end.
    """

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        partition, attempt = context.partitionId(), context.attemptNumber()
        slow = partition == partitions - 1
        pause = slow_seconds[min(attempt, len(slow_seconds) - 1)] if slow else 0.0
        note = Path(notes, f"{partition}-{attempt}")
        note.write_text("begun")
        for batch in batches:
            time.sleep(pause)
            numbers = batch.column(0).to_pylist()
            data = [f"{partition}\t{number}".ljust(PADDED) for number in numbers]
            headers = [[("Attempt", str(attempt))]] * len(numbers)
            kind = pa.map_(pa.string(), pa.string())
            yield pa.RecordBatch.from_arrays(
                [pa.array(data), pa.array(headers, kind)], ["data", "headers"]
            )
        note.write_text("ended")

    return make


def main(plan: Path) -> None:
    """Each case of the plan."""
    told = json.loads(plan.read_text())
    spark = session("speculation", master=told["master"], settings=SETTINGS | told["settings"])
    # The workers of all executors are up before anything is slow.
    spark.range(0, 64, 1, 16).rdd.map(lambda _: time.sleep(0.05)).count()
    for case in told["cases"]:
        Path(case["notes"]).mkdir()
        numbers = spark.range(0, case["rows"], 1, case["partitions"])
        rows = numbers.mapInArrow(
            rows_of(case["partitions"], case["slow_seconds"], case["notes"]), SCHEMA
        )
        writer = rows.write.format("jetstream").mode("append").option("writeId", case["name"])
        begun = time.monotonic()
        try:
            writer.options(**case["options"]).save()
            outcome = "written"
        except Exception as error:  # the outcome is what the test asks for
            outcome = f"failed: {error}"[:2000]
        seconds = time.monotonic() - begun
        said = {"case": case["name"], "outcome": outcome, "seconds": round(seconds, 1)}
        print(json.dumps(said), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
