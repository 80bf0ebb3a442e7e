"""Iceberg tables without a JVM of theirs: ``format("jetstream_iceberg")``, through ``pyiceberg``.

===============  ================================================================================
``options``      what was asked for; the name of a table and the catalog it is in
``catalogs``     catalogs opened, tables found and made, errors without secrets
``durable``      files of tables on this machine: on the disk before anybody names them
``schemas``      columns of Spark, of files and of tables; which go into which
``data_files``   rows as Parquet files with the ids of their columns
``commits``      files become part of a table, once per query and batch
``source``       the class Spark calls; ``writer`` and ``reader`` its parts
``maintenance``  old snapshots forgotten, files removed that nothing names
===============  ================================================================================

What it shares with Delta tables is in :mod:`penstock.spark.tables`: how rows become Parquet files,
what a mark is, and what fits into a table. ``pyiceberg`` is optional and imported when a table is
used first.
"""
