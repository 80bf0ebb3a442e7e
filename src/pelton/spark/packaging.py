"""The archive that brings Pelton to the machines of a Spark cluster: ``--py-files pelton.zip``.

::

    pelton/...              this installation, compiled modules included; its __init__.py ends
                              with a call of pelton_unpacking
    pyspark_jetstream*/...    the package that Spark discovers where the archive is unpacked
    pelton_unpacking.py     unpacks the archive from which it is imported
    pelton_made_for.txt     the Python of the compiled modules
    pelton_needs/...        packages that the connector imports and clusters lack: msgspec

Spark (``--archives``) or a user may unpack the same archive: in a folder it is an ordinary package.
It has no Spark, pyarrow or pandas, because Spark's Python needs them anyway.

Does not depend on Spark sessions.
"""

from __future__ import annotations

import importlib.metadata
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pelton
from pelton.spark import unpacking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ALWAYS = ("msgspec",)
"""Distributions without which the connector cannot be imported."""
_SUFFIXES = {".py", ".properties", ".typed"}
_BEGIN = "\nimport pelton_unpacking\n\npelton_unpacking.unpack(__path__)\n"
# The earliest time of zip files; with it, the same files make the same archive.
_TIME = (1980, 1, 1, 0, 0, 0)


class PackagingError(RuntimeError):
    """The archive cannot be made; one line says why."""


@dataclass(frozen=True)
class Packed:
    """The archive that :func:`package` made."""

    path: Path
    files: int
    bytes: int
    made_for: str
    contains: tuple[str, ...]
    """Names and versions of the packed distributions, Pelton first."""


def package(path: Path, more: Sequence[str] = ()) -> Packed:
    """Write the archive, replacing an existing one.

    ``more`` are further distributions to pack, as they are installed here; their own requirements are
    not packed. Raises :class:`PackagingError`, OSError.
    """
    wanted = list(dict.fromkeys([*ALWAYS, *(name.lower() for name in more)]))
    files = dict(_own_files())
    contains = [f"pelton {pelton.__version__}"]
    for name in wanted:
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise PackagingError(f"{name} is not installed here; pip install {name}") from None
        files.update(_files_of(found))
        contains.append(f"{found.name} {found.version}")
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in sorted(files.items()):
                archive.writestr(
                    _entry(name), data if isinstance(data, bytes) else data.read_bytes()
                )
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    size = path.stat().st_size
    return Packed(path, len(files), size, unpacking.this_python(), tuple(contains))


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    # Without it the files would have no permissions when unpacked.
    entry.external_attr = 0o644 << 16
    return entry


def _own_files() -> Iterator[tuple[str, Path | bytes]]:
    home = Path(pelton.__file__).parent
    if not home.is_dir():
        raise PackagingError(f"{home} is in an archive already: that one can be used again")
    core = f".{unpacking.this_python()}.so"
    if not any((home / "core").rglob(f"*{core}")):
        raise PackagingError(f"{home / 'core'} has no compiled modules of this Python")
    for folder in (home, *sorted(home.parent.glob("pyspark_jetstream*"))):
        for file in folder.rglob("*"):
            if file.suffix in _SUFFIXES or file.name.endswith(core):
                yield file.relative_to(home.parent).as_posix(), file
    start = home / "__init__.py"
    yield "pelton/__init__.py", start.read_bytes() + _BEGIN.encode()
    yield "pelton_unpacking.py", Path(unpacking.__file__)
    yield unpacking.MADE_FOR, f"{unpacking.this_python()}\n".encode()


def _files_of(found: importlib.metadata.Distribution) -> Iterable[tuple[str, Path | bytes]]:
    """The importable files of an installed distribution, by their paths in the archive."""
    files = found.files
    if files is None:
        raise PackagingError(f"{found.name} does not say which files it has; install it with pip")
    for file in files:
        place = Path(str(file.locate()))
        # "..": programs and manual pages in other folders
        if ".." not in file.parts and "__pycache__" not in file.parts and place.is_file():
            yield f"{unpacking.NEEDED}/{file.as_posix()}", place
