"""The Python processes that Spark starts for the tests: copies of one that has imported the libraries.

A query of Spark needs half a dozen processes of Python, each of which imports PySpark, pyarrow and
pandas anew: 0.25 to 0.5 s of processor time for some milliseconds of work. Here Spark runs `ask.py`
in place of Python, which has `serve.py` fork a process that has these libraries, and Pelton's
formats, and waits for its end::

    Spark ── starts ──► ask.py ── asks ──► serve.py ── forks ──► the worker, with the pipes of ask.py

When ask.py is killed, so is its worker. The first ask.py of a run starts serve.py, which ends with the
run. Where serve.py does not answer, ask.py becomes the plain Python.

Plain Python, as users have it, serves the tests that kill jobs with all their processes, those of
clusters, and every test with PELTON_FULL=1.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = "PELTON_TEST_PYTHONS"
"""The variable that names the folder of serve.py's socket, for all processes of a run."""

ASKS_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
"""What Spark has Python say whenever it looks for a format."""

VARIABLES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def tell(environment: MutableMapping[str, str]) -> None:
    """Have Spark start its Python processes so, here and in the processes that share the run."""
    if FOLDER not in environment:
        folder = tempfile.mkdtemp(prefix="pelton-pythons-")
        atexit.register(_remove, folder, os.getpid())
        environment[FOLDER] = folder
        _write(Path(folder), os.getpid())
    for name in VARIABLES:
        environment[name] = str(Path(environment[FOLDER]) / "python")


def plain(environment: MutableMapping[str, str]) -> dict[str, str]:
    """An environment in which Spark starts Python itself."""
    return {name: value for name, value in environment.items() if name not in VARIABLES}


def _write(folder: Path, owner: int) -> None:
    """The program that Spark takes for Python. ``owner`` is the process with whose end all ends."""
    python, ask, serve = (
        shlex.quote(str(path)) for path in (sys.executable, HERE / "ask.py", HERE / "serve.py")
    )
    script = folder / "python"
    words = f"{shlex.quote(str(folder))} {python} {serve} {owner}"
    number = "{}.{}".format(*sys.version_info)
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1 $2" = "-c {ASKS_VERSION}" ]; then echo {number}; exit; fi\n'
        f'exec {python} -SEI {ask} {words} "$@"\n'
    )
    script.chmod(0o755)


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not in a copy of it
        shutil.rmtree(folder, ignore_errors=True)
