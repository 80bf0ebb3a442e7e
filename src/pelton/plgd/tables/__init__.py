"""The tables of a hub's events: their schemas, and how messages become rows.

::

    messages ──► batch.process ──► changes of every table, by the state that the tables themselves hold
                   │ buckets         which messages belong together: those of a device
                   │ versions        one aggregate: new, repeated, missing;  tracking  many at once
                   │ twins, connections, commands, links, registrations           rows by their events
                   └ rows            rows that may still change
    conditions  when devices and commands alert
    schemas    the tables: columns, keys, partitions          settings  of a pipeline

All of it is pure: nothing here opens a file or knows Spark.
"""

from .schemas import TABLES, Column, TableSchema, Way
from .settings import REPAIR_HEADER, Settings

__all__ = ["REPAIR_HEADER", "TABLES", "Column", "Settings", "TableSchema", "Way"]
