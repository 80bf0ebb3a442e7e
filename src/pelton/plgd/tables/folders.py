"""The kind of tables in a folder: Delta tables, or Iceberg tables and their catalog.

A catalog that is not in the folder, or another namespace than usual, is noted there, without secrets::

    FOLDER/catalog.json      {"namespace": "plgd", "properties": {"type": "rest", "uri": "http://rest:8181"}}

So later commands on the folder find the tables.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

CATALOG = "catalog.db"
"""The file that says that a folder has Iceberg tables."""


NOTE = "catalog.json"
"""The file that says where the catalog is."""

NAMESPACE = "plgd"
"""Where the tables are in their catalog, if nothing else was asked for."""


@dataclass(frozen=True)
class Noted:
    """Where Iceberg tables are; without ``properties`` their catalog is in the folder."""

    namespace: str = NAMESPACE
    properties: dict[str, str] = field(default_factory=dict)


def noted(folder: str | Path) -> Noted:
    """The note of a folder. Raises ValueError for a note that cannot be read."""
    path = Path(folder) / NOTE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        properties = {str(name): str(value) for name, value in found["properties"].items()}
        return Noted(str(found["namespace"]), properties)
    except FileNotFoundError:
        return Noted()
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is not the note of a catalog that a run leaves") from None


def note(folder: str | Path, what: Noted) -> None:
    """Leave a note, if it is needed and not there."""
    if what == noted(folder):
        return
    path = Path(folder) / NOTE
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    told = {"namespace": what.namespace, "properties": what.properties}
    new.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    os.replace(new, path)


def is_iceberg(folder: str | Path) -> bool:
    """Whether a folder has a catalog or the note of one, and so Iceberg tables."""
    return any((Path(folder) / name).is_file() for name in (CATALOG, NOTE))


def is_delta(folder: str | Path) -> bool:
    """Whether a folder has Delta tables."""
    return any(Path(folder).glob("*/_delta_log"))
