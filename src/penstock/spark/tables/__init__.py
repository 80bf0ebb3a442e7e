"""Delta tables without a JVM of theirs: ``format("jetstream_delta")``, and what takes micro-batches
from ``foreachBatch``.

=====================================  ===========================================================
``options``, ``places``, ``schemas``   what was asked for, where a table is, what fits into it
``source``                             the class Spark calls; ``reader`` and ``writer`` its parts
``parquet``                            rows as Parquet files of any kind of table
``data_files``, ``statistics``         those of a Delta table, and what each file holds
``commits``, ``marks``                 files become part of a table, once per query and batch
``files``, ``rows``                    which files a read takes, and the rows of them
``upserts``                            ``foreachBatch``: the newest row of each key kept
``merges``, ``key_matching``           how: which rows a batch replaces, in which files
``merges_by_rules``                    the same for tables with constraints and the like
``compaction``, ``replacing``          one file of many; files in the place of others, in one commit
``stream_tables``                      tables that know how far of which stream they hold
``maintenance``                        compactions, checkpoints, vacuum
=====================================  ===========================================================

:func:`append` and :func:`upsert` are for users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.spark.tables.upserts import append, upsert

__all__ = ["append", "upsert"]


def __getattr__(name: str) -> Any:
    """The functions for users, imported when one asks: they bring the library of tables."""
    if name in __all__:
        from penstock.spark.tables import upserts

        return getattr(upserts, name)
    raise AttributeError(name)
