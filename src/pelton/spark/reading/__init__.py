"""Reading streams: ``format("jetstream")`` of ``spark.read`` and ``spark.readStream``.

============================  ====================================================================
``options``, ``schema``       the options of a read, and its columns
``positions``, ``offsets``    positions in streams that users name, and the offsets of a query
``batches``, ``partitions``   the end of a micro-batch, and its partitions
``patterns``                  sets of subjects
``lookups``                   the requests that planning sends to a server
``source``, ``streaming``     the classes that Spark calls on the driver
``plan``, ``tasks``           the plan of one partition, and its read on an executor
``one_range``, ``ranges``     the messages of a partition as Arrow batches (``arrow``), by
                              ``consumers``, ``direct`` gets in batches, ``gets`` of one message
                              each, or from the files (``segments``)
============================  ====================================================================
"""
