"""Import Pelton from its archive for ``--py-files``.

In the archive this file is the module ``pelton_unpacking`` beside the package; outside it only
:mod:`pelton.spark.packaging` reads it.

Python imports modules from a zip file, but not compiled ones. So the archive's ``pelton`` calls
:func:`unpack`, which puts the whole archive into a folder and makes Python import from there::

    <folder for temporary files>/pelton-<user id>/<SHA-256 of the archive>/pelton/...
                                                                            /pelton_needs/...

The first process on a machine makes the folder, and every later process of the user uses it. Only
that user may write into it: files that others can change are not imported.

Imports nothing but the standard library, nothing of Pelton, and knows nothing of Spark.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

MADE_FOR = "pelton_made_for.txt"
"""The file of the archive that names the Python of its compiled modules."""
NEEDED = "pelton_needs"
"""The folder of the archive with packages that Pelton imports and a machine may lack.

It is not beside the package, because Python would try to import them from the zip file.
"""


def this_python() -> str:
    """The tag of compiled modules that this Python imports: ``cpython-311-x86_64-linux-gnu``."""
    return str(sysconfig.get_config_var("SOABI"))


def unpack(package_path: list[str]) -> None:
    """Make Python import a package in a zip file from a folder with the same contents.

    ``package_path`` is its ``__path__``, which is changed; where Spark has unpacked the archive it is
    right already. From then on Python also finds the packages that it needs, after installed ones.
    Raises ImportError when the archive is for another Python or cannot be unpacked.
    """
    package = Path(package_path[0])
    archive = package.parent
    try:
        if archive.is_dir():
            made_for = (archive / MADE_FOR).read_text()
        else:
            with zipfile.ZipFile(archive) as opened:
                made_for = opened.read(MADE_FOR).decode()
        if made_for.strip() != this_python():
            text = f"{archive} is for {made_for.strip()}, and this Python is {this_python()}"
            raise ImportError(text)
        folder = archive if archive.is_dir() else unpacked(archive, _own_folder())
    except (OSError, KeyError, zipfile.BadZipFile) as problem:
        raise ImportError(f"{archive} cannot be unpacked: {problem}") from problem
    package_path[:] = [str(folder / package.name)]
    needed = str(folder / NEEDED)
    if needed not in sys.path:
        sys.path.append(needed)


def unpacked(archive: Path, parent: Path) -> Path:
    """The folder with the contents of an archive; made when it is missing.

    Several processes may call this at once. Raises OSError, BadZipFile.
    """
    with archive.open("rb") as file:
        folder = parent / hashlib.file_digest(file, "sha256").hexdigest()
    if folder.is_dir():
        return folder
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=parent))
    try:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(draft)
        # A folder gets its name when it is complete: no process imports half an archive.
        with contextlib.suppress(OSError):  # another process was first, with the same contents
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if not folder.is_dir():
        raise OSError(f"{folder} could not be made")
    return folder


def _own_folder() -> Path:
    """A folder that only this user may write into."""
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"pelton-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise OSError(f"{folder} is not a folder for this user alone; remove it, or set TMPDIR")
    return folder
