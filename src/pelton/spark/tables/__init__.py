"""Tables of all formats, each micro-batch once, and functions for ``foreachBatch``.

The formats are :mod:`pelton.spark.delta` and :mod:`pelton.spark.iceberg`; this package is their engine:

==================================  ==============================================================
``table``                           the protocol between the engine and the formats
``options``, ``places``             options that all formats share; the location of a Delta table
``source``                          the class that Spark calls; ``reader``, ``writer`` its parts
``schemas``, ``evolution``          types that fit into a table; rows that differ from it
``parquet``, ``rows``               rows as Parquet files, and back
``commits``, ``marks``              files become part of a table, once per query and batch
``changes``                         the files that a streaming read takes
``upserts``                         ``foreachBatch``: keep the newest row of each key
``merges``, ``key_matching``        the rows that a batch replaces, and their files
``compaction``, ``maintenance``     one file from many; that, a short history, no unused files
==================================  ==============================================================

:func:`append` and :func:`upsert` are for users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pelton.spark.tables.upserts import append, upsert

__all__ = ["append", "upsert"]


if not TYPE_CHECKING:  # or checkers would take any name for one of this package

    def __getattr__(name: str) -> Any:
        """Import the functions for users at first use, because they import the library of tables."""
        if name in __all__:
            from pelton.spark.tables import upserts

            return getattr(upserts, name)
        raise AttributeError(name)
