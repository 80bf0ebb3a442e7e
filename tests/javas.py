"""What every Java that the tests start is told: it lives for seconds.

Compiling code for long runs costs more than it gives there, and so does a collector with threads of
its own. `make test` has the classes that Spark loads put into a file once (`pelton spark prepare`),
and Java takes them from it: a start with a first query then needs 4.6 s of processor time in place of
12.2 s, and a master or a worker 1.8 s in place of 2.7 s.

Spark also writes Java for each query and compiles it, which pays for rows by the million. Here it
does so in `make test-all`, and on the cluster of `tests/spark/test_cluster.py`.

Spark's own scripts read these variables, so programs under test are told nothing.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import MutableMapping
from pathlib import Path

from tests.ways import FULL

SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
UNCOMPILED = (
    "-Dspark.sql.codegen.wholeStage=false",
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
)
CLASSES = Path(sys.prefix) / "spark-classes"  # XDG_CACHE_HOME of what the Makefile runs


def options(folder: Path = CLASSES) -> str:
    """For a driver or an executor. Java ignores a file of other classes than it finds."""
    made = sorted(folder.glob("pelton/classes/*.jsa"), key=lambda path: path.stat().st_mtime)
    archive = [f"-XX:SharedArchiveFile={made[-1]}", *IN_PLACE, *QUIET] if made else []
    return " ".join(shlex.quote(each) for each in (*SHORT_LIVED, *archive))


def tell(environment: MutableMapping[str, str]) -> None:
    """Set the variables for drivers, for masters and workers, and for the program that starts them."""
    environment["SPARK_DAEMON_JAVA_OPTS"] = options()
    environment["SPARK_SUBMIT_OPTS"] = " ".join([options(), *(() if FULL else UNCOMPILED)])
    environment["SPARK_LAUNCHER_OPTS"] = " ".join(SHORT_LIVED)
