"""What kind of tables a folder has: Delta tables, or Iceberg tables with their catalog."""

from __future__ import annotations

from pathlib import Path

CATALOG = "catalog.db"
"""The file that says that a folder has Iceberg tables."""


def is_iceberg(folder: str | Path) -> bool:
    """Whether a folder has a catalog, and so Iceberg tables."""
    return (Path(folder) / CATALOG).is_file()


def is_delta(folder: str | Path) -> bool:
    """Whether a folder has Delta tables."""
    return any(Path(folder).glob("*/_delta_log"))
