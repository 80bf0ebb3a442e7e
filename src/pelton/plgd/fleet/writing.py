"""The file of a fleet's truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .truth import Truth


def write_truth(truth: Truth, path: str | Path) -> None:
    """Write the account of a run as JSON lines: whole, or not at all."""
    target = Path(path)
    draft = target.with_name(target.name + ".part")
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in truth.lines())
    draft.replace(target)
