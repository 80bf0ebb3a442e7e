"""A client of Spark Connect: ``connect_job.py REMOTE URL SOURCE TARGET CHECKPOINT TABLE``.

With ``local[2]`` for REMOTE it starts the Connect server itself. Prints what it saw as one line of JSON.
"""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

import pelton.spark
from pelton.spark.java import ensure_java


def main(remote, url, source, target, checkpoint, table):
    """Read and write, batch and stream."""
    ensure_java()
    spark = SparkSession.builder.remote(remote).getOrCreate()
    pelton.spark.register(spark)
    wanted = {"servers": url, "stream": source, "minPartitions": "2"}
    rows = spark.read.format("jetstream").options(**wanted).load()
    told = {"session": type(spark).__module__}
    told["batch"] = list(rows.agg(F.count("*"), F.sum("seq")).first())
    told["some"] = [row.seq for row in rows.where("seq > 5 and seq <= 8").orderBy("seq").collect()]
    sink = {"servers": url, "stream": target}
    copies = rows.selectExpr("'copies.batch' as subject", "data")
    copies.write.format("jetstream").options(**sink).mode("append").save()
    rows = spark.readStream.format("jetstream").options(**wanted, startingOffsets="earliest").load()
    copies = rows.selectExpr("'copies.stream' as subject", "data").writeStream.format("jetstream")
    copies = copies.options(**sink, checkpointLocation=f"{checkpoint}/stream")
    copies.trigger(availableNow=True).start().awaitTermination()
    lake = rows.writeStream.format("jetstream_delta").option("path", table)
    lake = lake.option("checkpointLocation", f"{checkpoint}/table")
    lake.trigger(availableNow=True).start().awaitTermination()
    told["table"] = spark.read.format("jetstream_delta").load(table).count()
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
