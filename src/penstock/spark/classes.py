"""An archive of the classes that Spark loads, which makes sessions on this machine start sooner.

Starting Spark and its first query loads some twenty thousand classes from jars; loading and checking
them is most of Java's work until then. Java can keep them in a file, ready to use (class data
sharing). :func:`prepare` makes the file once, in a session that does typical work, and
:func:`penstock.spark.session.session` uses it when it exists. The file belongs to one Java and one
Spark: with other versions it is not used, and Java ignores classes that do not match.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import cache_folder, ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_WRITING_SECONDS = 300.0


class PrepareError(RuntimeError):
    """The archive cannot be made; one line says why."""


def archive(home: Path) -> Path:
    """The path of the archive for the Java in a folder and the installed Spark."""
    import pyspark

    release = home / "release"
    java = release.read_text() if release.is_file() else ""
    parts = (str(home), java, pyspark.__version__, pyspark.__path__[0])
    key = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
    return cache_folder() / "classes" / f"{key}.jsa"


def java_options(home: Path) -> list[str]:
    """Java's options to use the archive; none when there is no archive."""
    found = archive(home)
    return [shlex.quote(f"-XX:SharedArchiveFile={found}"), *_QUIET] if found.is_file() else []


def prepare() -> Path:
    """Make the archive, replacing an existing one; returns its path.

    Raises :class:`PrepareError` when this process has a session already, because only a starting Java can
    be told to make it, or when this Java makes none; and the errors of
    :func:`penstock.spark.session.session`.
    """
    from pyspark import SparkContext

    from penstock.spark.session import end_session, log_options, session

    if SparkContext._active_spark_context is not None:
        raise PrepareError("there is a Spark session in this process: prepare in another one")
    path = archive(ensure_java())
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = Path(folder) / "classes.jsa"
        options = [*log_options(), shlex.quote(f"-XX:ArchiveClassesAtExit={draft}"), *_QUIET]
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
