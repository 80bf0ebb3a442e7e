"""The kept inputs: a folder per target, a file per input, named by the hash of what is in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).with_name("corpus")


def inputs(name: str) -> list[Path]:
    """The files of a target, the shortest first."""
    files = [path for path in (FOLDER / name).glob("*") if path.is_file()]
    return sorted(files, key=lambda path: (path.stat().st_size, path.name))


def write(folder: Path, contents: Iterable[bytes]) -> None:
    """Put inputs into a folder under their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for data in contents:
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
