"""A job for a cluster: ``cluster_job.py URL SOURCE TARGET CHECKPOINT [register]``.

Reads a stream as a batch and as a stream, and writes into another one, for each message, where it was
read and what Pelton was read with there. Imports what its machine has, not this source tree.
"""

import os
import sys

from pyspark.sql import SparkSession


def places(way):
    """What an executor says of each message, as a message."""

    def say(batches):
        import pyarrow as pa

        import pelton

        from_where = f"{os.getcwd()}\t{pelton.__path__[0]}".encode()
        for batch in batches:
            seqs = batch.column("seq").to_pylist()
            told = [from_where + f"\t{seq}".encode() for seq in seqs]
            columns = [pa.array([f"copies.{way}"] * len(told)), pa.array(told, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, ["subject", "data"])

    return say


def main(url, source, target, checkpoint, register=""):
    """Both ways in turn."""
    spark = SparkSession.builder.appName("cluster").getOrCreate()
    if register:
        import pelton.spark

        pelton.spark.register(spark)
    wanted = {"servers": url, "stream": source, "minPartitions": "4"}
    columns = "subject string, data binary"
    rows = spark.read.format("jetstream").options(**wanted).load()
    copies = rows.mapInArrow(places("batch"), columns)
    sink = {"servers": url, "stream": target}
    copies.write.format("jetstream").options(**sink).mode("append").save()
    rows = spark.readStream.format("jetstream").options(**wanted, startingOffsets="earliest").load()
    copies = rows.mapInArrow(places("stream"), columns)
    writer = copies.writeStream.format("jetstream").options(**sink, checkpointLocation=checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    print("copied", spark.range(1).count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
