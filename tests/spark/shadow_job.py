"""A query with a shadow, to be killed: ``shadow_job.py URL STREAM CHECKPOINT BATCHES``.

Kills itself and its JVM as soon as it has run so many batches: at the end of a batch's work, before
Spark commits it. Ends by itself when nothing is left to read.
"""

import os
import signal
import sys
from pathlib import Path

from pelton.spark.session import jvm_pid, session


def run(spark, url, stream, checkpoint, sink):
    """The query, to the end of what there is to read."""
    options = {
        "servers": url,
        "stream": stream,
        "consumer": "query",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "10",
    }
    rows = spark.readStream.format("jetstream").options(**options).load()
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def main(url, stream, checkpoint, batches):
    spark = session("shadow", log_file=Path(checkpoint).with_suffix(".log"))
    seen = []

    def sink(rows, batch_id):
        seen.append(rows.count())
        if len(seen) == batches:
            os.kill(jvm_pid(spark), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    run(spark, url, stream, checkpoint, sink)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
