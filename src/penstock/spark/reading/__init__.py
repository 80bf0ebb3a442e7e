"""Reading streams: what ``format("jetstream")`` does behind ``spark.read`` and
``spark.readStream``.

============================  ====================================================================
``options``, ``schema``       what a read was asked for, and its columns
``positions``, ``offsets``    places in streams as users name them, and as a query keeps them
``batches``, ``partitions``   how far a micro-batch goes, and how it is cut
``patterns``                  sets of subjects
``lookups``                   what planning asks a server
``source``, ``streaming``     the classes Spark calls, on the driver
``plan``, ``tasks``           one partition, and what an executor does with it
``one_range``, ``ranges``     the messages of a partition as Arrow batches (``arrow``), by
                              ``consumers``, ``direct`` gets in batches, ``gets`` of one message
                              each, or from the files (``segments``)
============================  ====================================================================
"""
