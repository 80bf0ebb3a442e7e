"""The tables of a folder for readers without Spark: Delta tables, or Iceberg tables with their catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .folders import is_iceberg


def dataset(folder: str | Path, name: str) -> Any:
    """A table as a dataset of Arrow, as it is now; None if it is not there. Raises what its library does."""
    if is_iceberg(folder):
        from ..spark.homes import dataset_beside

        return dataset_beside(Path(folder), name)
    from deltalake import DeltaTable

    place = Path(folder) / name
    if not (place / "_delta_log").is_dir():
        return None
    return DeltaTable(place).to_pyarrow_dataset()
