"""The tables of a hub's events.

::

    schemas   the tables: columns, keys, partitions
"""

from .schemas import TABLES, Column, TableSchema, Way

__all__ = ["TABLES", "Column", "TableSchema", "Way"]
