"""The Python that Spark starts for its workers on this machine.

Spark puts its own archive of PySpark before everything else on the workers' path. The archive has no
compiled files, so every process that Spark starts (a query needs half a dozen kinds) would compile
the modules that it imports. Where the same PySpark is installed for this Python, the workers run it
through a script that removes the archive from their path::

    PYTHONPATH    .../pyspark/python/lib/pyspark.zip:.../py4j-0.10.9.9-src.zip:/srv/anna/lib
             ->   /srv/anna/lib

Does not depend on sessions.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from pelton.spark.java import cache_folder, write_script

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_SCRIPT = """#!/bin/sh
# Runs Python with the PySpark that is installed, and not Spark's archive of its sources.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) kept="$kept:$entry" ;;
    esac
done
export PYTHONPATH="${{kept#:}}"
exec {python} "$@"
"""


def use_installed_pyspark(*, local: bool) -> None:
    """Set the Python that a session to start runs, unless the user has set it.

    It is PYSPARK_PYTHON for the workers; ``local`` says whether they run on this machine. It is
    PYSPARK_DRIVER_PYTHON for the process that looks for formats, which always runs on this machine.
    """
    script = _script()
    ours = (sys.executable, str(script))
    places = [
        (name, here)
        for name, here in (("PYSPARK_PYTHON", local), ("PYSPARK_DRIVER_PYTHON", True))
        if os.environ.get(name, sys.executable) in ours
    ]
    usable = os.name == "posix" and _installed()
    if usable and any(here for _, here in places):
        write_script(script, _SCRIPT.format(python=shlex.quote(sys.executable)))
    for name, here in places:
        os.environ[name] = str(script) if usable and here else sys.executable


def run_this_python(spark: SparkSession) -> None:
    """Let the workers of a running local session run this Python, unless the user has chosen another one.

    Without PYSPARK_PYTHON Spark has taken the first python3 on PATH, which may lack the packages.
    """
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is None or os.environ.get("PYSPARK_PYTHON"):
        return
    if context.master.startswith("local") and not context.getConf().get("spark.pyspark.python"):
        context.pythonExec = sys.executable


def _installed() -> bool:
    """Whether this Python has PySpark, and py4j, which it needs, as installed files."""
    import py4j  # type: ignore[import-untyped]  # has no types
    import pyspark

    return not any(".zip" in (module.__file__ or ".zip") for module in (py4j, pyspark))


def _script() -> Path:
    name = re.sub(r"[^A-Za-z0-9]+", "-", sys.executable).strip("-")
    return cache_folder() / "python" / name
