"""A Spark session on this machine with measured settings, silent on the terminal.

=====================================  ==========================================================
``local[2,4]``                         two cores; Spark runs a task again when its worker dies
UTC                                    times in tables mean the same everywhere
driver on the loopback address         other machines cannot reach it; not set when the workers
                                       are on other machines, which must reach it
no UI, no progress bar                 a port less; the caller shows its own progress
FileSystem checkpoint manager,         a micro-batch takes 0.2 s instead of 0.29 s; right for
no checksum files                      checkpoints on a local disk
no columnar input of Arrow UDFs        with it, Spark 4.2 and 4.3 fail or give wrong results in
                                       some plans; 4.4 has it off
2 shuffle partitions                   200 tasks for a few rows make small jobs slow
log4j at ERROR                         Spark's warnings at every start do not concern the user
=====================================  ==========================================================

Does not depend on streams or tables.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.errors import not_installed
from pelton.spark.java import ensure_java
from pelton.spark.versions import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]  # has no types
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_ON_THIS_MACHINE = re.compile(r"local\b|spark://(127\.|localhost(:|$)|\[::1\])")
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Variables of other Spark installations on the machine; they would override these settings.
_FOREIGN = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "JDK_JAVA_OPTIONS")
_LOG4J = Path(__file__).with_name("log4j2.properties")


def session(
    name: str = "pelton",
    *,
    master: str = "local[2,4]",
    settings: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    java: Sequence[str] = (),
) -> SparkSession:
    """A session with the settings above and ``settings`` over them; ``format("jetstream")`` is registered.

    ``log_file`` takes the output of the JVM and its workers, ``java`` are further options of the JVM. Raises
    :class:`pelton.spark.java.JavaNotFoundError`. The environment variables of other Spark
    installations are removed from this process's environment.
    """
    home = ensure_java()
    for variable in _FOREIGN:
        os.environ.pop(variable, None)
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as problem:
        raise not_installed(problem, "spark") from None
    from pelton.spark import register
    from pelton.spark.classes import java_options
    from pelton.spark.workers import use_installed_pyspark

    use_installed_pyspark(local=master.startswith("local"))
    options = " ".join([*log_options(), *java_options(home), *java])
    chosen = {**defaults(master), "spark.driver.extraJavaOptions": options, **(settings or {})}
    conf = SparkConf().setAll(list(chosen.items())).setAppName(name).setMaster(master)
    if SparkContext._active_spark_context is None and log_file is not None:
        with _own_interrupts():
            SparkContext(conf=conf, gateway=launch(conf, log_file))
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    register(spark)
    _hush()
    return spark


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep what the program does on Ctrl-C: a new context has one of Spark that raises where Spark is called."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and callable(handler) and handler is not signal.default_int_handler:
        signal.signal(signal.SIGINT, handler)


def _hush() -> None:
    """Keep PySpark from printing errors as JSON that it also raises."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)


def defaults(master: str) -> dict[str, str]:
    """The settings above for a master, without Java's options."""
    from pyspark import __version__

    here = _ON_THIS_MACHINE.match(master) is not None
    found = {**_SETTINGS, **(_LOOPBACK if here else {})}
    package = "streaming" if number_of(__version__) < (4, 1) else "streaming.checkpointing"
    found["spark.sql.streaming.checkpointFileManagerClass"] = (
        f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"
    )
    return found


def log_options() -> list[str]:
    """Java's options that make it silent."""
    return [f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"]


def launch(conf: SparkConf, log_file: Path) -> JavaGateway:
    """Start the JVM, with its output and that of its workers in a file.

    It runs in a separate session of the system, so that only this process acts on a Ctrl-C.
    """
    from pyspark.java_gateway import launch_gateway

    with log_file.open("ab") as log:
        gateway: JavaGateway = launch_gateway(  # type: ignore[no-untyped-call]  # of pyspark's
            conf, popen_kwargs={"stdout": log, "stderr": log, "start_new_session": True}
        )
    return gateway


def use_in_thread(spark: SparkSession) -> None:
    """Make the session the active one of this thread; without one, a start of a query finds no format."""
    spark.createDataFrame([], "none int")  # of Spark's functions the one that does so


def jvm_pid(spark: SparkSession) -> int | None:
    """The process id of the JVM, if this process started it."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return None if process is None else process.pid


def end_session(spark: SparkSession, patience_seconds: float = 15.0) -> None:
    """Stop the session and its JVM, and wait until the JVM is gone, even if it does not answer.

    A later session of this process starts another JVM.
    """
    from pyspark import SparkContext

    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    with contextlib.suppress(Exception):  # the JVM may be dead, which is the goal
        spark.stop()
    with contextlib.suppress(Exception):
        if gateway is not None:
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is None:
        return
    with contextlib.suppress(OSError):
        process.stdin.close()  # tells the JVM to end
    try:
        process.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
