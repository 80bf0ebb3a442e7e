"""Delta tables without a JVM: ``format("jetstream_delta")``, and functions for ``foreachBatch``.

=====================================  ===========================================================
``options``, ``places``, ``schemas``   options, the location of a table, types that fit into it
``source``                             the class that Spark calls; ``reader``, ``writer`` its parts
``parquet``                            rows as Parquet files of any kind of table
``data_files``, ``statistics``         files of a Delta table, and the statistics of each
``commits``, ``marks``                 files become part of a table, once per query and batch
``files``, ``rows``                    the files that a read takes, and their rows
``upserts``                            ``foreachBatch``: keep the newest row of each key
``merges``, ``key_matching``           the rows that a batch replaces, and their files
``merges_by_rules``                    the same for tables with constraints and the like
``compaction``, ``replacing``          one file from many; files replaced in one commit
``maintenance``                        compactions, checkpoints, vacuum
=====================================  ===========================================================

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
