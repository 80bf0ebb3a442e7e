"""Writing streams: what ``format("jetstream")`` does behind ``df.write`` and ``df.writeStream``.

==============================  ==================================================================
``options``                     what a write was asked for
``sink``                        what the data sources have of writing
``target``                      the stream that is written, looked at before
``composing``                   rows as messages
``plan``, ``writer``            what tasks carry out, and the classes Spark calls
``sending``, ``progress``       one message per row with its id, and what of them is there already
``atomic``                      a partition in atomic batches, each with a marker
``row_errors``                  what becomes of rows that cannot be written
==============================  ==================================================================
"""
