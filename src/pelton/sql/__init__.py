"""Questions in SQL over stored messages: DuckDB reads streams as tables, without a copy of them.

::

    database   a DuckDB connection with a table for each stream, and views (buckets, objects, consumers)
    tables     one stream as a table: columns and filters of a query come in, batches of rows go out
    selection  what a filter says about sequences, times and subjects; expressions reads Arrow's filters
    live       messages of a running server          folders   messages of a store folder
    kinds      views over the streams behind buckets, object stores and advisories
    documents  JSON payloads as typed columns

``connect`` is for running servers, ``open_store`` for a store folder or a backup of one.
"""

from pelton.errors import not_installed

try:
    from pelton.sql.database import Database, connect, open_store
except ModuleNotFoundError as problem:
    raise not_installed(problem, "sql") from None

__all__ = ["Database", "connect", "open_store"]
