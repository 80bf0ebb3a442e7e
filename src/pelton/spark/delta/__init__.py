"""Delta tables without a JVM: ``format("jetstream_delta")``, through ``deltalake``.

===========================  =====================================================================
``options``, ``source``      the options; the class that Spark calls
``table``                    the format for the engine of :mod:`pelton.spark.tables`
``log``, ``schemas``         the files of a version, columns, the table's own rules about values
``data_files``               rows as Parquet files and entries of the log
``statistics``               the statistics of each file, by which readers skip files
``rules``                    merges into tables with constraints and the like
``tails``                    the files of a table, known from one commit to the next
===========================  =====================================================================
"""
