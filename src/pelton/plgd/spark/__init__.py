"""A hub's events in Spark: decoded as columns, and brought into tables.

::

    decoding   messages of a DataFrame as typed columns, and the dead letters among them
    batches    a batch of a stream into all tables;  buckets   one task's share of it
    lake       the tables: their contents before a batch, and their commits

`decoded` and `dead_letters` are for every DataFrame with the columns of ``format("jetstream")``::

    events = decoded(spark.readStream.format("jetstream").option("stream", "EVENTS").load())
    events.where("event_type = 'resourcechanged'").select("device_id", "href", "content")
"""

from .decoding import dead_letters, decoded

__all__ = ["dead_letters", "decoded"]
