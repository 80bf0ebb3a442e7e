"""Writing streams: ``format("jetstream")`` of ``df.write`` and ``df.writeStream``.

==============================  ==================================================================
``options``                     the options of a write
``sink``                        the writing half of the data sources
``target``                      the stream to write, checked before the write begins
``composing``                   rows as messages
``plan``, ``writer``            the plan of a write, its tasks, and the classes that Spark calls
``sending``, ``progress``       one message per row with an id, and which rows the stream has
``atomic``                      a partition in atomic batches, each with a marker
``row_errors``                  rows that cannot be written: a failure or a side output
==============================  ==================================================================
"""
