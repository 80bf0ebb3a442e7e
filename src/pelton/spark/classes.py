"""An archive of the classes that Spark loads, which makes sessions on this machine start sooner.

Starting Spark and its first query loads some twenty thousand classes from jars; loading and checking
them is most of Java's work until then. Java can keep them in a file, ready to use (class data
sharing). :func:`pelton.spark.preparing.prepare` makes the file once, in a session that does typical work, and
:func:`pelton.spark.session.session` uses it when it exists. The file belongs to one Java and one
Spark: with other versions it is not used, and Java ignores classes that do not match.
"""

from __future__ import annotations

import hashlib
import shlex
from typing import TYPE_CHECKING

from pelton.spark.java import cache_folder

if TYPE_CHECKING:
    from pathlib import Path

QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
# Elsewhere than where it was made for, every address in the archive is changed: 120 MB that Java would share.
IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")


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
    if not found.is_file():
        return []
    return [shlex.quote(f"-XX:SharedArchiveFile={found}"), *IN_PLACE, *QUIET]
