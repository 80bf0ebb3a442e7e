"""A Spark session on this machine with settings that were measured, and silence on the terminal.

=====================================  ===================================================================
``local[2]``                           the tests and the main job; more cores by argument
UTC                                    times in tables mean the same everywhere
no UI, no progress bar                 half a second and a port less; what runs is shown by who runs it
FileSystem checkpoint manager,         a micro-batch takes 0.2 s instead of 0.29 s; right for checkpoints
no checksum files                      on a local disk, which is where this session puts them
2 shuffle partitions                   200 tasks for a few rows is what makes small jobs slow
log4j at ERROR                         what Spark warns of at every start is no news to the user
=====================================  ===================================================================

Knows nothing of streams and tables.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.java import ensure_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_MANAGER,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Left over from other installations of Spark on the machine; they would decide instead of us.
_FOREIGN = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS")
_LOG4J = Path(__file__).with_name("log4j2.properties")


def session(
    name: str = "penstock",
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> SparkSession:
    """A session with the settings above and ``settings`` over them; ``format("jetstream")`` is registered.

    ``log_file`` takes what the JVM and its workers print. Raises :class:`penstock.spark.java.JavaNotFoundError`. The
    environment variables of other Spark installations are taken out of this process's environment.
    """
    ensure_java()
    for variable in _FOREIGN:
        os.environ.pop(variable, None)
    from pyspark.sql import SparkSession

    from penstock.spark import register

    builder = SparkSession.builder.appName(name).master(master)
    java_options = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    chosen = {**_SETTINGS, "spark.driver.extraJavaOptions": java_options, **(settings or {})}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _output_to(log_file):
        spark = builder.getOrCreate()
    register(spark)
    return spark


@contextlib.contextmanager
def _output_to(log_file: Path | None) -> Iterator[None]:
    """Let processes that are started meanwhile write to the file instead of the terminal; this one too, meanwhile."""
    if log_file is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, target):
            os.close(descriptor)
