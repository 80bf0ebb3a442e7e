"""Making the archive of the classes that Spark loads: one session that does typical work."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.spark.classes import QUIET, archive
from pelton.spark.java import ensure_java
from pelton.spark.session import end_session, log_options, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITING_SECONDS = 300.0


class PrepareError(RuntimeError):
    """The archive cannot be made; one line says why."""


def prepare() -> Path:
    """Make the archive, replacing an existing one; returns its path.

    Raises :class:`PrepareError` when this process has a session already, because only a starting Java can
    be told to make it, or when this Java makes none; and the errors of
    :func:`pelton.spark.session.session`.
    """
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        raise PrepareError("there is a Spark session in this process: prepare in another one")
    path = archive(ensure_java())
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = Path(folder) / "classes.jsa"
        options = [*log_options(), shlex.quote(f"-XX:ArchiveClassesAtExit={draft}"), *QUIET]
        settings = {"spark.driver.extraJavaOptions": " ".join(options)}
        spark = session("prepare", settings=settings, log_file=Path(folder) / "log")
        try:
            _work(spark, Path(folder))
        finally:
            end_session(spark, _WRITING_SECONDS)
        if not draft.is_file():
            raise PrepareError("this Java has written no archive of its classes")
        draft.replace(path)
    return path


def _work(spark: SparkSession, folder: Path) -> None:
    """The typical work of sessions: sources and sinks in Python, batch and streaming, and some SQL."""
    texts = "cast(id as string) subject", "cast(cast(id as string) as binary) data"
    rows = spark.range(1000).selectExpr("id seq", "current_timestamp() ts", *texts)
    delta = "jetstream_delta"
    rows.write.format(delta).mode("append").save(f"{folder}/one")
    query = (
        spark.readStream.format(delta)
        .load(f"{folder}/one")
        .where("seq > 10")
        .writeStream.format(delta)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/two")
    )
    query.awaitTermination()
    table = spark.read.format(delta).load(f"{folder}/two")
    table.groupBy("subject").count().orderBy("subject").limit(3).collect()
    table.write.format("noop").mode("overwrite").save()
