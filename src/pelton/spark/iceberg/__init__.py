"""Iceberg tables without a JVM: ``format("jetstream_iceberg")``, through ``pyiceberg``.

======================  =========================================================================
``options``, ``source`` the options, the name of a table and of its catalog; the class that Spark calls
``table``               the format for the engine of :mod:`pelton.spark.tables`
``commits``             one attempt of a commit
``expiry``              old snapshots expired, unused files removed
``catalogs``            catalogs opened, tables found and created, errors without secrets
``durable``             files of tables on this machine, synced before another file names them
``schemas``             columns of files and of tables, and which rows fit into them
``data_files``          rows as Parquet files with the numbers of their columns
======================  =========================================================================

``pyiceberg`` is optional and imported at the first use of a table.
"""
