"""Small files of the state folder, which are whole and there after a kill or a power cut."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a file in one step; makes its folder."""
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True)
        _sync(path.parent.parent)
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
