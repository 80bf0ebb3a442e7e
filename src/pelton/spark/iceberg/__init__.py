"""Iceberg tables without a JVM: ``format("jetstream_iceberg")``, through ``pyiceberg``.

===============  ================================================================================
``options``      the options; the name of a table and of its catalog
``catalogs``     catalogs opened, tables found and created, errors without secrets
``durable``      files of tables on this machine, synced before another file names them
``schemas``      columns of Spark, of files and of tables, and which fit into which
``data_files``   rows as Parquet files with the ids of their columns
``commits``      files become part of a table, once per query and batch
``source``       the class that Spark calls; ``writer`` and ``reader`` its parts
``compaction``   few files in place of many
``maintenance``  that, old snapshots expired, unused files removed
===============  ================================================================================

:mod:`pelton.spark.tables` has the parts that Delta tables share: writing rows as Parquet files,
marks, and checks of schemas. ``pyiceberg`` is optional and imported at the first use of a table.
"""
